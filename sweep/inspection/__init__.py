"""In: a results directory. Out: lists of runs, one run's details, a study's state, damage, and what can be removed."""
