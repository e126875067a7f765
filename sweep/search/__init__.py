"""In: a study's `search` and the values of earlier rounds. Out: the learning rates of the next round, stored first."""
