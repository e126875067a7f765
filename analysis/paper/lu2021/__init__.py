"""The tables of Lu et al. 2021 by number: what each entry is about, the published value, and ours next to it."""
