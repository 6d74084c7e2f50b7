"""Specs: read, validated, described."""
