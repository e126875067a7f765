"""Learning rates: the best one between those that were tried, how it moves, and which to try next."""
