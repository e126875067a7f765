"""In: the record. Out: MLflow runs. MLflow can be deleted and is rebuilt from the record."""
