"""The catalogue: a page for each op made of its spec, its kernels and what was measured, as a site to read offline."""
