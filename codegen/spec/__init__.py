"""Specs: reading, validation, schema."""
