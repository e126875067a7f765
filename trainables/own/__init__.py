"""In: a training function of the user's own, with its files. Out: runs of it that checkpoint, resume and report."""
