"""The fast engine trains R runs of one cell as one program. `trainables.plain.engine` defines what it computes."""
