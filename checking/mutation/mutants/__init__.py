"""Defects to plant in kernels and plans."""
