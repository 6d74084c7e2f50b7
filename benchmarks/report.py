"""Reports: one row per case with our time, its share of the ceiling and the best peer; CSV; a page."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from .case import Traffic
from .contest import OURS, TOLERANCE, Measured

Row = dict[str, object]
_INTENSE = 64  # flops a byte, from which arithmetic is what bounds a kernel
_PRODUCTS = ("bf16", "f16")  # whose ceiling is the measured matrix product
_COLUMNS = (
    "op", "case", "element", "peer", "kernel", "us", "low", "high", "samples", "how", "read", "written", "flops",
    "error", "problem",
)  # fmt: skip


def rows_of(measured: Iterable[Measured]) -> dict[str, list[Row]]:
    """One row per case, by op."""
    cases: dict[tuple[str, str], list[Measured]] = {}
    for result in measured:
        cases.setdefault((result.op, result.case), []).append(result)
    rows: dict[str, list[Row]] = {}
    for (op, case), contestants in cases.items():
        rows.setdefault(op, []).append(_row(case, contestants))
    return rows


def _row(case: str, contestants: Sequence[Measured]) -> Row:
    ours = next((m for m in contestants if m.peer == OURS), None)
    timed = [m for m in contestants if m.peer != OURS and m.us is not None]
    best = min(timed, key=lambda m: m.us or 0.0, default=None)
    us = ours.us if ours else None
    ratio = best.us / us if best is not None and best.us and us else None
    return {
        "case": case,
        "us": us,
        "spread": _spread(ours) if ours else None,
        "rate": rate(ours) if ours else None,
        "ceiling": share(ours) if ours else None,
        "best peer": best.peer if best else None,
        "peer us": best.us if best else None,
        "peer rate": rate(best) if best else None,
        "ratio": f"{ratio:.2f}x" if ratio else None,
    }


def _spread(result: Measured) -> str | None:
    """The interquartile range."""
    if not result.us or result.low is None or result.high is None:
        return None
    return f"{(result.high - result.low) / result.us:.1%}"


def is_intense(result: Measured) -> bool:
    """Whether it is compute-bound."""
    return bool(result.flops) and (result.flops or 0) > _INTENSE * (result.read + result.written)


def rate(result: Measured) -> str | None:
    """GB/s or TFLOP/s, whichever is the limit."""
    value = rate_of(result)
    if value is None:
        return None
    return f"{value:.{0 if value >= 100 else 1}f} {'TFLOP/s' if is_intense(result) else 'GB/s'}"


def rate_of(result: Measured) -> float | None:
    """The number of `rate`."""
    if result.us is None:
        return None
    if is_intense(result):
        return (result.flops or 0) / result.us / 1e6
    return (result.read + result.written) / result.us / 1e3


def share(result: Measured) -> str | None:
    """The rate as a share of the ceiling measured in the same run, and which ceiling."""
    kind = "matmul" if is_intense(result) else Traffic(result.read, result.written).kind
    value, ceiling = rate_of(result), result.ceilings.get(kind)
    if value is None or ceiling is None or (kind == "matmul" and result.element not in _PRODUCTS):
        return None
    return f"{value / ceiling:.0%} of {kind}"


def problems_of(measured: Iterable[Measured]) -> list[str]:
    """One line per contestant that was not timed, or timed differently."""
    return [f"{m.op} {m.case}: {m.peer} {m.problem}" for m in measured if m.problem]


def write_csv(measured: Iterable[Measured], path: Path) -> None:
    """Write one line per contestant and case."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        writer.writerows([getattr(result, name) for name in _COLUMNS] for result in measured)


def markdown(measured: Sequence[Measured], command: str, title: str = "Benchmarks", picture: str = "") -> str:
    """The page: machine and method, one table per op, and what could not be timed."""
    parts = [f"# {title}\n", _about(measured), f"```sh\n{command}\n```\n"]
    parts += [f"![the same as a picture]({picture})\n"] * bool(picture)
    for op, rows in rows_of(measured).items():
        parts += [f"## {op}\n", _table(rows)]
    if problems := problems_of(measured):
        parts += ["## Not timed, or timed differently\n", *(f"- {line}" for line in problems), ""]
    return "\n".join(parts)


def _about(measured: Sequence[Measured]) -> str:
    """Devices, versions and ceilings; no dates, so that the page changes with its figures only."""
    facts = measured[0].facts if measured else {}
    devices = " and ".join(dict.fromkeys(m.facts.get("device", "?") for m in measured)) or "nothing"
    versions = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "device")
    tops = measured[0].ceilings if measured else {}
    ceilings = ", ".join(f"{n} {v:.0f} {'TFLOP/s' if n == 'matmul' else 'GB/s'}" for n, v in tops.items())
    allowed = ", ".join(f"{value:g} in {name}" for name, value in TOLERANCE.items())
    return (
        f"Device time on {devices} ({versions}): medians, with the interquartile range as spread; see"
        f" [benchmarking](benchmarking.md). Ceilings of the first run: {ceilings}. Peers agree with our results within"
        f" a relative error of {allowed}. A ratio above 1 means that ours is faster than the fastest peer.\n"
    )


def _table(rows: Sequence[Row]) -> str:
    names = list(rows[0])
    head = [names, ["---" if n in ("case", "best peer") else "---:" for n in names]]
    body = [[_cell(value) for value in row.values()] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in (*head, *body))


def _cell(value: object) -> str:
    text = "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")
