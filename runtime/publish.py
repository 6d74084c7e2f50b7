"""Files that appear whole: a reader sees the old text or the new, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def publish(path: Path, content: str | bytes) -> None:
    """Write through a temporary file beside `path`. Raises OSError, which names `path`."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:  # of a full disk it names no file
            error.filename = os.fspath(path)
        raise
