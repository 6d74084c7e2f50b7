"""`baracuda-gen demo`."""
