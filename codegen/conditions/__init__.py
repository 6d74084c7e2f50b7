"""Conditions in specs: parsing, types and intervals, values."""
