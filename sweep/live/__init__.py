"""In: a results directory. Out: a page on loopback that shows it as it changes."""
