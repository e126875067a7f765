"""In: a results directory in an object store. Out: a working copy here, uploaded by the one process with the lock."""
