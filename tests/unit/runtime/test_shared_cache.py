"""Invariant: machines that share entries each get what was put under a key or make it, whatever their store does."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from baracuda.runtime import Unsupported
from baracuda.runtime.cache import shared
from baracuda.runtime.cache.entries import EntryStore
from baracuda.runtime.cache.folder import log_once

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


class Files:
    """A store without locks and renames, like those of objects. `fault` may raise, or give back less than there is."""

    def __init__(self) -> None:
        self.there: dict[str, bytes] = {}
        self.fault: Callable[[str, bytes], bytes] = lambda _what, content: content

    def cat_file(self, path: str) -> bytes:
        if path not in self.there:
            raise FileNotFoundError(path)
        return self.fault("read", self.there[path])

    def pipe_file(self, path: str, content: bytes) -> None:
        self.there[path] = self.fault("write", content)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    made, module, core = Files(), ModuleType("fsspec"), ModuleType("fsspec.core")
    core.url_to_fs = lambda url: (made, url.partition("://")[2])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fsspec", module)
    monkeypatch.setitem(sys.modules, "fsspec.core", core)
    monkeypatch.setenv(shared.URL, "fake://bucket/kernels/")
    shared._opened.cache_clear()
    log_once.cache_clear()
    yield made
    shared._opened.cache_clear()


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> EntryStore:
    """The store of a machine with a cache of its own."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(folder))
    return EntryStore(folder / "cubin")


def test_what_one_machine_makes_another_finds_and_keeps(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path / "one", monkeypatch).put(KEY, b"code")
    assert list(files.there) == [f"bucket/kernels/cubin/entries/{KEY.hex()[:2]}/{KEY.hex()[2:]}"]
    other = machine(tmp_path / "two", monkeypatch)
    assert (other.get(KEY), other.get(OTHER)) == (b"code", None)
    files.there.clear()
    assert other.get(KEY) == b"code"
    monkeypatch.setenv(shared.URL, "")
    other.put(OTHER, b"mine")
    assert not files.there


@pytest.mark.parametrize(
    "damage",
    [lambda body: body[:-1], lambda body: b"", lambda body: b"?" + body[1:], lambda body: body * 2],
)
def test_what_is_half_written_or_of_another_key_is_not_there(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    machine(tmp_path / "one", monkeypatch).put(KEY, b"code")
    (path,) = files.there
    there = files.there[path]
    files.there = {path: damage(there), path.replace(KEY.hex()[2:], OTHER.hex()[2:]): there}
    other = machine(tmp_path / "two", monkeypatch)
    assert other.get(KEY) is None
    other.put(KEY, b"code")
    assert machine(tmp_path / "three", monkeypatch).get(KEY) == b"code"


def test_a_store_that_is_down_is_said_once_and_not_asked_for_ever(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def down(what: str, content: bytes) -> bytes:
        asked.append(what)
        raise RuntimeError("throttled")  # such as of botocore: no OSError

    files.fault = down
    store = machine(tmp_path, monkeypatch)
    with caplog.at_level(logging.WARNING):
        for number in range(6):
            store.put(bytes([number] * 32), b"code")
    assert asked == ["write"] * 3 and store.get(bytes(32)) == b"code"
    said = [record.getMessage() for record in caplog.records]
    assert said == ["cannot write entries of the shared cache fake://bucket/kernels: RuntimeError: throttled"]


@pytest.mark.parametrize("seed", range(4))
def test_eight_writers_of_a_bad_store_have_the_right_kernel(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Writes are torn or lost, reads late, short or refused; what is read is what was made."""
    rng, keys = Random(seed), [bytes([number] * 32) for number in range(20)]
    monkeypatch.setattr(shared, "_MOST_FAILURES", 1 << 30)

    def fault(what: str, content: bytes) -> bytes:
        match rng.randrange(6):
            case 0:
                raise OSError("refused")
            case 1:
                raise FileNotFoundError("not seen yet")
            case 2 | 3:
                return content[: rng.randrange(len(content))]
        return content

    files.fault = fault
    monkeypatch.setattr(Files, "makedirs", lambda *_, **__: None, raising=False)
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    stores = [EntryStore(tmp_path / str(number) / "cubin") for number in range(8)]
    monkeypatch.setattr(
        "baracuda.runtime.cache.entries.shared_entries", lambda folder: (shared._opened("fake://bucket"), "cubin")
    )
    wrong: list[Any] = []

    def write(store: EntryStore, order: list[bytes]) -> None:
        for key in order:
            made = key * 50
            body = store.get(key)
            if body is None:
                store.put(key, made)
                body = store.get(key)
            wrong.extend([key] * (body != made))

    threads = [threading.Thread(target=write, args=(store, rng.sample(keys, len(keys)))) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and all(store.get(key) == key * 50 for store in stores for key in keys)
    files.fault = lambda _what, content: content
    for key in keys:
        stores[0].put(key, key * 50)
    assert all(EntryStore(tmp_path / "ninth" / "cubin").get(key) == key * 50 for key in keys)


def test_what_fsspec_does_not_open_is_said(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(url: str) -> None:
        raise ValueError("Protocol not known: fake")

    monkeypatch.setattr(sys.modules["fsspec.core"], "url_to_fs", unknown)
    with pytest.raises(Unsupported, match="SHARED is 'fake://bucket/kernels', which fsspec does not open"):
        machine(tmp_path, monkeypatch).get(KEY)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(Unsupported, match=r"pip install 'baracuda-gen\[shared\]'"):
        machine(tmp_path, monkeypatch).get(KEY)


@pytest.mark.frontends
@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_file_systems_of_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    pytest.importorskip("fsspec")
    url = f"file://{tmp_path}/share/deep" if scheme == "file" else f"memory://{os.getpid()}"
    monkeypatch.setenv(shared.URL, url)
    shared._opened.cache_clear()
    machine(tmp_path / "one", monkeypatch).put(KEY, b"code")
    other = machine(tmp_path / "two", monkeypatch)
    assert (other.get(KEY), other.get(OTHER)) == (b"code", None)
