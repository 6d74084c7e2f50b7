"""Files of a git revision, extracted without touching the working tree."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from baracuda.runtime import InvalidProblem


def repository_of(folder: Path) -> Path:
    """The root of the git repository that contains `folder`; InvalidProblem if there is none."""
    existing = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.is_dir())
    result = _git(existing, "rev-parse", "--show-toplevel")
    if result.returncode:
        raise InvalidProblem(f"{folder} is in no git repository; there is no revision to compare it with")
    return Path(result.stdout.decode().strip())


@contextmanager
def files_at(repository: Path, revision: str, paths: list[Path]) -> Iterator[Path]:
    """A temporary folder with the files of `revision` at `paths`, which are absolute and inside `repository`."""
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit.returncode:
        raise InvalidProblem(f"no revision {revision!r} in {repository}; name a commit, a branch or a tag")
    name = commit.stdout.decode().strip()
    relative_paths = [p.relative_to(repository).as_posix() for p in paths]
    committed = [path for path in relative_paths if not _git(repository, "cat-file", "-e", f"{name}:{path}").returncode]
    with tempfile.TemporaryDirectory(prefix="baracuda-revision-") as folder:
        if committed:
            result = _git(repository, "archive", "--format=tar", name, "--", *committed)
            if result.returncode:
                raise InvalidProblem(f"git archive {revision}: {result.stderr.decode().strip().splitlines()[-1]}")
            with tarfile.open(fileobj=io.BytesIO(result.stdout)) as archive:
                archive.extractall(folder, filter="data")
        yield Path(folder)


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True)
    except FileNotFoundError:
        raise InvalidProblem("git is not on the PATH; it holds the revision to compare with") from None
