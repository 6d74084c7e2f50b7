"""Plans of matrix products."""
