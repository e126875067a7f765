"""Training loops that are killed and resumed, and compared with undisturbed ones (`__main__`)."""
