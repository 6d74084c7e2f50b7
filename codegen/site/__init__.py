"""The catalogue: a static site with a page per op, made from its spec, its kernels and measurements."""
