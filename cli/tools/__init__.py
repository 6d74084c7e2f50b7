"""Commands for the installation, the cache and the catalogue."""
