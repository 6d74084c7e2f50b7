"""Fuzzing targets, a module per kind."""
