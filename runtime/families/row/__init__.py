"""Plans that loop over rows."""
