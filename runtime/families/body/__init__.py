"""Plans of hand-written kernels."""
