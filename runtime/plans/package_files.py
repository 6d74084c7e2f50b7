"""Files of packages, read without importlib.resources, whose import takes a millisecond of a process's first call."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def text_of(package: str, name: str) -> str:
    """The text of a file beside a package's modules, wherever its loader has it."""
    module = import_module(package)
    loader: Any = getattr(module.__spec__, "loader", None)
    if module.__file__ is None or not hasattr(loader, "get_data"):
        from importlib.resources import files

        return files(package).joinpath(name).read_text(encoding="utf-8")
    data: bytes = loader.get_data(os.path.join(os.path.dirname(module.__file__), name))
    return data.decode("utf-8")
