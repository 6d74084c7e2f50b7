"""Plots: a roofline, or for sweeps the share of the copy by row length."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from baracuda.runtime import ElementKind, InvalidProblem, Unsupported

from .case import columns
from .contest import OURS, Measured
from .report import rate_of


def draw(measured: Sequence[Measured], path: Path, *, sweep: bool) -> None:
    """Write an SVG or PNG, by the file's suffix."""
    timed = [result for result in measured if result.us is not None]
    if path.suffix not in (".svg", ".png"):
        raise InvalidProblem(f"--plot writes .svg or .png, got {path.name!r}")
    if not timed:
        raise InvalidProblem("nothing was timed that --plot could show")
    try:
        import_module("matplotlib").use("Agg")
        pyplot = import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        raise Unsupported("matplotlib is not installed; get it with 'pip install baracuda-gen[bench]'") from None
    groups = [[m for m in timed if m.op == op] for op in dict.fromkeys(o.op for o in timed)] if sweep else [timed]
    size = 9, 4 * len(groups) if sweep else 5.5
    figure, places = pyplot.subplots(len(groups), figsize=size, squeeze=False, sharex=True, layout="constrained")
    for axes, group in zip(places[:, 0], groups, strict=True):
        (_sweep if sweep else _roofline)(axes, group)
        axes.grid(True, which="both", alpha=0.25)
        axes.legend(fontsize=7, ncols=2)
    figure.suptitle(timed[0].facts.get("device", ""))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _roofline(axes: Any, timed: Sequence[Measured]) -> None:
    """Speed by arithmetic intensity, with the ceilings of copy and matmul."""
    tops = timed[-1].ceilings
    if "copy" in tops and "matmul" in tops:
        ridge = tops["matmul"] * 1e3 / tops["copy"]
        reach = (2.0**-4, ridge, 2.0**14)
        axes.plot(reach, [min(tops["matmul"], x * tops["copy"] / 1e3) for x in reach], "k-", lw=1, label="ceilings")
    for number, op in enumerate(dict.fromkeys(result.op for result in timed)):
        colour = f"C{number % 10}"
        for peer, marker in ((OURS, "o"), ("best peer", "x")):
            points = [(_intensity(result), _tera(result)) for result in _chosen(timed, op, peer)]
            if points:
                axes.plot(*zip(*points, strict=True), marker, color=colour, ms=5, label=f"{op}, {peer}")
    xlabel = "flops a byte; an op that counts none is drawn with one for each element moved"
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="TFLOP/s")


def _chosen(timed: Sequence[Measured], op: str, peer: str) -> list[Measured]:
    """Our points of an op, or those of the fastest peer in each case."""
    if peer == OURS:
        return [result for result in timed if result.op == op and result.peer == OURS]
    best: dict[str, Measured] = {}
    for m in timed:
        if m.op == op and m.peer != OURS and (m.us or 0) < (best.get(m.case, m).us or 0) + 1e-9:
            best[m.case] = m
    return list(best.values())


def _work(result: Measured) -> float:
    return float(result.flops or (result.read + result.written) / {"f64": 8, "f32": 4}.get(result.element, 2))


def _intensity(result: Measured) -> float:
    return _work(result) / max(1, result.read + result.written)


def _tera(result: Measured) -> float:
    return _work(result) / (result.us or 1.0) / 1e6


def _sweep(axes: Any, timed: Sequence[Measured]) -> None:
    """GB/s of an op by row length, with one line per contestant for aligned rows and one for others."""
    for number, peer in enumerate(dict.fromkeys(result.peer for result in timed)):
        for is_whole, style in ((True, "o-"), (False, "x--")):
            points = sorted((n, rate_of(m)) for m in timed if m.peer == peer
                            for n in [columns(m.case)] if n is not None and _is_whole(m, n) == is_whole)  # fmt: skip
            if points:
                label = f"{peer}, {'whole packs' if is_whole else 'others'}"
                axes.plot(*zip(*points, strict=True), style, color=f"C{number % 10}", ms=3, lw=1, label=label)
    if ceiling := timed[-1].ceilings.get("copy"):
        axes.axhline(ceiling, color="k", lw=1, label="copy")
    axes.set(title=timed[0].op, xlabel="elements of a row", ylabel="GB/s", ylim=(0, None))
    axes.set_xscale("log", base=2)


def _is_whole(result: Measured, length: int) -> bool:
    """Whether a row is a whole number of 16-byte packs."""
    return length * ElementKind(result.element).row.bytes % 16 == 0
