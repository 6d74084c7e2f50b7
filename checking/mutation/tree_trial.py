"""Judging the source tree whose packages this process imports, by the spec-driven tests on the host device.

``python -m baracuda.checking.mutation.tree_trial`` reads a `Question` as JSON. It writes a line of JSON for each case
before it begins, so that the caller knows which one a crash was in, one for each verdict, and one at the end.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache, partial
from pathlib import Path

from baracuda.runtime import CompileError, KernelSku
from baracuda.runtime.compile.cubin import INCLUDE
from baracuda.runtime.device import KernelSource
from baracuda.runtime.host.build import GPU_TEXT, VOCABULARY, gpu_text_define
from baracuda.runtime.host.toolchain import find_toolchain

from ..oracles.memo import memo
from ..problems.cases import skus
from ..problems.subject import Subject
from ..trials.memory import HostMemory, check_mode, gpu_text
from ..verify import chosen, gpu_code, suite, table
from . import stages
from .stages import Stage
from .verdict import KILLED, SAME, STILLBORN, Verdict, in_one_line

_OF_GPUS = "test conversions[", "test gpu_code["  # cases that see what only GPUs execute
_QUICK = 3  # kernels on which small problems come before everything else
_LAUNCH_SECONDS = 30.0  # which no launch takes that ends
_HOST_HEADERS = INCLUDE.parent / "host" / "include"
_DECIDES = re.compile(r"^[ \t]*#[ \t]*(?:if|elif|include)(?:.*\\\n)*.*", re.MULTILINE)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Question:
    """Which ops to test, and which cases not, since they object to the unchanged tree, too.

    `unchanged` is the folder of device headers before the change, if only those differ. With `kernels`, cases are of
    these alone, behind those of ops; with `only`, there is one; unless `watched`, there is none in check mode.
    """

    ops: tuple[str, ...]
    without: tuple[str, ...] = ()
    unchanged: str = ""
    kernels: tuple[str, ...] = ()
    only: str = ""
    watched: bool = True


def objections(question: Question, begins: Callable[[str], None]) -> Iterator[Verdict]:
    """What the cases say that object; `begins` gets the name of each case. SAME if the host device sees no change."""
    only_gpus = bool(question.unchanged) and not _differs(question.ops, Path(question.unchanged))
    for case in cases(question):
        if case.name in question.without or (only_gpus and not case.name.startswith(_OF_GPUS)):
            continue
        if question.only not in ("", case.name):
            continue
        begins(case.name)
        try:
            case.judge()
        except CompileError as error:
            yield Verdict(STILLBORN, case.name, in_one_line(error))
        except Exception as error:  # what a defect leads to is not known beforehand
            yield Verdict(KILLED, case.name, in_one_line(error))
        if question.only:
            return
    if only_gpus:
        yield Verdict(SAME)


def cases(question: Question) -> Iterator[Stage]:
    """What `test OP...` and `test --check OP...` run, in the sample that the environment asks for."""
    memory, tests = HostMemory(), stages.suite_tests()
    memory.device.workers, memory.device.timeout = 1, _LAUNCH_SECONDS
    if question.kernels:
        tests.sort(key=lambda named: "subject" not in inspect.signature(named[1]).parameters)
    accurate = _kernels("accuracy", question)
    for sku in accurate[:_QUICK]:
        yield Stage(f"test smallest[{sku.symbol}]", partial(stages.smallest, sku, memory))
    for name, test in tests:
        if "subject" in inspect.signature(test).parameters:
            for subject in table.ops(name, _subjects(question.ops)):
                run = _with_text(test, None, stages.bound(test, subject=subject, memory=memory))
                yield Stage(f"test {name}[{subject.spec.op}]", run)
        else:
            yield from _of_kernels("test", name, test, question, memory)
    for order in stages.ORDERS:
        for sku in accurate:  # the smallest among others
            yield Stage(f"test {order} order[{sku.symbol}]", partial(stages.in_order, sku, memory, order))
    if not question.watched:
        return
    with check_mode() as watched:
        watched.device.timeout = 2 * _LAUNCH_SECONDS
        for name, test in tests:
            if {"sku", "memory"} <= set(inspect.signature(test).parameters):
                yield from _of_kernels("test --check", name, test, question, watched)


def _of_kernels(
    command: str, name: str, test: Callable[..., None], question: Question, memory: HostMemory
) -> Iterator[Stage]:
    for sku in _kernels(name, question):
        run = _with_text(test, sku, stages.bound(test, sku=sku, memory=memory))
        yield Stage(f"{command} {name}[{sku.symbol}]", run)


def _with_text(test: Callable[..., None], sku: KernelSku | None, run: Callable[[], None]) -> Callable[[], None]:
    """`run` with the text of device headers that the suite's `test` runs."""

    def test_with_text() -> None:
        with gpu_text(suite.text_for(test, sku)):
            run()

    return test_with_text


def _kernels(check: str, question: Question) -> list[KernelSku]:
    subjects = _subjects(question.ops)
    if not question.kernels:
        return table.kernels(check, subjects)
    named = [(subject, sku) for subject in subjects for sku in skus(subject) if sku.symbol in question.kernels]
    return [sku for subject, sku in named if table.runs_on(check, subject, sku)]


def _subjects(ops: Sequence[str]) -> list[Subject]:
    return [subject for subject in chosen.subjects() if subject.spec.op in ops]


def _differs(ops: Sequence[str], include: Path) -> bool:
    """Whether the host compiler sees another text of any kernel with the headers in `include`."""
    deciding = frozenset[str]().union(*(_deciding(path.read_text()) for path in _headers(include)))
    seen: set[Hashable] = set()
    for sku in _kernels("accuracy", Question(tuple(ops))):
        for problem in chosen.problems_of(sku.op, sku.symbol):
            for source in problem.plan.sources():
                names = deciding | _deciding(source.text)
                defines = frozenset(define for define in source.defines if define.partition("=")[0] in names)
                if (source.path, defines) not in seen and _sees(source, include):
                    return True
                seen.add((source.path, defines))
    return False


def _headers(include: Path) -> Iterator[Path]:
    return (path for folder in (INCLUDE, include, _HOST_HEADERS) for path in folder.rglob("*") if path.is_file())


@cache
def _deciding(text: str) -> frozenset[str]:
    """The words that decide which lines of `text` a compiler sees, and which files."""
    return frozenset(word for line in _DECIDES.findall(text) for word in _WORD.findall(line))


def _sees(source: KernelSource, include: Path) -> bool:
    """Whether the host compiler sees another text of `source` with the headers in `include`."""
    for target in (gpu_code.OLDEST, gpu_code.NEWEST):
        now = _preprocessed(source, target, INCLUDE)
        if now is None or now != _preprocessed(source, target, include):
            return True
    return False


def _preprocessed(source: KernelSource, target: str, include: Path) -> str | None:
    """What the host compiler sees of a kernel's text for `target`; None where that is an error."""
    included = [word for header in (VOCABULARY, GPU_TEXT) for word in ("-include", header)]
    flags = [f"-I{_HOST_HEADERS}", f"-I{include}", *included, gpu_text_define(target)]
    flags += [f"-D{define}" for define in source.defines]
    command = [*find_toolchain().command, "-E", "-P", "-std=c++17", *flags, "-xc++", "-"]
    done = subprocess.run(command, input=source.text, capture_output=True, text=True)
    return None if done.returncode else done.stdout


def main() -> None:
    question = Question(**json.load(sys.stdin))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print is no answer

    def say(**record: object) -> None:
        answers.write(json.dumps(record) + "\n")
        answers.flush()

    with memo():
        for verdict in objections(question, lambda case: say(case=case)):
            say(verdict=astuple(verdict))
    say(end=True)


if __name__ == "__main__":
    main()
