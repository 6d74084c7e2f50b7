"""Changes to kernels and plans, each of which some test has to notice."""
