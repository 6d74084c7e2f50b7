"""Invariant: the JSON Schema that editors read takes every spec that the loader takes, and says what each key means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from repository import LONG, ROOT, few

from baracuda.cli.main import main
from baracuda.cli.make.new import new
from baracuda.codegen.spec.family import model_of
from baracuda.codegen.spec.schema import schema_text
from baracuda.codegen.spec.yaml_source import read_yaml

PUBLISHED = ROOT / "specs" / "schema.json"
SPECS = sorted(p for d in ("specs", "examples") for p in (ROOT / d).rglob("*.yaml"))
SCHEMA: dict[str, Any] = json.loads(schema_text())
VALIDATOR = Draft202012Validator(SCHEMA)
_NAMED = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")
_EXAMPLE = re.compile(r"for example `([^`]+)`")

Data = dict[str, Any]


def properties() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of a spec and of what is in it, with what the schema says of it."""
    for name, definition in SCHEMA["$defs"].items():
        yield from ((f"{name}.{key}", of) for key, of in definition["properties"].items())


def a_spec() -> Data:
    """One to break, which the loader remembers."""
    return deepcopy(read_yaml(LONG / "rms_norm.yaml").data)


def named_by(spec: Path) -> Path:
    """The schema that a spec's first line names."""
    named = _NAMED.match(spec.read_text(encoding="utf-8"))
    assert named, f"{spec} names no schema"
    return (spec.parent / named[1]).resolve()


def test_it_is_a_schema_and_the_published_one_is_current() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == SCHEMA, "run 'baracuda-gen generate'"


@pytest.mark.parametrize("spec", few(SPECS, 30), ids=lambda p: p.stem)
def test_every_spec_fits_it_and_names_it(spec: Path) -> None:
    assert named_by(spec) == PUBLISHED
    assert [e.message for e in VALIDATOR.iter_errors(read_yaml(spec).data)] == []


@pytest.mark.parametrize(("key", "of"), [*properties()], ids=lambda value: value if isinstance(value, str) else "")
def test_every_key_says_what_it_means(key: str, of: dict[str, Any], tmp_path: Path) -> None:
    """In a line; and an example in it is one."""
    description = of["description"]
    assert len(description) > 10 and "\n" not in description
    for example in _EXAMPLE.findall(description):
        path = tmp_path / "example.yaml"
        path.write_text(f"value: {example}\n" if example[0] != "-" else f"value:\n  {example}\n", encoding="utf-8")
        checked = Draft202012Validator({**of, "$defs": SCHEMA["$defs"]})
        assert [e.message for e in checked.iter_errors(read_yaml(path).data["value"])] == [], example


WRONG: dict[str, Callable[[Data], object]] = {
    "an unknown key": lambda s: s.update(dox="hello"),
    "a missing key": lambda s: s.pop("doc"),
    "an unknown family": lambda s: s.update(family="rows"),
    "another family's key": lambda s: s.update(body={"sm_80": "row.cuh"}),
    "an unknown key of a tensor": lambda s: s["inputs"]["x"].update(dim=["rows"]),
    "an unknown key of a case's neighbour": lambda s: s["tests"].update(case=[]),
    "text for a list": lambda s: s.update(dtypes="f32"),
    "a number for text": lambda s: s.update(doc=3),
    "text for a bool": lambda s: s.update(precision={"contraction": "yes"}),
    "text for a number": lambda s: s.update(precision={"bound": {"f32": {"c1": "2"}}}),
    "a number beyond its bound": lambda s: s.update(precision={"bound": {"f32": {"c1": 17}}}),
    "an element that is none": lambda s: s.update(dtypes=["fp16"]),
    "an architecture that is none": lambda s: s.update(arch={"sm_81": {}}),
    "a name that is none": lambda s: s["inputs"].update(X=s["inputs"]["x"]),
    "an empty list": lambda s: s.update(dtypes=[]),
    "a range of three": lambda s: s["tests"].update(ranges={"x": [0, 1, 2]}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_the_loader_refuses_it_refuses(wrong: str) -> None:
    data = a_spec()
    WRONG[wrong](data)
    assert not VALIDATOR.is_valid(data)
    with pytest.raises(ValidationError):
        model_of(data.get("family")).model_validate(data)


def test_one_type_stands_for_a_list_of_one() -> None:
    data = a_spec()
    data["outputs"]["rms"]["dtype"] = "acc"
    assert VALIDATOR.is_valid(data) and model_of("row").model_validate(data)


def test_a_new_spec_finds_its_schema_beside(tmp_path: Path) -> None:
    path = new("row_center", "row", "custom", tmp_path / "specs")
    assert named_by(path) == tmp_path / "specs" / "schema.json"
    assert json.loads(named_by(path).read_text()) == SCHEMA


def test_generating_keeps_it_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is one of ours; neither is one made where there is none, nor another's touched."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    specs, out = tmp_path / "specs", tmp_path / "generated"
    schema = named_by(new("row_center", "row", "custom", specs))
    old, current = schema.read_text().replace("body", "boody"), schema.read_text()

    def generate(*options: str) -> tuple[int, bool]:
        ran = CliRunner().invoke(main, ["generate", "--specs", str(specs), "--out", str(out), *options])
        return ran.exit_code, f"written: {schema}\n" in ran.stdout

    assert generate() == (0, False)
    schema.write_text(old)
    assert (generate("--check"), schema.read_text()) == ((1, True), old)
    options = ["--specs", str(specs), "--out", str(out), "--check", "--json"]
    assert json.loads(CliRunner().invoke(main, ["generate", *options]).stdout)["written"] == [str(schema)]
    assert (generate(), schema.read_text()) == ((0, True), current)
    assert generate("--check") == (0, False)
    schema.write_text(json.dumps(SCHEMA))  # as another pydantic may print it
    assert generate("--check") == (0, False)
    for theirs in ("{}", "not JSON"):
        schema.write_text(theirs)
        assert (generate(), schema.read_text()) == ((0, False), theirs)
    schema.unlink()
    assert generate() == (0, False) and not schema.exists()
