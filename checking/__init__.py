"""Checks kernels and plans against their specs; generates nothing."""
