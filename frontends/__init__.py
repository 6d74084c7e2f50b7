"""Generated kernels as ops of other libraries, each of which is imported on its own."""
