"""The folder under which every compiled artefact of this user is kept between processes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """$BARACUDA_CACHE_DIR, else $XDG_CACHE_HOME/baracuda, else ~/.cache/baracuda; it need not exist yet."""
    if chosen := os.environ.get("BARACUDA_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baracuda"
