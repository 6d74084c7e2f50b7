"""The generator: reads specs, makes every decision, prints kernels and plans."""
