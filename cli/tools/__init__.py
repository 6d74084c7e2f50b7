"""Commands about the installation, its cache and the catalogue's pages."""
