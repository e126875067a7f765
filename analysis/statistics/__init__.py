"""In: frames. Out: frames: selection, aggregates, intervals, comparisons, checks. Nothing formats or writes."""
