"""Judging defects of a table: each in a copy of the source tree, by the commands that a project runs without a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from threading import Timer
from typing import Any

from baracuda.codegen.project import installed
from baracuda.runtime import InvalidProblem
from baracuda.runtime.cache.root import cache_root

from ..apart import Lost
from ..executors import Pool, each
from .table import Defect
from .tree_trial import Question
from .verdict import KILLED, SAME, SURVIVED, Outcome, Verdict

_SECONDS = 3600.0  # that a command may take: one that takes longer does not end
_GENERATING = ("codegen/", "specs/", "templates/")  # where a change may show in generated/
_HEADERS = "runtime/include/"
_OF_KERNELS = (_HEADERS, "templates/")  # where a change shows in machine code or not at all
_PROBLEMS = 40  # that `compare` draws for each op
_SAID = 300  # characters of what a command says


@dataclass(frozen=True)
class Tree:
    """A copy of a checkout, in which commands run as if it were installed."""

    root: Path
    variables: Mapping[str, str]

    @classmethod
    def copy_of(cls, root: Path, to: Path, variables: Mapping[str, str]) -> Tree:
        """Copy the packages of the checkout `root` into the folder `to`."""
        for link in sorted((root / ".imports" / "baracuda").iterdir()):
            shutil.copytree(root / link.name, to / link.name)
        shutil.copytree(root / ".imports", to / ".imports", symlinks=True)
        return cls(to, variables)

    def command(self, *arguments: str) -> list[str]:
        """`baracuda-gen` with `arguments`."""
        return [sys.executable, "-c", "from baracuda.cli.main import main; main()", *arguments]

    def start(self, command: Sequence[str], **pipes: Any) -> subprocess.Popen[str]:
        """Start a Python command that imports the packages of this tree."""
        environment = {**os.environ, **self.variables, "PYTHONPATH": str(self.root / ".imports")}
        return subprocess.Popen(command, cwd=self.root, env=environment, text=True, **pipes)

    def refusal(self, *arguments: str) -> str | None:
        """What `baracuda-gen` says when it does not exit with 0: its first complaint, or else its last line."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.start(self.command(*arguments), stdin=subprocess.DEVNULL, **pipes) as process:
            said, complaints = process.communicate()
            return (_lines(complaints)[0] or _lines(said)[-1]) if process.returncode else None


def judge(defect: Defect, root: Path, variables: Mapping[str, str]) -> tuple[Verdict, tuple[str, ...]]:
    """What objects first to a defect of the checkout `root`, or that nothing does, and the cases that do not count.

    Those object to the unchanged checkout, too. SAME where every kernel of its ops has the same machine code.
    """
    unchanged, unsound = Tree(root, variables), list[str]()
    with tempfile.TemporaryDirectory(prefix="baracuda-defect-") as folder:
        tree = Tree.copy_of(root, Path(folder), variables)
        defect.apply(tree.root)
        verdict = _judged(defect, tree, unchanged, unsound)
    return verdict, tuple(unsound)


def _judged(defect: Defect, tree: Tree, unchanged: Tree, unsound: list[str]) -> Verdict:
    files = [edit.file for edit in defect.edits]
    if any(file.startswith(_GENERATING) for file in files) and (said := tree.refusal("generate")):
        return Verdict(KILLED, "generate", said)
    of_headers = all(file.startswith(_HEADERS) for file in files)
    question = Question(defect.ops, unchanged=str(unchanged.root / _HEADERS) if of_headers else "")
    verdict = _first_objection(tree, unchanged, question, unsound)
    if verdict.what not in (SURVIVED, SAME):
        return verdict
    if refused := _refused(tree, unchanged, defect.ops, compares=verdict.what != SAME):
        return refused
    of_kernels = all(file.startswith(_OF_KERNELS) for file in files)
    return Verdict(SAME if of_kernels and _same_code(tree, unchanged, defect.ops) else SURVIVED)


def _first_objection(tree: Tree, unchanged: Tree, question: Question, unsound: list[str]) -> Verdict:
    """The first case that objects to a tree and not to the unchanged one; `unsound` gets those that object to both.

    A crash ends all cases, so that without one that crashes in both, cases begin anew.
    """
    asked = -1
    while asked < len(unsound):
        asked = len(unsound)
        with closing(tested(tree, replace(question, without=tuple(unsound)))) as found:
            for verdict in found:
                if verdict.what == SAME or is_sound(unchanged, question, verdict.stage):
                    return verdict
                unsound.append(verdict.stage)
    return Verdict(SURVIVED)


def is_sound(unchanged: Tree, question: Question, case: str) -> bool:
    """Whether a case passes on the unchanged checkout."""
    with closing(tested(unchanged, replace(question, only=case, unchanged=""))) as found:
        return next(found, None) is None


def _refused(tree: Tree, unchanged: Tree, ops: Sequence[str], *, compares: bool) -> Verdict | None:
    """The objection of `compare` or `check` to `ops`, or None; raises InvalidProblem if the unchanged tree has one."""
    with_torch = compares and find_spec("torch") is not None
    comparing = "compare", *ops, "--device", "host", "--count", str(_PROBLEMS), "--jobs", "1"
    for command in ([comparing] if with_torch else []) + [("check", *ops)]:
        if said := tree.refusal(*command):
            if before := unchanged.refusal(*command):
                raise InvalidProblem(f"{command[0]} objects to {' '.join(ops)} without a defect: {before}")
            return Verdict(KILLED, command[0], said)
    return None


def _same_code(tree: Tree, other: Tree, ops: Sequence[str]) -> bool:
    """Whether all kernels of `ops` have the same machine code in two trees."""
    command, pipes = [sys.executable, "-m", "baracuda.checking.mutation.tree_code", *ops], {"stdout": subprocess.PIPE}
    with tree.start(command, **pipes) as ours, other.start(command, **pipes) as theirs:
        assert ours.stdout is not None and theirs.stdout is not None
        same = all(one == another for one, another in zip_longest(ours.stdout, theirs.stdout))
        ours.kill()
        theirs.kill()
        return same


def tested(tree: Tree, question: Question) -> Generator[Verdict]:
    """What the cases of `tree_trial` say that object; a crash is an objection, too."""
    command = [sys.executable, "-m", "baracuda.checking.mutation.tree_trial"]
    with (
        tempfile.TemporaryFile("w+", errors="replace") as stderr,
        tree.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        impatient = Timer(_SECONDS, process.kill)
        impatient.start()
        try:
            json.dump(asdict(question), process.stdin)
            process.stdin.close()
            case = "test"
            for line in process.stdout:
                record = json.loads(line)
                case = record.get("case", case)
                if "verdict" in record:
                    yield Verdict(*record["verdict"])
                if "end" in record:
                    return
            stderr.seek(0)
            yield Verdict(KILLED, case, f"the process ended with {process.wait()}: {_lines(stderr.read())[-1]}")
        finally:
            impatient.cancel()
            process.kill()


def _lines(said: str) -> list[str]:
    """What is said line by line, each cut where it gets long; one empty line for nothing."""
    return [line.strip()[:_SAID] for line in said.splitlines() if line.strip()] or [""]


def planted(defect: Defect) -> Outcome:
    """The outcome of a defect in the checkout of this process."""
    start, root = time.monotonic(), installed("baracuda.runtime").resolve().parent
    verdict, unsound = judge(defect, root, {"BARACUDA_CACHE_DIR": str(cache_root())})
    return Outcome(defect.id, verdict, round(time.monotonic() - start, 2), unsound)


def run(defects: Sequence[Defect], within: Pool, report: Callable[[Outcome], None]) -> None:
    """Judge `defects`; raises InvalidProblem at the end for those whose process was lost."""
    lost = []
    for defect, outcome in each(within, planted, deque(defects)):
        if isinstance(outcome, Lost):
            lost.append(f"{defect.id} was not judged: {outcome}")
        else:
            report(outcome)
    if lost:
        raise InvalidProblem("\n".join(lost))
