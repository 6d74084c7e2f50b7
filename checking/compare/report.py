"""Reports: one row per op, element type, architecture and output, every failure, and both as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from .judge import Measured, Outcome, Settings
from .state import Key, lines

Row = dict[str, object]
_LOOSE = 0.05  # of a bound; what uses less of it says little


def rows_of(outcomes: Iterable[Outcome], *, all_kernels: bool = False) -> list[Row]:
    """The worst of each output, for each element type and architecture, or of `all_kernels` together.

    The last column is the problem with the worst error in units of its bound.
    """
    groups: dict[tuple[str, ...], list[tuple[Outcome, Measured]]] = {}
    for outcome in outcomes:
        for output, measured in outcome.outputs.items():
            kernels = () if all_kernels else (outcome.element, outcome.arch)
            groups.setdefault((outcome.op, *kernels, output), []).append((outcome, measured))
    return [_row(key[-1], pairs) for key, pairs in sorted(groups.items())]


def _row(output: str, pairs: Sequence[tuple[Outcome, Measured]]) -> Row:
    worst, measured = max(pairs, key=lambda pair: (pair[1].ratio, -pair[0].index))
    return {
        "op": worst.op,
        "element": worst.element,
        "arch": worst.arch,
        "output": output,
        "problems": len(pairs),
        "bound": f"{measured.c1:g} u |y| + {measured.c2:g} E",
        "worst / bound": measured.ratio,
        "worst error": max(m.error for _, m in pairs),
        "relative": median(m.relative for _, m in pairs),  # the worst is of problems whose results are all but 0
        "problem": worst.index,
    }


def loose_of(rows: Iterable[Row]) -> list[str]:
    """Outputs with errors that all lie far within their bounds."""
    return [
        f"`{row['op']}` {row['output']} in {row['element']} for {row['arch']}"
        for row in rows
        if isinstance(ratio := row["worst / bound"], float) and 0 < ratio < _LOOSE
    ]


def failures_of(
    outcomes: Iterable[Outcome], settings: Settings, options: str = "", bundles: Mapping[Key, str] | None = None
) -> list[Row]:
    """The failures and the commands that rerun them: from the files of `bundles`, or drawn again."""
    bundles = bundles or {}
    return [
        {
            "failure": f"{outcome.op} {outcome.index}",
            "kernel": outcome.kernel,
            "descriptor": outcome.descriptor,
            "numbers": outcome.style,
            "layouts": outcome.layouts,
            "message": outcome.failure,
            "again": bundles.get((outcome.op, outcome.index)) or replay(outcome, settings, options),
        }
        for outcome in sorted(outcomes, key=lambda o: (o.op, o.index))
        if outcome.failure
    ]


def replay(outcome: Outcome, settings: Settings, options: str = "") -> str:
    """The command that judges one problem again."""
    flags = f"--seed {settings.seed} --device {settings.device} --limit {settings.limit} --repeats {settings.repeats}"
    searched = f" --search {settings.search}" if settings.search else ""
    return f"baracuda-gen compare {outcome.op} --only {outcome.index} {flags}{searched}{options}"


def markdown(paths: Sequence[Path]) -> str:
    """A page made from state files; for each op, the latest sources count. Of a search, a row is of all kernels."""
    records = lines(paths)
    latest = {o.op: against for _, against, o in records}
    judged = {(o.op, o.index, settings): o for settings, against, o in records if against == latest[o.op]}
    steps = max((settings.search for *_, settings in judged), default=0)
    parts = [_HEAD, _SEARCHED.format(steps)] if steps else [_HEAD]
    rows = rows_of(judged.values(), all_kernels=steps > 0)
    parts.append(_table(rows) if judged else "Nothing was judged.\n")
    if loose := loose_of(rows) if steps else []:
        parts.append(f"## Loose bounds\n\nOf which the search found less than {_LOOSE} in use: {', '.join(loose)}.\n")
    failed = [row for (_, _, s), o in sorted(judged.items(), key=_place) for row in failures_of([o], s)]
    if failed:
        parts.append("## Failures\n")
        parts += [f"- {r['failure']}: {_cell(r['message'])}\n  `{r['again']}`\n" for r in failed]
    by_seed = ", ".join(f"{seed} on {device}" for seed, device in sorted({(k[2].seed, k[2].device) for k in judged}))
    texts = ", ".join(dict.fromkeys(latest.values()))
    total = f"{len(judged)} problems, {len(failed)} failures; seed {by_seed}; texts {texts}."
    skipped = sum(against != latest[o.op] for _, against, o in records)
    parts.append(total + (f" {skipped} lines of other texts do not count." if skipped else "") + "\n")
    return "\n".join(parts)


def _place(item: tuple[tuple[str, int, Settings], Outcome]) -> tuple[str, int, str]:
    (op, index, settings), _ = item
    return op, index, str(settings)


_HEAD = """# Accuracy against torch

Random problems from everything each op allows, compared with torch in float64; see [comparing](comparing.md). The bound
is `c1 u |y| + c2 E`: u is the unit roundoff of the stored type, E bounds the error before the store. Worst errors are
maxima over all elements and problems; relative errors are norms over all elements, medians over the problems. The last
column is the problem with the largest error in units of its bound.
"""
_SEARCHED = """The inputs of each problem were changed up to {} times towards larger errors. A row is of all
kernels; it names the element type and architecture of the worst.
"""


def _table(rows: Sequence[Row]) -> str:
    names = list(rows[0])
    head = [" | ".join(names), " | ".join("---:" if isinstance(rows[0][n], int | float) else "---" for n in names)]
    body = [" | ".join(_cell(value) for value in row.values()) for row in rows]
    return "".join(f"| {line} |\n" for line in (*head, *body))


def _cell(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
