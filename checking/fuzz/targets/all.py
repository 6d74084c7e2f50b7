"""Every target, by name."""

from . import calls, entries, files, kernels, listing  # noqa: F401  their targets are known from then on
from .target import Target

__all__ = ["SHARES", "Target"]

# How many cases of each target a run has for each spec. Reading is part of generating.
SHARES = {
    "generate": 1.0,
    "list": 0.05,
    "select": 0.025,
    "execute": 0.025,
    "compile": 0.01,
    "calls": 0.25,
    "tables": 0.1,
    "repro": 0.05,
    "entries": 0.1,
}
