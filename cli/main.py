"""The command line, `baracuda-gen`."""

from __future__ import annotations

from . import commands
from .group import main

__all__ = ["commands", "main"]
