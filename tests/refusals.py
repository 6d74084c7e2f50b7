"""The table of docs/refusals.md: what tests marked with `refuses` prove. `python tests/refusals.py` writes it anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "refusals.md"
KINDS = "stream", "device", "capture", "exit"
_HEAD = "| of | what is wrong | error | shown by |\n| --- | --- | --- | --- |\n"


def rows() -> list[tuple[str, str, str, str]]:
    """Kind, what is wrong, error and test, in the order of kinds. A marked test has to expect that error."""
    found = [row for path in sorted((ROOT / "tests").rglob("test_*.py")) for row in _rows_of(path)]
    return sorted(found, key=lambda row: KINDS.index(row[0]))


def _rows_of(path: Path) -> Iterator[tuple[str, str, str, str]]:
    text = path.read_text(encoding="utf-8")
    for test in ast.walk(ast.parse(text)) if "mark.refuses(" in text else ():
        for decorator in test.decorator_list if isinstance(test, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.refuses":
                kind, wrong, error = (ast.literal_eval(argument) for argument in decorator.args)
                if f"pytest.raises({error}" not in ast.unparse(test):
                    raise AssertionError(f"{path}: {test.name} is to show a {error}, but expects none")
                yield kind, wrong, error, f"{path.relative_to(ROOT)}: {test.name}"


def table() -> str:
    """The rows in Markdown; what several tests show is one row."""
    by_case: dict[tuple[str, str, str], list[str]] = {}
    for *case, test in rows():
        by_case.setdefault((case[0], case[1], case[2]), []).append(test)
    lines = []
    for (kind, wrong, error), tests in by_case.items():
        shown = (test.partition(": ") for test in tests)
        links = ", ".join(f"[{name}](../{file})" for file, _, name in shown)
        lines.append(f"| {kind} | {wrong} | `{error}` | {links} |\n")
    return _HEAD + "".join(lines)


def renewed() -> str:
    """The page with the table as it should be."""
    return PAGE.read_text(encoding="utf-8").partition(_HEAD)[0] + table()


if __name__ == "__main__":
    PAGE.write_text(renewed(), encoding="utf-8")
