"""Test problems of each family, for tests, comparisons and mutations."""

from . import body, list, map, row  # noqa: F401  each makes its family's problems known
