"""What compiled kernels are made of, read from their machine code and PTX, and what contracts forbid of it."""
