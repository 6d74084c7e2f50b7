"""A private folder on disk: checked entries, locks, atomic writes."""
