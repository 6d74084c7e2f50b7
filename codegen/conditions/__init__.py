"""Conditions in specs: parsed, their kinds and intervals, their values."""
