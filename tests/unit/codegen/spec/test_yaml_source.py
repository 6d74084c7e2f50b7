"""Invariant: a spec file is read as YAML 1.2 data with its lines, or refused with one `path:line:` line."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baracuda.codegen.spec.yaml_source import YamlSource, read_yaml
from baracuda.codegen.spec.yaml_text import MAX_BYTES
from baracuda.runtime.errors import SpecError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str | bytes) -> YamlSource:
    path = Path("a.yaml")
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_yaml(path)


SCALARS: list[tuple[str, Any]] = [
    ("no", "no"),
    ("on", "on"),
    ("y", "y"),
    ("1_000", "1_000"),
    ("1:30", "1:30"),
    ("2020-01-02", "2020-01-02"),
    ("0b11", "0b11"),
    ("'5'", "5"),
    ('"\\u00e9\\n"', "é\n"),
    ("", None),
    ("~", None),
    ("null", None),
    ("'null'", "null"),
    ("true", True),
    ("FALSE", False),
    ("tRUE", "tRUE"),
    ("010", 10),
    ("-7", -7),
    ("0o10", 8),
    ("0x10", 16),
    ("18446744073709551615", 2**64 - 1),
    ("1e-3", 1e-3),
    ("4.0e-3", 4e-3),
    (".5", 0.5),
    ("5.", 5.0),
    ("-.inf", -math.inf),
    ("|\n  a = 1\n  b\n", "a = 1\nb\n"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    got = read(f"k: {text}").data["k"]
    assert (got, type(got)) == (value, type(value))


def test_nan_is_a_float() -> None:
    assert math.isnan(read("k: .nan").data["k"])


LOW = -(2**63) - 1

REFUSED: list[tuple[str | bytes, str]] = [
    ("a: 1\nb: 2\na: 3", "a.yaml:3: key 'a' is already on line 1; keep one of them"),
    ("a: {x: 1, x: 2}", "a.yaml:1: key 'x' is already on line 1; keep one of them"),
    ("a: &x 1", "a.yaml:1: anchor '&x'; remove it, values are written out"),
    ("? &x a\n: 1", "a.yaml:1: anchor '&x'; remove it, values are written out"),
    ("a: 1\nb: *x", "a.yaml:2: alias '*x'; write the value out"),
    ("a: 1\n<<: {b: 1}", "a.yaml:2: merge key '<<'; write the keys out"),
    ("a: !!str 1", "a.yaml:1: tag 'tag:yaml.org,2002:str'; remove it, quotes make a text"),
    ("a: !!python/x 1", "a.yaml:1: tag 'tag:yaml.org,2002:python/x'; remove it, quotes make a text"),
    ("a: !x [1]", "a.yaml:1: tag '!x'; remove it, quotes make a text"),
    ("a: 1\n---\nb: 2", "a.yaml:2: second document; needs one document per file"),
    ("%YAML 1.1\n---\na: no", "a.yaml:2: yaml directive; remove the lines that start with '%'"),
    ("1: a", "a.yaml:1: key '1' is not a text; quote it"),
    ("true: a", "a.yaml:1: key 'true' is not a text; quote it"),
    (": a", "a.yaml:1: key '' is not a text; quote it"),
    ("? [a]\n: 1", "a.yaml:1: this key is a list or a mapping; needs a name"),
    ("a:\n\tb: 1", "a.yaml:2: tab character; indent and align with spaces"),
    ("a: 1 \t# c", "a.yaml:1: tab character; indent and align with spaces"),
    ("a: 1\nb: \x07", "a.yaml:2: unprintable character U+0007; remove it"),
    ("a: 1\rb: 2", "a.yaml:1: unprintable character U+000D; remove it"),
    ("a: 1\u2028b: 2", "a.yaml:1: unprintable character U+2028; remove it"),
    ("a: \u202etxt", "a.yaml:1: unprintable character U+202E; remove it"),
    ('a: "\\0"', "a.yaml:1: unprintable character U+0000; remove it"),
    ('a: "\\ud800"', "a.yaml:1: unprintable character U+D800; remove it"),
    ('a: 1\nb: "\\UFFFFFFFF"', "a.yaml:2: an escape sequence is out of range; write the character itself"),
    (b"a: 1\nb: \xff", "a.yaml:2: byte 0xff is not utf-8; save the file as utf-8"),
    ("a: 1".encode("utf-16"), "a.yaml:1: byte 0xff is not utf-8; save the file as utf-8"),
    ("", "a.yaml:1: the file is empty; needs a mapping"),
    ("# only this\n", "a.yaml:1: the file is empty; needs a mapping"),
    ("a: " + "9" * 20, f"a.yaml:1: number '{'9' * 20}' does not fit 64 bits; quote it if it is text"),
    ("a: " + "9" * 5000, f"a.yaml:1: number '{'9' * 40}' does not fit 64 bits; quote it if it is text"),
    ("a: 0x1" + "0" * 16, f"a.yaml:1: number '0x1{'0' * 16}' does not fit 64 bits; quote it if it is text"),
    (f"a: {LOW}", f"a.yaml:1: number '{LOW}' does not fit 64 bits; quote it if it is text"),
    ("a: 1e999", "a.yaml:1: number '1e999' does not fit 64 bits; quote it if it is text"),
    ("#" * (256 * 1024 + 1), "a.yaml:1: the file is larger than 262144 bytes; split it"),
    ("a: [\n" + "[" * 40, "a.yaml:2: nested deeper than 32 levels; flatten it"),
    ("a: b: c", "a.yaml:1: unexpected ':'; quote text that contains ': '"),
    ("a: 1\nbcd\ne: 2", "a.yaml:2: this is no 'key: value'; add ': ' after the key"),
    ("a: 1\nb: 'x\nc: 2", "a.yaml:2: a quote is opened and never closed; add the closing quote"),
    ("a: 1\nb: [x\nc: 2", "a.yaml:2: the list opened here has no end or lacks a comma; add ',' or ']'"),
    ("a: 1\nb: {x: 1\nc: 2", "a.yaml:2: the mapping opened here has no end or lacks a comma; add ',' or '}'"),
    ("a:\n  b: 1\n c: 2", "a.yaml:3: unexpected indentation; align this with the keys or items around it"),
    ("a: @b", "a.yaml:1: text cannot start with this character; quote the text"),
    ("a: > b", "a.yaml:1: a block starts below its '|' or '>'; quote other text"),
    ("a: [", "a.yaml:1: a value or a closing bracket is missing; add it"),
    ("[a]\nb", "a.yaml:2: text outside of the mapping; give it a key or indent it"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refusals_name_the_line_and_the_fix(text: str | bytes, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(text)
    assert str(caught.value) == message


def test_unreadable_paths_are_refused_without_blocking(here: Path) -> None:
    os.mkfifo(here / "pipe")
    for name, message in (
        ("gone.yaml", "gone.yaml: cannot read it: no such file or directory; needs a readable yaml file"),
        ("pipe", "pipe: this is no file; needs a yaml file"),
        (".", ".: this is no file; needs a yaml file"),
    ):
        with pytest.raises(SpecError) as caught:
            read_yaml(here / name)
        assert str(caught.value) == message


LINES = """\
# comment
op: x
inputs:
  x: {dims: [a,
             b]}
  y:

    doc: text
shapes:
  - {rows: 1}
  - rows: 7
    cols: 2
program: |
  first
"folded": >
  second
plain: third
"""


@pytest.mark.parametrize(
    ("loc", "line"),
    [
        ((), 2),
        (("op",), 2),
        (("inputs",), 3),
        (("inputs", "x"), 4),
        (("inputs", "x", "dims", 1), 5),
        (("inputs", "x", "dtype"), 4),  # missing: its parent
        (("inputs", "x", "dtype", 3, "z"), 4),
        (("inputs", "y", "doc"), 8),
        (("shapes", 0, "rows"), 10),
        (("shapes", 1, "cols"), 12),
        (("shapes", 2), 9),
        (("nothing",), 2),
    ],
)
def test_line_is_that_of_the_key_or_of_the_nearest_ancestor(loc: tuple[str | int, ...], line: int) -> None:
    for newline in ("\n", "\r\n"):
        assert read(LINES.replace("\n", newline)).line(loc) == line


def test_text_line_is_where_the_characters_are() -> None:
    source = read(LINES)
    found = {key: LINES.splitlines()[source.text_line((key,)) - 1].split()[-1] for key in source.data}
    assert found | {"program": "first", "folded": "second", "plain": "third"} == found


def test_paths_are_relative_below_the_current_directory_and_links_are_followed(here: Path) -> None:
    (here / "specs").mkdir()
    (here / "real.yaml").write_text("\ufeffa: 1")
    (here / "specs" / "link.yaml").symlink_to(here / "real.yaml")
    source = read_yaml(here / "specs" / "link.yaml")
    assert (source.data, source.place(("a",))) == ({"a": 1}, "specs/link.yaml:1")
    os.chdir(here / "specs")
    assert str(read_yaml(here / "real.yaml").error(("a",), "bad; good")) == f"{here}/real.yaml:1: bad; good"


@pytest.mark.parametrize("unit", ["[", "{", "- ", "? ", "a: ", "&a ", "'", "{a: ", "k: [", '"\\', "\n"])
def test_a_hostile_file_costs_little(unit: str) -> None:
    started = time.process_time()
    with contextlib.suppress(SpecError):
        read((unit * MAX_BYTES)[:MAX_BYTES])
    assert time.process_time() - started < 15  # about 1 s; minutes if anything were quadratic


@settings(max_examples=200)
@given(st.text(alphabet="ab:-?[]{},&*!|>'\"%@`# \n01.e\\xU~<", max_size=30))
def test_any_text_is_data_or_a_spec_error(text: str) -> None:
    try:
        read(text)
    except SpecError as error:
        assert re.fullmatch(r"a\.yaml:\d+: .+; .+", str(error))


def test_files_of_one_text_are_parsed_once_and_keep_their_paths(here: Path) -> None:
    for name in ("one.yaml", "other.yaml"):
        (here / name).write_text("op: same_in_both\n", encoding="utf-8")
    one, other = read_yaml(here / "one.yaml"), read_yaml(here / "other.yaml")
    assert one.data is other.data
    assert [one.path.name, other.path.name] == ["one.yaml", "other.yaml"]
    assert str(other.error(("op",), "wrong")) == "other.yaml:1: wrong"
