"""The generator: reads specs, takes every decision, prints kernels and plans."""
