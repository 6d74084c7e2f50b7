"""Golden hashes: what kernels compute, recorded, so that a change of bits without a new revision is an error."""
