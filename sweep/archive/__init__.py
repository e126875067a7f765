"""In: a results directory. Out: one tar file, and back. Two records of a run are merged, or refused."""
