"""In: the runs to train. Out: Ray Tune trials, and their events as the record."""
