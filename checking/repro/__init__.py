"""Failing cases as files that hold all it takes to see them again."""
