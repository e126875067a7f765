"""A report on runs that any program made, from a table of them."""
