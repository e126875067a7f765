"""Measurements behind the figures in RESULTS.md and docs/. Each is a script that prints what it measured."""
