"""Plans that compute each element of the arrays of some lists."""
