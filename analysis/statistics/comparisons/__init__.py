"""Noise, intervals and tests: which variant is better, and how sure that is."""
