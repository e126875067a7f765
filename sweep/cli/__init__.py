"""In: the arguments of a command. Out: printed text and an exit code. The other packages do the work."""
