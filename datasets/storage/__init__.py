"""Whole files, objects in S3 and background work. Every package may import it; it imports none."""
