"""In: Parquet files. Out: rows and frames with documented columns."""
