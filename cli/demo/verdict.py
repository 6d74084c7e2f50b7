"""The demo's verdict: errors against the oracle, in blocks of rows where rows are independent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from baracuda.codegen.project import Project

from ..terminal import Row, progress
from .activations import Arrays
from .rms_norm import Pass

if TYPE_CHECKING:
    from baracuda.checking.oracles.numerics import Accuracy

BLOCK_ROWS = 256  # of the oracle at a time, so that its temporaries stay in the CPU's cache


def judge(run: Pass, project: Project) -> list[tuple[Row, bool]]:
    """One row per output, and whether all its elements are within their bounds."""
    from baracuda.checking.oracles.numerics import report

    values = {field.name: getattr(run.plan.descriptor, field.name) for field in fields(run.plan.descriptor)}
    element = values.pop("element")
    rows, cols = values["input_shape"]

    def block(start: int) -> dict[str, Accuracy]:
        part = slice(start, min(start + step, rows))
        values_here = {**values, "input_shape": (part.stop - part.start, cols)}
        inputs, outputs = _cut(run, run.inputs, part), _cut(run, run.outputs, part)
        return report(project.loaded[run.plan.OP], project.loaded, inputs, outputs, values_here, element)

    step = max(1, rows) if _sums_rows(run) else BLOCK_ROWS
    starts = range(0, rows, step)
    with (
        progress(f"judging {run.plan.OP}", len(starts)) as advance,
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
    ):
        accuracies = []
        for accuracy in pool.map(block, starts):
            accuracies.append(accuracy)
            advance()
    return [_verdict(run.plan.OP, name, (f[name] for f in accuracies)) for name in run.outputs]


def _sums_rows(run: Pass) -> bool:
    return any(a.written and a.over == "col" for a in run.plan.ARGUMENTS.values())


def _cut(run: Pass, arrays: Arrays, part: slice) -> Arrays:
    return {n: a if run.plan.ARGUMENTS[n].over == "col" else a[part] for n, a in arrays.items()}


def _verdict(op: str, output: str, blocks: Iterable[Accuracy]) -> tuple[Row, bool]:
    accuracies = list(blocks)
    closest: Any = max(accuracies, key=lambda a: a.worst_ratio)
    row = {
        "op": op,
        "output": output,
        "largest error": max(a.max_error for a in accuracies),
        "error / bound": closest.worst_ratio,
        "error there": closest.worst_ratio * closest.bound_there,
        "bound there": closest.bound_there,
        "verdict": "within" if closest.worst_ratio <= 1 else "BEYOND",
    }
    return row, closest.worst_ratio <= 1
