"""The fast engine trains R runs of one cell as one program. `trainables.plain` defines what it computes."""
