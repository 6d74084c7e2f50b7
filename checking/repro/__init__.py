"""Saved failures: files with everything needed to rerun them."""
