"""Which kernels an op has: a variant for each SKU, layout and architecture."""
