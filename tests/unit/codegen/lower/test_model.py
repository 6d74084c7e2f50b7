"""The model is data: nothing in it is CUDA, Python or prose of the generator's. Whatever writes these is in `emit`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from repository import ROOT, SPECS

from baracuda.codegen import lower
from baracuda.codegen.lower.lower import lower as lowered
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.text import Code, Name, Text

LOADED = load_folder(SPECS)
PATHS = ("spec_path", "template_path")
WRITERS = {"Code", "python", "laid_out", "wrapped"}  # of `codegen.text`


def parts(value: Any, name: str = "op") -> Iterator[tuple[str, Any]]:
    """Whatever a template can reach, with the names that lead there: fields, properties and items."""
    yield name, value
    if is_dataclass(value) and not isinstance(value, type):
        found = [f.name for f in fields(value)]
        if type(value).__module__.startswith(lower.__name__):
            found += [n for n, _ in inspect.getmembers(type(value), lambda member: isinstance(member, property))]
        for inner in found:
            yield from parts(getattr(value, inner), f"{name}.{inner}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from parts(key, name)
            yield from parts(item, f"{name}[{key}]")
    elif isinstance(value, tuple):
        for item in value:
            yield from parts(item, f"{name}[]")


def spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.parametrize("spec", LOADED)
def test_it_holds_no_text_of_the_generator(spec: str) -> None:
    """No `Code` but identifiers, and no `Text` that the spec does not have."""
    loaded = LOADED[spec]
    known = spaced(" ".join(text for text in strings(loaded.spec)))
    for name, value in parts(lowered(loaded.spec, loaded.display_path)):
        assert not isinstance(value, Code) or isinstance(value, Name), f"{name} holds code: {value!r}"
        if isinstance(value, Text) and name.rpartition(".")[2] not in PATHS:
            assert spaced(value) in known, f"{name} holds prose that the spec does not: {value!r}"


def strings(value: Any) -> Iterator[str]:
    """All text of a spec."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        for inner in type(value).model_fields if isinstance(value, BaseModel) else [f.name for f in fields(value)]:
            yield from strings(getattr(value, inner))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def test_lowering_imports_nothing_that_writes_text() -> None:
    """The types of identifiers and of specs' prose are all that it takes from `codegen.text`."""
    for path in Path(ROOT / "codegen" / "lower").glob("*.py"):
        imported = re.findall(r"^from \.\.text import (.*)", path.read_text(), re.M)
        taken = {name.split(" as ")[0].strip() for names in imported for name in names.split(",")}
        assert not taken & WRITERS, f"{path.name} imports {', '.join(sorted(taken & WRITERS))}"
