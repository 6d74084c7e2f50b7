"""Holds kernels and plans to their specs; nothing here generates."""
