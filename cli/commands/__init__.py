"""The commands, which add themselves to the group as they are imported."""

from . import demo, kernels, make, measure, packs, prove, tools

__all__ = ["demo", "kernels", "make", "measure", "packs", "prove", "tools"]
