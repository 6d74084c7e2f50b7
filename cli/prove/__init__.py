"""Commands that test kernels and plans."""
