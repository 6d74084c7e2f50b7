"""Plots of state files for one op: error histograms, rooflines, speed by row length."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from baracuda.checking.compare.judge import Outcome
from baracuda.checking.compare.state import lines
from baracuda.runtime import Unsupported

_DECADES = 8  # errors below 1e-8 of their bound share a bar
_BARS = 4  # a decade


@dataclass(frozen=True)
class Measurements:
    """State files of `compare`, `bench` and `bench --sweep`."""

    accuracy: tuple[Path, ...] = ()
    speed: tuple[Path, ...] = ()
    sweeps: tuple[Path, ...] = ()

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Outcomes for the latest sources of an op."""
        records = lines(self.accuracy)
        latest = {outcome.op: texts for _, texts, outcome in records}
        return [outcome for _, texts, outcome in records if texts == latest[outcome.op]]

    def pictures(self, op: str) -> dict[str, bytes]:
        """SVG by title, without those that were not measured."""
        pictures = {}
        if outcomes := [o for o in self.outcomes if o.op == op and o.outputs]:
            pictures["Errors as a part of their bound"] = _histograms(outcomes)
        for title, paths, sweep in (("Roofline", self.speed, False), ("By the length of rows", self.sweeps, True)):
            if paths and (svg := _speed(op, paths, sweep)):
                pictures[title] = svg
        return pictures


def _speed(op: str, paths: Iterable[Path], sweep: bool) -> bytes | None:
    """The plot of `bench --plot`; None if nothing of the op was timed."""
    from baracuda.benchmarks.plot import draw
    from baracuda.benchmarks.state import latest

    measurements = [measurement for measurement in latest(paths) if measurement.op == op]
    if not any(measurement.us is not None for measurement in measurements):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.svg"
        draw(measurements, path, sweep=sweep)
        return path.read_bytes()


def _histograms(outcomes: Sequence[Outcome]) -> bytes:
    """How many problems have their worst error in each part of the bound, per element type and output."""
    elements = list(dict.fromkeys(o.element for o in sorted(outcomes, key=lambda o: o.element)))
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        1, len(elements), figsize=(3.2 * len(elements), 3), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, element in zip(axes[0], elements, strict=True):
        _histogram(axis, [o for o in outcomes if o.element == element])
        axis.set(title=element, xlabel="error / bound")
    axes[0][0].set(ylabel="problems")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return buffer.getvalue()


def _histogram(axis: Any, outcomes: Sequence[Outcome]) -> None:
    bars = [10 ** (k / _BARS - _DECADES) for k in range(_DECADES * _BARS + 2)]
    for output in dict.fromkeys(name for o in outcomes for name in o.outputs):
        ratios = [o.outputs[output].ratio for o in outcomes if output in o.outputs]
        clipped = [min(max(r, bars[0]), bars[-1]) for r in ratios if math.isfinite(r)]
        axis.hist(clipped, bins=bars, histtype="step", label=output)
    axis.axvline(1, color="k", lw=1)
    axis.set_xscale("log")
    axis.grid(True, alpha=0.25)
    axis.legend(fontsize=7, loc="upper left")


def _pyplot() -> Any:
    try:
        import_module("matplotlib").use("Agg")
        pyplot = import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        raise Unsupported("matplotlib is not installed; get it with 'pip install baracuda-gen[docs]'") from None
    pyplot.rcParams["svg.hashsalt"] = "baracuda"  # else ids change with every run
    return pyplot
