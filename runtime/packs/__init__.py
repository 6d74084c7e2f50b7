"""Packs: machine code that was compiled before, as folders that are only read."""
