"""Device functions stay short: lines, parameters and paths of each in every device header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from baracuda.runtime.compile.cubin import INCLUDE

LINES, PARAMETERS, COMPLEXITY = 100, 8, 15
HEADERS = sorted((INCLUDE / "baracuda").rglob("*.cuh"))

_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?m:^[ \t]*#(?:\\\n|[^\n])*)', re.S)
_SCOPE = re.compile(r"(?:extern \"\"|(?:inline )?namespace|struct|class|union|enum)\b")
_BRANCH = re.compile(r"\b(?:if|for|while|case)\b|&&|\|\||\?")


class Function(NamedTuple):
    name: str
    line: int
    lines: int
    parameters: int
    complexity: int

    def excess(self) -> list[str]:
        limits = {"lines": LINES, "parameters": PARAMETERS, "complexity": COMPLEXITY}
        return [
            f"{getattr(self, what)} {what}, at most {most}"
            for what, most in limits.items()
            if getattr(self, what) > most
        ]


def functions(text: str) -> Iterator[Function]:
    """Each function of a header; a lambda is part of the function it is in. The place of a call, which only the host
    device passes, is no parameter."""
    text = _NOT_CODE.sub(lambda match: '""' if match[0][0] == '"' else "\n" * match[0].count("\n"), text)
    text = text.replace(", BARACUDA_SITE", "")
    start = at = 0
    while (match := re.compile(r"[;{}]|(?:public|private):").search(text, at)) is not None:
        at = match.end()
        if match[0] == "{":
            head = _without_template(text[start : match.start()])
            if not _SCOPE.match(head):
                is_initialiser = "(" not in head or re.search(r"\)\s*:\s.*\w$", head, re.S) or head.endswith("=")
                at = _closing(text, match.start()) + 1
                if is_initialiser:
                    continue
                whole = text[start:at].strip()
                name, count = _signature(head)
                line = text.count("\n", 0, at) - whole.count("\n") + 1
                yield Function(
                    name, line, whole.count("\n") + 1, count, 1 + len(_BRANCH.findall(text, match.start(), at))
                )
        start = at
    assert text.count("{") == text.count("}")


def _without_template(head: str) -> str:
    head = head.strip()
    while head.startswith("template"):
        head = head[_closing(head, head.index("<")) + 1 :].strip()
    return head


def _closing(text: str, opening: int) -> int:
    """Where the bracket at `opening` is closed."""
    pair = {"{": "}", "(": ")", "<": ">"}[text[opening]]
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == text[opening]) - (text[at] == pair)
        if depth == 0:
            return at
    raise AssertionError(f"no {pair} after {text[opening : opening + 40]!r}")


def _signature(head: str) -> tuple[str, int]:
    """A function's name and the number of its parameters."""
    groups, at = [], 0
    while (opening := head.find("(", at)) >= 0:
        at = _closing(head, opening) + 1
        groups.append((opening, at))
        if re.match(r"\s*:\s", head[at:]):  # of a constructor
            break
    opening, end = groups[-1]
    inside, depth, count = head[opening + 1 : end - 1], 0, 0
    for character in inside:
        depth += (character in "([{<") - (character in ")]}>")
        count += character == "," and depth == 0
    return head[:opening].split()[-1].lstrip("*&"), count + bool(inside.strip())


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_functions_are_within_limits(header: Path) -> None:
    every = list(functions(header.read_text(encoding="utf-8")))
    assert not [f"{header.name}:{f.line}: {f.name} has {', '.join(f.excess())}" for f in every if f.excess()]


SAMPLE = """
template <int N = 2> struct Outer {{
    int values[2] = {{1, 2}};
    __device__ explicit Outer(int a, const Pack<int, N>& b) : first{{a}}, second(b.lane[0]) {{}}
    __device__ {result} operator()({parameters}) const {{
        // if (a) {{ && ||
        const auto inner = [&](int x) {{ return x ? 1 : 0; }};
        {body}
    }}
}};
"""


@pytest.mark.parametrize(
    ("parameters", "body", "excess"),
    [
        ("float (&sum)[2], Pack<T, N> x, int c = 1, int d, int e, int f, int g, int h", "if (a && b) {}", []),
        (
            "float (&sum)[2], Pack<T, N> x, int c = 1, int d, int e, int f, int g, int h, int i",
            "",
            ["9 parameters, at most 8"],
        ),
        ("", "\n" * 96, ["101 lines, at most 100"]),
        ("int a", "if constexpr (a || b) {} for (;;) {} while (a) {}" * 3 + "x = a ? b : c;", []),
        (
            "int a",
            "if constexpr (a || b) {} for (;;) {} while (a) {}" * 3 + "x = a ? b && c : d;",
            ["16 complexity, at most 15"],
        ),
    ],
)
def test_what_counts(parameters: str, body: str, excess: list[str]) -> None:
    constructor, call = functions(SAMPLE.format(result="int", parameters=parameters, body=body))
    assert (constructor.parameters, constructor.complexity, constructor.lines) == (2, 1, 1)
    assert call.name == "operator()"
    assert call.excess() == excess
