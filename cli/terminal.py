"""Output of commands: tables or JSON on stdout, progress on stderr, plain text when not on a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from baracuda.runtime.observe import without_status_line

_UNWRAPPED = 1000  # columns of a pipe or file: a table's row stays one line, for grep and awk
_NARROWEST = 12  # columns for the longest words of a table
_COLOURS = {"->": "green", "chosen": "green", "hit": "green", "within": "green", "miss": "yellow", "BEYOND": "red"}

Row = Mapping[str, object]


def console(*, stderr: bool = False) -> Console:
    """Colours and wraps to the terminal's width; plain when not on a terminal, no colours under NO_COLOR."""
    screen = Console(stderr=stderr, highlight=False)
    return screen if screen.is_terminal else Console(stderr=stderr, highlight=False, width=_UNWRAPPED)


def show_table(rows: Sequence[Row]) -> None:
    """Print `rows`, which share their keys as headings; numeric columns are right-aligned.

    If the terminal is too narrow to keep words whole, print each row as a list.
    """
    screen = console()
    wide = _width(rows) <= screen.width
    with screen.capture() as capture:
        for table in [_table(rows)] if wide else map(_list, rows):
            screen.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def _width(rows: Sequence[Row]) -> int:
    """The narrowest width of a table in which only one column breaks words."""
    columns = [[name, *(_cell(row[name]) for row in rows)] for name in (rows[0] if rows else ())]
    words = sorted(max(len(word) for cell in cells for word in cell.split() or [""]) for cells in columns)
    return sum(words[:-1]) + min([_NARROWEST, *words[-1:]]) + 2 * len(words)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0] if rows else ():
        numbers = any(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_coloured, row.values()))
    return table


def _list(row: Row) -> Table:
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    table.columns[1].overflow = "fold"
    for name, value in row.items():
        table.add_row(Text(name, "bold"), _coloured(value))
    table.add_row()
    return table


def _coloured(value: object) -> Text:
    text = _cell(value)
    return Text(text, _COLOURS.get(text, ""))


def show_json(value: object) -> None:
    """Print `value` as JSON and nothing else; infinities and NaN become strings."""
    click.echo(json.dumps(_jsonable(value), indent=2, default=str))


def _jsonable(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case list() | tuple():
            return [_jsonable(item) for item in value]
        case dict():
            return {name: _jsonable(item) for name, item in value.items()}
    return value


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr; the yielded function advances it by one of `total` steps. Silent in a pipe."""
    screen = console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
    with without_status_line(), bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def working(title: str) -> Iterator[None]:
    """Show a spinner."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with without_status_line(), screen.status(title):
        yield
