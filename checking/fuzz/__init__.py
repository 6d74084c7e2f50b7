"""Hostile input, drawn at random and judged by machine: specs, programs, tables, repro files, calls, cache entries."""
