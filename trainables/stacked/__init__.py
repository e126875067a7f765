"""The fast engine trains R runs of one cell as one program. `trainables.training` defines what it computes."""
