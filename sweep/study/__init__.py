"""In: a study file. Out: a validated `Study`, and the runs that it wants."""
