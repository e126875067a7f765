"""Measurements behind the figures in docs/. Each is a script that prints what it measured."""
