"""Fault injection into caches: how often each fault is tried, and how often contained. Nothing is compiled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

from baracuda.codegen.emit.output import MANIFEST, manifest_of, write
from baracuda.runtime.cache import folder as cache_folder
from baracuda.runtime.cache.folder import entries, is_intact
from baracuda.runtime.errors import UnsafeCache
from baracuda.runtime.host.cache import BuildCache, content
from baracuda.runtime.observe import log
from baracuda.runtime.plans.tuned import MARK

from .cache_kinds import CachedEntry, filled, kernel, record

_NOBODY = 65534
_AN_HOUR = 3600
_PROCESSES = 32
_A_DISK = 1 << 20  # bytes of the small disk


@dataclass(frozen=True)
class Row:
    """A fault, how often it was tried and contained; `skipped` says why it could not be tried."""

    fault: str
    tried: int
    contained: int
    skipped: str = ""


def run(count: int = 1000, seed: int = 0) -> list[Row]:
    """Inject every fault into caches in a temporary folder, random ones `count` times."""
    rng, before = Random(seed), os.environ.get("BARACUDA_CACHE_DIR")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # each write is synchronised with the disk
    with tempfile.TemporaryDirectory(prefix="baracuda-faults-", dir=memory) as name:
        log.disabled = True
        try:
            return [row for fault in _FAULTS for row in fault(_cache_in(Path(name)), rng, count)]
        finally:
            log.disabled = False
            _set_root(before)


def _cache_in(folder: Path) -> Path:
    """A new empty cache, made that of this process."""
    root = Path(tempfile.mkdtemp(dir=folder)) / "cache"
    _set_root(str(root))
    return root


def _set_root(name: str | None) -> None:
    if name is None:
        os.environ.pop("BARACUDA_CACHE_DIR", None)
    else:
        os.environ["BARACUDA_CACHE_DIR"] = name


def _damaged(root: Path, rng: Random, count: int) -> Iterator[Row]:
    """Flip a random bit or cut a random tail of files of each kind."""
    for fault, damage in (("bit flipped", _flipped), ("file truncated", _truncated)):
        for kind, cached in filled(root, rng).items():
            passed = 0
            for _ in range(count):
                entry = rng.choice(cached)
                data = entry.path.read_bytes()
                entry.path.write_bytes(damage(data, rng))
                passed += entry.read() is None
                entry.path.write_bytes(data)
            yield Row(f"{fault}: {kind}", count, passed)


def _flipped(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _truncated(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _swapped(root: Path, rng: Random, count: int) -> Iterator[Row]:
    """Put every entry under the name of every other one."""
    cached = [entry for kind in filled(root, rng).values() for entry in kind]
    contents = {entry.path: entry.path.read_bytes() for entry in cached}
    pairs = [(entry, other) for entry in cached for other in cached if entry is not other]
    passed = 0
    for entry, other in pairs:
        entry.path.write_bytes(contents[other.path])
        passed += entry.read() is None
        entry.path.write_bytes(contents[entry.path])
    yield Row("under another key", len(pairs), passed)


def _owned(root: Path, rng: Random, count: int) -> Iterator[Row]:
    """Make each folder and file another user's, or writable by others."""
    cached = [entry for kind in filled(root, rng, 1).values() for entry in kind]
    folders = {folder for entry in cached for folder in entry.path.parents if folder.is_relative_to(root)}
    modes = [(at, partial(at.chmod, mode)) for at in folders for mode in (0o720, 0o702, 0o777)]
    yield Row("folder that others may write", *_refused(cached, modes))
    changes = [(entry.path, partial(entry.path.chmod, 0o666)) for entry in cached]
    yield Row("file that others may write", *_refused(cached, changes))
    if os.geteuid():
        yield Row("another user's folder or file", 0, 0, "needs root")
        return
    owners = [(at, partial(os.chown, at, _NOBODY, -1)) for at in (*folders, *(entry.path for entry in cached))]
    yield Row("another user's folder or file", *_refused(cached, owners))


def _refused(cached: list[CachedEntry], changes: Sequence[tuple[Path, Callable[[], None]]]) -> tuple[int, int]:
    """The number of changes, and after how many none of the affected entries is read."""
    passed = 0
    for path, change in changes:
        status = os.stat(path)
        change()
        passed += all(_is_refused(entry) for entry in cached if entry.path.is_relative_to(path))
        os.chown(path, status.st_uid, status.st_gid)
        path.chmod(stat.S_IMODE(status.st_mode))
    return len(changes), passed


def _is_refused(entry: CachedEntry) -> bool:
    try:
        return entry.read() is None
    except UnsafeCache:
        return True


def _timed(root: Path, rng: Random, count: int) -> Iterator[Row]:
    """Files with times far in the past and future, as after the clock jumps."""
    cached = [entry for kind in filled(root, rng).values() for entry in kind]
    passed = 0
    for entry in cached:
        stamp = time.time() + rng.choice((-1, 1)) * rng.randrange(_AN_HOUR, 10**9)
        os.utime(entry.path, (stamp, stamp))
        passed += entry.is_right(gone=False)
    cache_folder.prune(root)
    passed += sum(entry.is_right() for entry in cached)
    yield Row("clock that jumped", 2 * len(cached), passed)


def _full(root: Path, rng: Random, count: int) -> Iterator[Row]:
    """Write to a disk that runs full, and to a read-only one."""
    for fault, room in (("full disk", _disk), ("read-only disk", _read_only)):
        with room(root) as reason:
            if reason:
                yield Row(fault, 0, 0, reason)
                continue
            cached = [make(root, rng) for make in (kernel("cubin"), record) for _ in range(40)]
            broken = sum(not is_intact(entry.path) for entry in entries(root))
            yield Row(fault, len(cached), sum(entry.is_right() for entry in cached) if not broken else 0)


@contextmanager
def _disk(root: Path) -> Iterator[str]:
    """A small disk with 48 KiB left."""
    with _mounted(root) as reason:
        if not reason:
            (root / ".ballast").write_bytes(bytes(_A_DISK - (48 << 10)))
        yield reason


@contextmanager
def _read_only(root: Path) -> Iterator[str]:
    with _mounted(root) as why:
        yield why or _ran("mount", "-o", "remount,ro", str(root))


@contextmanager
def _mounted(root: Path) -> Iterator[str]:
    """Mount a small disk there; yields "", or why that failed."""
    root.mkdir(parents=True, exist_ok=True)
    if reason := _ran("mount", "-t", "tmpfs", "-o", f"size={_A_DISK},mode=700", "none", str(root)):
        yield reason
        return
    try:
        yield ""
    finally:
        _ran("umount", str(root))


def _ran(*command: str) -> str:
    try:
        completed = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return f"{command[0]} is not allowed" if completed.returncode else ""


def _killed(root: Path, rng: Random, count: int) -> Iterator[Row]:
    """Processes that build the same files in a cold cache; half are killed at random times."""
    names, passed, rounds = [f"{index:040x}.so" for index in range(4)], 0, max(1, count // 100)
    for _ in range(rounds):
        shutil.rmtree(root, ignore_errors=True)
        children = [_forked(lambda: _build_all(root, names)) for _ in range(_PROCESSES)]
        for child in rng.sample(children, _PROCESSES // 2):
            time.sleep(rng.random() / 100)
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
        _build_all(root, names)
        cache_folder.sweep(root / "host")
        are_intact = all(is_intact(entry.path) for entry in entries(root))
        passed += are_intact and _files(root) == {f"host/{name}" for name in names}
    yield Row(f"{_PROCESSES} processes on a cold cache, half of them killed", rounds, passed)


def _build_all(root: Path, names: list[str]) -> None:
    builds = BuildCache(root / "host")

    def build(target: Path) -> None:
        with target.open("wb") as file:
            for _ in range(10):
                file.write(b"part" * 100)
                file.flush()
                time.sleep(1e-3)

    for name in names:
        if content(builds.get(name, build)) != b"part" * 1000:
            os._exit(1)


def _files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    return child


def _interrupted(root: Path, rng: Random, count: int) -> Iterator[Row]:
    """Write generated files, one new and one deleted, killed before each file system call in turn."""
    old, new = _files_of("abc", "1"), _files_of("bcd", "2")
    out, tried, passed = root / "out", 0, 0
    while True:
        shutil.rmtree(out, ignore_errors=True)
        write(old, out)
        child = _forked(partial(_write_until, new, out, tried))
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        tried += 1
        texts = {path: (out / path).read_text() for path in {*old, *new} - {MANIFEST} if (out / path).exists()}
        are_consistent = all(text in (old.get(path), new.get(path)) for path, text in texts.items())
        write(new, out)
        passed += are_consistent and {path: (out / path).read_text() for path in _files(out)} == new
    yield Row("generate killed at each call to the file system", tried, passed)


def _files_of(names: str, text: str) -> dict[str, str]:
    """Generated files and their manifest."""
    files = {f"{part}/{name}.py": f'"""{MARK}."""\n{text}' for part in "xy" for name in names}
    return {**files, MANIFEST: manifest_of(files)}


def _write_until(files: dict[str, str], out: Path, calls: int) -> None:
    left = calls

    def count(event: str, _: object) -> None:
        nonlocal left
        if event.startswith(("open", "os.", "fcntl.", "shutil.")):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(count)
    write(files, out)


_FAULTS = (_damaged, _swapped, _owned, _timed, _full, _killed, _interrupted)


def main() -> None:
    """Print the table as JSON, for a process of its own."""
    count, seed = map(int, sys.argv[1:])
    print(json.dumps([asdict(row) for row in run(count, seed)]))


if __name__ == "__main__":
    main()
