"""A private folder on disk: sealed entries, locks, atomic writes."""
