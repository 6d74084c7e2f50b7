"""Facts of compiled kernels, from machine code and PTX, and the rules that contracts impose."""
