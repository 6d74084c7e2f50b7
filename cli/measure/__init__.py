"""Commands that time kernels on a GPU."""
