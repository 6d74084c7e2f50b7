"""Invariant: `soak` passes what is right, and finds wrong bits, leaks, and calls that do not survive."""

from __future__ import annotations

import ctypes
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.soak import shortage as shortages
from baracuda.checking.soak.slab import Places
from baracuda.checking.soak.usage import Usage, grown, usage
from baracuda.checking.trials.memory import memory_of
from baracuda.cli.main import main
from baracuda.codegen.spec.load import load_folder
from baracuda.generated import AlibiPlan
from baracuda.runtime import KernelInternal

ROOT = Path(__file__).parents[4]
Call = Callable[[int, dict[str, Any]], None]  # gets the number of a call and its arrays, after it has run


def soak(*options: str) -> tuple[int, dict[str, Any]]:
    given = ["soak", "alibi", "--device", "host", "--runs", "10", "--threads", "2", "--json", *options]
    result = CliRunner().invoke(main, given, catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[[Call], None]:
    """Has a function called after each run of a plan."""
    run, count = AlibiPlan.run, iter(range(10**6))

    def replace(call: Call) -> None:
        def wrapped(plan: Any, *given: Any, **arrays: Any) -> None:
            run(plan, *given, **arrays)
            call(next(count), arrays)

        monkeypatch.setattr(AlibiPlan, "run", wrapped)

    return replace


def flip(view: Any) -> None:
    ctypes.c_uint8.from_address(view.pointer).value ^= 1


def test_what_is_right_passes() -> None:
    code, found = soak()
    assert (code, found["wrong"]) == (0, [])
    assert found["runs"] == 10 * found["kernels"] and found["met"] == found["places"] > 0
    assert [row["phase"] for row in found["phases"]] == [1, 2, 3, 4, 5]
    code, found = soak("--minutes", "0.01")  # --runs wins
    assert code == 0 and found["runs"] == 10 * found["kernels"]


def test_a_time_ends_it() -> None:
    result = CliRunner().invoke(main, ["soak", "alibi", "--device", "host", "--minutes", "0.05", "--threads", "2"])
    assert result.exit_code == 0, result.output
    assert "0 findings" in result.output


def test_other_bits_are_found(after: Callable[[Call], None]) -> None:
    after(lambda number, arrays: flip(arrays["y"]) if number == 50 else None)
    code, found = soak()
    assert code == 1 and len(found["wrong"]) == 1
    assert "1 words have other bits than in the first run" in found["wrong"][0]


def test_other_bits_in_a_part_of_a_batch_are_found(after: Callable[[Call], None]) -> None:
    after(lambda number, arrays: flip(arrays["y"]) if arrays["y"].shape[0] == 1 else None)
    code, found = soak()
    assert code == 1 and found["wrong"]
    assert all("in parts of the batch: " in line for line in found["wrong"])


def test_leaks_are_found(after: Callable[[Call], None]) -> None:
    kept: list[Any] = []
    opened: list[int] = []

    def leak(number: int, arrays: dict[str, Any]) -> None:
        kept.append(np.ones(1 << 18))
        opened.append(os.open("/dev/null", os.O_RDONLY))

    after(leak)
    try:
        code, found = soak()
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert code == 1
    assert [line.partition(" grew")[0] for line in found["wrong"]] == ["host MiB", "malloc MiB", "descriptors"]


def test_a_run_that_fails_ends_it(after: Callable[[Call], None]) -> None:
    def fail(number: int, arrays: dict[str, Any]) -> None:
        if number == 50:
            raise KernelInternal("planted")

    after(fail)
    code, found = soak()
    assert code == 1 and "KernelInternal: planted" in found["wrong"][0]
    assert found["runs"] < 10 * found["kernels"]


def test_runs_that_find_no_memory_are_repeated(after: Callable[[Call], None]) -> None:
    def fail(number: int, arrays: dict[str, Any]) -> None:
        if number in (50, 51):
            raise MemoryError

    after(fail)
    code, found = soak()
    assert (code, found["wrong"], found["retried"]) == (0, [], 2)


def test_calls_that_do_not_survive_a_shortage_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, softmax = memory_of("host"), shortages.ops.softmax
    assert shortages.shortage(memory, np) == []
    monkeypatch.setattr(shortages.ops, "softmax", lambda x, softmax_axis: x)
    assert shortages.shortage(memory, np) == ["a call got more memory than there is"]
    results = iter([softmax, softmax, lambda x, softmax_axis: x])
    monkeypatch.setattr(shortages.ops, "softmax", lambda x, softmax_axis: next(results)(x, softmax_axis=softmax_axis))
    assert shortages.shortage(memory, np) == ["a call has other bits after one that found no memory"]


def test_grids_that_change_bits_are_found(after: Callable[[Call], None]) -> None:
    device: Any = memory_of("host").device  # type: ignore[attr-defined]
    after(lambda number, arrays: flip(arrays["y"]) if device.multiprocessors == 13 else None)
    code, found = soak()
    assert code == 1 and "has other bits with 13 multiprocessors" in found["wrong"][0]


def test_growth_has_its_limits() -> None:
    small = Usage(100 << 20, 50 << 20, 300_000, 5 << 20, 6, 3, 28)
    assert grown([small, small]) == []
    assert grown([small, Usage(131 << 20, 53 << 20, 309_000, 8 << 20, 5, 3, 28)]) == []
    more = Usage(133 << 20, 55 << 20, 311_000, 10 << 20, 7, 4, 29)
    assert [line.partition(" grew")[0] for line in grown([small, more])] == [
        "host MiB", "malloc MiB", "device MiB", "objects", "descriptors", "threads", "kernels"
    ]  # fmt: skip
    many, more = (replace(small, objects=1_000_000 * share // 100) for share in (100, 102))
    assert grown([many, more]) == []


def test_pages_that_python_keeps_do_not_count() -> None:
    memory = memory_of("host")
    before = usage(memory)
    objects: list[Any] = [bytes(400) for _ in range(400_000)]  # 160 MB
    full = usage(memory)
    objects[:] = objects[::100]  # some in each of the allocator's arenas
    after = usage(memory)
    assert full.host_bytes - before.host_bytes > 120 << 20
    assert abs(after.host_bytes - before.host_bytes) < 16 << 20
    assert len(objects) == 4000


def test_tensors_lie_apart_and_elsewhere_each_time() -> None:
    loaded = load_folder(ROOT / "specs")
    subject = Subject(loaded["alibi"], loaded, "baracuda.generated")
    places, rng = Places(Problem.of(subject, subject.spec.tests.cases[0], "f16"), "host"), random.Random(0)
    assert places.units == (1, 16, 256)  # this kernel serves tensors that are aligned to their elements only
    seen = set()
    for turn in range(120):
        offsets, end = places.draw(rng, unit := places.units[turn % 3])
        assert end <= places.most
        spans = sorted((offsets[name], offsets[name] + tensor.nbytes) for name, tensor in places.tensors.items())
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
        step = max(2, unit)
        assert all(offsets[name] % (2 * step) == step for name in places.tensors)
        seen.add(tuple(offsets.values()))
    assert len(seen) > 100
