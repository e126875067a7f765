"""In: the runs to train. Out: their cohorts, where these train, for how long and at what cost. Starts nothing."""
