"""Plans against torch in float64, on random problems from everything that an op allows."""
