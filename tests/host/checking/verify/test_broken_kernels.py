"""Kernels broken on purpose are caught: with each defect in the generated text, the spec's tests object."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from repository import ROOT, frozen_defects

from baracuda.checking.mutation.forked import Died, apart
from baracuda.checking.mutation.mutants.inline_headers import with_headers
from baracuda.checking.problems.cases import problems, skus
from baracuda.checking.problems.row import RowProblem as Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import HostMemory
from baracuda.checking.verify import checks, placements
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import KernelInternal, Registered

OP = "rms_norm_backward"
BLOCK, WARP, WIDE = "bf16_row256x1x4", "f32_row32x8x4", "f32_wide384x1x2"

# What is wrong; the edit that makes it so, in the kernel or in the headers it includes; a tile that it shows in.
DEFECTS = {
    "index off by one": (r"k \* CHUNK_STRIDE \+ lane \* VEC", "k * CHUNK_STRIDE + (lane + 1) * VEC", WARP),
    "chunks overlap": (r"k \* CHUNK_STRIDE \+ lane \* VEC", "k * (CHUNK_STRIDE - VEC) + lane * VEC", BLOCK),
    "barrier missing": (r"(= value\[i\];\n +}\n) +Tile::row_barrier\(\);", r"\1", BLOCK),
    "barrier missing, wide rows": (r"(= value\[i\];\n +}\n) +Tile::row_barrier\(\);", r"\1", WIDE),
    "scratch not alternated": (r"\[phase & 1\]\.of_warp", "[0].of_warp", BLOCK),
    "accumulator too narrow": (r"(\w+_) = (math::fma\([^;]+);", r"\1 = acc_t(T(\2));", BLOCK),
    "column sum too narrow": (r"(\w+_sum::part\(e\)) = (math::fma\([^;]+);", r"\1 = acc_t(T(\2));", BLOCK),
    "guard dropped": (r"if \(col >= at\.cols\) break;", "", WARP),
    "read guard dropped": (
        r"if \(col \+ i >= from && col \+ i < cols\)\n +(load_element.*;)\n.*else .*",
        r"\1",
        WARP,
    ),
    "write guard dropped": (r"if \(col \+ i >= from && col \+ i < cols\) row\[", "row[", WARP),
    "row offset of the wrong tensor": (
        r"\.data = O::of\(args\)\.row\(args\.space, row\);",
        ".data = O::of(args).data + (args.x_.row(args.space, row) - args.x_.data);",
        WARP,
    ),
    "column stride of the wrong tensor": (
        r"(packs<O>\(stored\)\[0\], .*)O::of\(args\)\.col_stride",
        r"\1args.x_.col_stride",
        BLOCK,
    ),
    "row stride ignored": (r"O::of\(args\)\.at\(args\.space, row\)", "O::of(args).data[row]", WARP),
    "rows skipped": (r"first \+= blocks \* Tile::ROWS", "first += (blocks + 1) * Tile::ROWS", WARP),
    "rows beyond the end": (r"const bool live = row < args\.space\.rows;", "const bool live = true;", WARP),
    "reads ahead of the wrong row": (r"fetch\(ahead, next\);", "fetch(ahead, row);", WARP),
    "copies not waited for": (r"cp_async_wait_all\(\);", "", WARP),
    "rows of a block left out": (r"group < GROUPS; \+\+group", "group + 1 < GROUPS; ++group", WARP),
    "joined from the wrong byte": (r"skew \* int\(sizeof\(T\)\)", "(skew ^ 1) * int(sizeof(T))", WARP),
    "the same pack twice": (r"origin \+ k \* chunk_stride \+ N,", "origin + k * chunk_stride,", WARP),
    "stored before the row": (r"col >= from && col \+ N <= cols", "col + N <= cols", WARP),
    "parts counted short": (r"p < parts; p \+= SLICES", "p + 1 < parts; p += SLICES", WARP),
    "reduction step skipped": (r"step > 0; step /= 2", "step > 1; step /= 2", WARP),
    "last warp left out": (r"other < COUNT; \+\+other", "other + 1 < COUNT; ++other", BLOCK),
    "mean over the wrong size": (r"\* space\.per_col", "/ (1 / space.per_col + 1)", WARP),
    "constant slightly wrong": (r"acc_t\(1\) / rms_", "acc_t(1.000001) / rms_", WARP),
    "strip finished too early": (r"\+ 1 == blocks", "+ 2 == blocks", WIDE),
    "gathered by the wrong row": (r"reduced\[index\] = ", "reduced[index ^ 1] = ", WIDE),
}


def _subject() -> Subject:
    loaded = load_folder(ROOT / "specs")
    return Subject(loaded[OP], loaded, "baracuda.generated")


def _problems(symbol: str, pattern: str, replacement: str) -> list[Problem]:
    """The problems of a SKU, on plans whose kernel has been edited."""
    subject = _subject()
    sku = next(s for s in skus(subject) if s.symbol == f"{OP}_{symbol}")
    found = []
    for problem in problems(subject, sku, limit=1 << 21):
        row: Any = problem.plan._row
        text, edits = re.subn(pattern, replacement, with_headers(row.source.text, row.source.path))
        assert edits, f"the defect {pattern!r} is no longer in the text; write it anew"
        source = replace(row.source, inline=text)
        problem.plan = type(problem.plan)(problem.descriptor, Registered(sku, source), problem.plan.layouts)
        found.append(problem)
    return found


def _complaint(found: list[Problem]) -> str:
    """What the accuracy and layout checks say, in each order of threads; "" if they are content."""
    memory = HostMemory()
    few = sorted(found, key=lambda p: p.size)
    for order in ("forward", "reverse", "random"):
        memory.device.order = order
        try:
            checks.check_accuracy(few, memory)
            for problem in [p for p in few if p.rows > 1][:3]:
                placements.check_layouts(problem, memory)
        except (AssertionError, KernelInternal) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            memory.device.order = "forward"
    return ""


def test_the_frozen_defects_are_there() -> None:
    assert set(frozen_defects()["kernels"]) == set(DEFECTS)


@pytest.mark.parametrize("defect", DEFECTS)
def test_defect_is_caught(defect: str) -> None:
    pattern, replacement, symbol = DEFECTS[defect]
    try:  # in a child: a broken kernel may write anywhere
        complaint = apart(lambda: _complaint(_problems(symbol, pattern, replacement)), seconds=120)
    except Died as death:
        complaint = str(death)
    assert complaint, f"nobody noticed: {defect}"
    assert not complaint.startswith("exited"), f"the check itself failed: {complaint}"


@pytest.mark.parametrize("symbol", [BLOCK, WARP, WIDE])
def test_unbroken_kernel_is_not_blamed(symbol: str) -> None:
    assert _complaint(_problems(symbol, r"\A", "// as it was\n")) == ""
