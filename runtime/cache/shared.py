"""Entries that machines share, behind the cache of each: in a network file system or object store, through fsspec.

Nothing is locked and nothing renamed, which not all stores can do. An entry ends with a digest of its key and content;
what is half written, late or damaged is not there, and whoever needs it makes it and writes it again.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from ..errors import Unsupported
from .folder import log_once, seal, unsealed
from .root import cache_root

URL = "BARACUDA_CACHE_SHARED"
_MOST_FAILURES = 3  # in a row, after which a process does without


class SharedEntries:
    """Entries below the URL of a store. Trouble with it is logged once and costs making entries again."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            needs = f"{URL} needs fsspec, which is not installed; pip install 'baracuda-gen[shared]'"
            raise Unsupported(needs) from None
        try:
            self._files, self._root = url_to_fs(url)
        except Exception as error:  # of any file system; the first that one has to say about a URL
            raise Unsupported(f"{URL} is {url!r}, which fsspec does not open: {error}") from error
        self._url, self._failures, self._counting = url, 0, Lock()

    def get(self, name: str) -> bytes | None:
        """The entry `name`; None if there is none or it is damaged."""
        content = self._try("read", lambda: self._files.cat_file(f"{self._root}/{name}"))
        return None if content is None else unsealed(Path(name), content)

    def put(self, name: str, body: bytes) -> None:
        """Write the entry `name`, whatever is there."""
        path, content = f"{self._root}/{name}", body + seal(Path(name), body)

        def write() -> None:
            try:
                self._files.pipe_file(path, content)
            except FileNotFoundError:  # in what has folders
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(path, content)

        self._try("write", write)

    def _try(self, what: str, work: Any) -> Any:
        if self._failures >= _MOST_FAILURES:
            return None
        try:
            done = work()
        except FileNotFoundError:
            done = None
        except Exception as error:  # each file system has its own
            with self._counting:
                self._failures += 1
            log_once(f"cannot {what} entries of the shared cache {self._url}: {type(error).__name__}: {error}")
            return None
        self._failures = 0
        return done


def shared_entries(folder: Path) -> tuple[SharedEntries, str] | None:
    """What is behind a folder of the cache, and the folder's name there; None unless it is asked for."""
    url, root = os.environ.get(URL), cache_root()
    return (_opened(url.rstrip("/")), folder.relative_to(root).as_posix()) if url and root in folder.parents else None


@cache
def _opened(url: str) -> SharedEntries:
    return SharedEntries(url)
