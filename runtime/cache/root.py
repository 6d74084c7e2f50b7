"""The root folder of the cache."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UnsafeCache


def cache_root() -> Path:
    """$BARACUDA_CACHE_DIR, else $XDG_CACHE_HOME/baracuda, else ~/.cache/baracuda; absolute, may not exist yet.

    Raises UnsafeCache if none of these is known.
    """
    try:
        if chosen := os.environ.get("BARACUDA_CACHE_DIR"):
            return Path(chosen).absolute()
        return (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baracuda").absolute()
    except RuntimeError:
        raise UnsafeCache("this user has no home folder to keep the cache in; set BARACUDA_CACHE_DIR") from None
    except FileNotFoundError:
        raise UnsafeCache(
            "the cache is below the current folder, which is gone; set BARACUDA_CACHE_DIR to an absolute path"
        ) from None
