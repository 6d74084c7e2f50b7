"""Plans of the row family."""
