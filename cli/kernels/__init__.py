"""Commands that list, compile, check and compare kernels."""
