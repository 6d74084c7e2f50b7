"""From an op to files: CUDA, Python, stubs."""
