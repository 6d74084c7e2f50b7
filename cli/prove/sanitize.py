"""`sanitize`: compute-sanitizer on the smallest covering case of every SKU; resumable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import click

from baracuda.checking.verify import environment
from baracuda.runtime import InvalidProblem

from ..terminal import progress, show_json, show_table

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_FINDING = 99  # what compute-sanitizer is told to exit with when it has found something


def sanitize(
    ops: Sequence[str],
    specs: Path | None,
    package: str,
    tools: str,
    shard: str,
    state: Path | None,
    jobs: int,
    as_json: bool,
) -> bool:
    """Run each op and element under every tool that `state` lacks; true if all are clean.

    `shard` is "I/N", the I-th of N shares. Each clean (tool, op, element) is appended to `state`, a text file with one
    line each, so that an interrupted run resumes.
    """
    if shutil.which("compute-sanitizer") is None:
        raise InvalidProblem("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    work = _part(_work(specs, ops, tools), shard)
    done = set(state.read_text().splitlines()) if state is not None and state.exists() else set()
    left = [run for run in work if " ".join(run) not in done]
    rows = []
    with ThreadPoolExecutor(jobs) as pool, progress("compute-sanitizer", len(left)) as step:
        futures = {pool.submit(_watch, *run, specs, package): run for run in left}
        for future in as_completed(futures):
            tool, op, element = run = futures[future]
            ran, finding = future.result()
            rows.append({"tool": tool, "op": op, "element": element, "cases": ran, "finding": finding or "none"})
            if not finding and state is not None:
                with state.open("a") as file:
                    file.write(" ".join(run) + "\n")
            step()
    rows.sort(key=lambda row: (row["finding"] == "none", str(row["op"]), str(row["tool"])))
    findings, before = sum(row["finding"] != "none" for row in rows), len(work) - len(left)
    if as_json:
        show_json({"runs": rows, "done_before": before, "findings": findings})
    else:
        show_table(rows)
        click.echo(f"{len(rows)} runs, {before} done before, {findings} with findings")
    return not findings


def _work(specs: Path | None, ops: Sequence[str], tools: str) -> list[tuple[str, str, str]]:
    chosen = tools.split(",")
    if unknown := [t for t in chosen if t not in TOOLS]:
        raise InvalidProblem(f"unknown tool {unknown[0]!r}; known: {', '.join(TOOLS)}")
    from baracuda.checking.verify.chosen import HERE
    from baracuda.codegen.spec.load import load_folder

    loaded = load_folder(specs or HERE, ops)
    if missing := [op for op in ops if op not in loaded]:
        raise InvalidProblem(f"no op {missing[0]!r}; known: {', '.join(loaded)}")
    return [(tool, op, element) for op in (ops or loaded) for element in loaded[op].spec.dtypes for tool in chosen]


def _part(work: list[tuple[str, str, str]], shard: str) -> list[tuple[str, str, str]]:
    index, _, count = shard.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise InvalidProblem(f"--shard is I/N with 1 <= I <= N, got {shard!r}")
    return work[int(index) - 1 :: int(count)]


def _watch(tool: str, op: str, element: str, specs: Path | None, package: str) -> tuple[int, str]:
    """The number of cases that ran, and the first finding or failure in one line."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(_FINDING), "--print-limit", "3"]
    command += [sys.executable, "-m", "baracuda.checking.verify.smallest", op, element]
    variables = {**os.environ, **environment(specs, package, [op], "cuda")}
    result = subprocess.run(command, env=variables, capture_output=True, text=True)
    lines = result.stdout.splitlines() + result.stderr.splitlines()
    ran = sum(line.startswith(f"{op}_") for line in lines)
    if result.returncode == 0:
        return ran, "" if ran else "nothing ran"
    messages = [line.removeprefix("=========").strip() for line in lines if line.startswith("=========")]
    telling = [line for line in messages if line and not line.startswith("COMPUTE-SANITIZER")]
    return ran, (telling or lines or ["it failed silently"])[0]
