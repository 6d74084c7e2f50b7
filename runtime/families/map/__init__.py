"""Plans that compute each element on its own."""
