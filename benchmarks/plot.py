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
    timed = [one for one in measured if one.us is not None]
    if path.suffix not in (".svg", ".png"):
        raise InvalidProblem(f"--plot writes .svg or .png, got {path.name!r}")
    if not timed:
        raise InvalidProblem("nothing was timed that --plot could show")
    try:
        import_module("matplotlib").use("Agg")
        pyplot = import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        raise Unsupported("matplotlib is not installed; get it with 'pip install baracuda-gen[bench]'") from None
    shown = [[one for one in timed if one.op == op] for op in dict.fromkeys(o.op for o in timed)] if sweep else [timed]
    size = 9, 4 * len(shown) if sweep else 5.5
    figure, places = pyplot.subplots(len(shown), figsize=size, squeeze=False, sharex=True, layout="constrained")
    for axes, some in zip(places[:, 0], shown, strict=True):
        (_sweep if sweep else _roofline)(axes, some)
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
    for number, op in enumerate(dict.fromkeys(one.op for one in timed)):
        colour = f"C{number % 10}"
        for peer, marker in ((OURS, "o"), ("best peer", "x")):
            points = [(_intensity(one), _tera(one)) for one in _chosen(timed, op, peer)]
            if points:
                axes.plot(*zip(*points, strict=True), marker, color=colour, ms=5, label=f"{op}, {peer}")
    told = "flops a byte; an op that counts none is drawn with one for each element moved"
    axes.set(xscale="log", yscale="log", xlabel=told, ylabel="TFLOP/s")


def _chosen(timed: Sequence[Measured], op: str, peer: str) -> list[Measured]:
    """Our points of an op, or those of the fastest peer in each case."""
    if peer == OURS:
        return [one for one in timed if one.op == op and one.peer == OURS]
    best: dict[str, Measured] = {}
    for one in timed:
        if one.op == op and one.peer != OURS and (one.us or 0) < (best.get(one.case, one).us or 0) + 1e-9:
            best[one.case] = one
    return list(best.values())


def _work(one: Measured) -> float:
    return float(one.flops or (one.read + one.written) / {"f64": 8, "f32": 4}.get(one.element, 2))


def _intensity(one: Measured) -> float:
    return _work(one) / max(1, one.read + one.written)


def _tera(one: Measured) -> float:
    return _work(one) / (one.us or 1.0) / 1e6


def _sweep(axes: Any, timed: Sequence[Measured]) -> None:
    """GB/s of an op by row length, with one line per contestant for aligned rows and one for others."""
    for number, peer in enumerate(dict.fromkeys(one.peer for one in timed)):
        for whole, style in ((True, "o-"), (False, "x--")):
            points = sorted((n, rate_of(one)) for one in timed if one.peer == peer
                            for n in [columns(one.case)] if n is not None and _is_whole(one, n) == whole)  # fmt: skip
            if points:
                label = f"{peer}, {'whole packs' if whole else 'others'}"
                axes.plot(*zip(*points, strict=True), style, color=f"C{number % 10}", ms=3, lw=1, label=label)
    if ceiling := timed[-1].ceilings.get("copy"):
        axes.axhline(ceiling, color="k", lw=1, label="copy")
    axes.set(title=timed[0].op, xlabel="elements of a row", ylabel="GB/s", ylim=(0, None))
    axes.set_xscale("log", base=2)


def _is_whole(one: Measured, length: int) -> bool:
    """Whether a row is a whole number of 16-byte packs."""
    return length * ElementKind(one.element).row.bytes % 16 == 0
