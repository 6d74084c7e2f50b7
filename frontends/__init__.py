"""Generated kernels as ops of other libraries; each frontend is imported separately."""
