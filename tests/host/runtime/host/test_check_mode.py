"""Plans on the host device in check mode: whose memory is whose, and what is said of a kernel that errs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from repository import ROOT

from baracuda.checking.mutation.mutants.inline_headers import with_headers
from baracuda.checking.problems.row import RowProblem as Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.arrange import arrange
from baracuda.checking.trials.memory import HostMemory, check_mode
from baracuda.checking.verify import checks, placements
from baracuda.checking.verify.accesses import run_watched
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import KernelInternal, Registered
from baracuda.runtime.compile.cubin import INCLUDE
from baracuda.runtime.device import WatchedArray
from baracuda.runtime.host import HostDevice


@pytest.fixture
def memory() -> Iterator[HostMemory]:
    with check_mode() as watched:
        yield watched


def _problem(op: str, shape: list[int], element: str = "f32", *edits: tuple[str, str]) -> Problem:
    """A problem whose kernel's text, headers included, has been edited, each edit being made at least once."""
    loaded = load_folder(ROOT / "specs")
    problem = Problem(
        Subject(loaded[op], loaded, "baracuda.generated"),
        {"input_shape": shape, "norm_axes_mask": 2, "has_gamma": True},
        element,
    )
    if edits:
        row: Any = problem.plan._row
        text = with_headers(row.source.text, row.source.path)
        for pattern, replacement in edits:
            text, count = re.subn(pattern, replacement, text)
            assert count, f"{pattern!r} is no longer in the text; write the edit anew"
        source = replace(row.source, inline=text)
        problem.plan = type(problem.plan)(problem.descriptor, Registered(row.sku, source), problem.plan.layouts)
    return problem


def _finding(problem: Problem, memory: HostMemory, pattern: str = "contiguous") -> str:
    with pytest.raises(KernelInternal) as caught:
        run_watched(problem, memory, dict.fromkeys(problem.arguments, pattern), {})
    return str(caught.value)


def _line_of_the_walk(text: str) -> int:
    lines = (INCLUDE / "baracuda" / "row" / "walk.cuh").read_text().splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if text in line)
    return number


def test_row_beyond_the_end(memory: HostMemory) -> None:
    """The finding names the tensor, the byte, the thread and the header's line."""
    edit = (r"if \(row >= args\.space\.rows\) return values;", "")
    said = _finding(_problem("rms_norm_backward", [1, 64], "f32", edit), memory).splitlines()
    line = _line_of_the_walk("value_of_row<O>(values) = O::of(args).at(args.space, row)")
    assert said[1].startswith(
        "block (0,0,0) thread (0,0,0): read of 4 bytes out of bounds, 252 bytes past the end of 'rms' of 4 bytes "
        f"at walk.cuh:{line} <- operands.cuh:"
    )


@pytest.mark.parametrize(("edit", "said"), [("at.index < 2", "before"), ("at.index > 0", "past the end of")])
def test_packs_around_a_dense_row(memory: HostMemory, edit: str, said: str) -> None:
    """The first row and the last have no neighbours to be read with them."""
    problem = _problem("rms_norm", [3, 65], "f32", (r"O::of\(args\)\.overreadable\(at\.index\)", edit))
    with pytest.raises(KernelInternal, match=rf"read of \d+ bytes out of bounds, \d+ bytes {said} .*'x'"):
        run_watched(problem, memory, dict.fromkeys(problem.arguments, "shifted"), {})


def test_packs_around_a_row_in_place(memory: HostMemory) -> None:
    """What a row discards of the packs around it may be stored by others; what it uses may not."""
    placements.check_in_place(_problem("rms_norm", [5, 2049]), memory)
    store = "if (!threadIdx.x) *args.y_.row(args.space, 2) = T(0);"
    late = (r"(const bool live = row < args\.space\.rows;)", rf"\1 {store}")
    with pytest.raises(KernelInternal, match=r"race .*'y' byte 16392 "):
        placements.check_in_place(_problem("rms_norm", [5, 2049], "f32", late), memory)


def test_output_that_is_not_written(memory: HostMemory) -> None:
    """Of an output that keeps old elements, the finding says how many and the first."""
    edit = (r"write<LAYOUT>\(packs<O>\(stored\)", "if (at.index != 1) write<LAYOUT>(packs<O>(stored)")
    said = _finding(_problem("rms_norm", [3, 64], "f32", edit), memory)
    assert said == "64 of 192 elements of 'y' never written, the first is element 64"


def test_workspace_that_is_read_before_it_is_written(memory: HostMemory) -> None:
    """What a launch leaves unwritten in the workspace is not there for the next one."""
    edit = (r"start \+ place < columns\.end", "start + place < columns.end && place != 5")
    problem = _problem("rms_norm_backward", [3, 64], "f32", edit)
    finding = _finding(problem, memory)
    said = re.search(r"read of 'workspace' byte (\d+), which was never written at row.cuh:\d+", finding)
    assert said
    assert int(said[1]) % 128 == 20


def test_write_to_an_input(memory: HostMemory) -> None:
    """An input is not written, even with what it holds."""
    other = r"(T*)row_of<typename Program::x_tensor>(at).data"
    edit = (r"(packs<O>\(stored\)\[0\], )row_of<O>\(at\.to\)\.data", rf"\1{other}")
    problem = _problem("rms_norm", [3, 64], "f32", edit)
    assert re.search(
        r"write to the input 'x' byte 0 at pack.cuh:\d+ <- row.cuh:\d+ <- walk.cuh:", _finding(problem, memory)
    )


def test_between_elements(memory: HostMemory) -> None:
    """What lies between a strided tensor's elements is not the tensor."""
    edit = (r"(packs<O>\(stored\)\[0\], .*)O::of\(args\)\.col_stride", r"\1args.x_.col_stride")
    problem = _problem("rms_norm", [3, 64], "f32", edit)
    arrays = problem.draw()
    with pytest.raises(KernelInternal, match=r"'y' of \d+ bytes, between its elements"):
        arrange(problem, arrays, memory, patterns={"x": "shifted", "y": "step"}).run()


def test_bound_launches_are_watched(memory: HostMemory) -> None:
    """`bind` checks what its launches do each time they run."""
    edit = (r"write<LAYOUT>\(packs<O>\(stored\)", "if (at.index != 1) write<LAYOUT>(packs<O>(stored)")
    problem = _problem("rms_norm", [3, 64], "f32", edit)
    arranged = arrange(problem, problem.draw(), memory)
    given: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
    bound = problem.plan.bind(**given)
    for _ in range(2):
        with pytest.raises(KernelInternal, match="64 of 192 elements of 'y' never written"):
            bound()


def test_the_device_is_usable_after_findings(memory: HostMemory) -> None:
    """A finding leaves nothing behind: the unbroken kernel runs and is right."""
    edit = (r"const bool live = row < args\.space\.rows;", "const bool live = true;")
    for _ in range(3):
        _finding(_problem("rms_norm_backward", [1, 64], "f32", edit), memory)
        checks.check_accuracy([_problem("rms_norm_backward", [3, 64])], memory)


def test_interleaved_arrays() -> None:
    """Arrays whose elements alternate in memory are told apart, and one array in two roles is one."""
    device = HostDevice(check=True)
    both = device.empty(32, np.float32)
    halves = [
        WatchedArray(n, r, both.ctypes.data + 4 * i, (16,), (2,), 4)
        for i, (n, r) in enumerate([("a", "in"), ("b", "out")])
    ]
    assert device.watch is not None
    with pytest.raises(KernelInternal, match="16 of 16 elements of 'b' never written"), device.watch(halves):
        pass
    same = [WatchedArray(n, r, both.ctypes.data, (32,), (1,), 4) for n, r in [("a", "in"), ("b", "out")]]
    with pytest.raises(KernelInternal, match="32 of 32 elements of 'b'"), device.watch(same):
        pass


def test_overflow_of_an_index(memory: HostMemory) -> None:
    """A signed integer that overflows is undefined in C++, whatever it does on the machine at hand."""
    edit = (r"(rms_mean_ = acc_t\(0\);)", r"\1 rms_mean_ = 2147483647 + int(args.space.row_axes);")
    problem = _problem("rms_norm", [3, 64], "f32", edit)
    assert re.search(r"overflow of 'int' at row.cu.jinja:\d+", _finding(problem, memory))


def test_local_arrays_have_bounds(memory: HostMemory) -> None:
    """An element beyond the last of a pack, which ends its struct, is outside."""
    problem = _problem("rms_norm", [3, 65], "f32", (r"(packs<ElementOutput>.*lane\[e\.i)\]", r"\1 + 1]"))
    assert re.search(r"index 4 is outside '\S+ ?\[4\]' at operands.cuh:\d+", _finding(problem, memory, "step"))
