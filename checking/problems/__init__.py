"""Test problems of each family, for tests, comparisons and mutations."""
