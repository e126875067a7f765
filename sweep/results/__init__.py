"""In: what a study wants, and what trials report. Out: the record, which has one writer, and the states of runs."""
