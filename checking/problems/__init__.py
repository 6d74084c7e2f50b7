"""Problems that a spec's tests, comparisons and mutations draw, of each family."""

from . import body, map, row  # noqa: F401  each makes its family's problems known
