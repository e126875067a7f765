"""In: what a study wants, and what trials report. Out: what is left to train, and the record, which has one writer."""
