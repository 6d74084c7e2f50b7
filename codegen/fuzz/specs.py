"""Hostile specs: those of this distribution, changed in one of several ways, and random ones with hostile names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ..commands.project import installed
from ..spec import FAMILY_SPECS
from ..yaml_source import read_yaml
from . import mutate, payloads, places
from .programs import program_spec

_NAMED = ("descriptor", "dims", "inputs", "outputs", "workspace", "terms", "settings")
_WORD = r"(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"


@dataclass(frozen=True)
class Case:
    """The files of a folder of specs, and what was done to make the first of them hostile."""

    files: Mapping[str, bytes]
    how: str


@dataclass(frozen=True)
class Base:
    """A spec of this distribution: its file, and the forward's that it differentiates."""

    path: Path
    data: Any
    forward: Path | None

    @property
    def files(self) -> dict[str, bytes]:
        """What has to stand beside it."""
        return {} if self.forward is None else {self.forward.name: self.forward.read_bytes()}


@cache
def bases() -> tuple[Base, ...]:
    """The specs of this distribution, some of every family."""
    paths = {path.stem: path for path in sorted(installed("baracuda.specs").rglob("*.yaml"))}
    found = [(path, read_yaml(path).data) for path in paths.values()]
    return tuple(Base(path, data, paths.get(data.get("gradient", {}).get("of"))) for path, data in found)


def spec_case(index: int, rng: Random) -> Case:
    """Hostile spec number `index`; those that put a payload at each place of the model take turns."""
    match index % 10:
        case 0 | 1 | 2 | 3:
            return _at_a_place(index // 10 * 4 + index % 10, rng)
        case 4 | 5:
            base = rng.choice(bases())
            data = mutate.garble(base.path.read_bytes(), rng)
            return Case({"a.yaml": data, **base.files}, f"bytes of {base.path.name}")
        case 6 | 7:
            base, data = _copy(rng)
            mutate.change(data, rng, payloads.value)
            return Case({"a.yaml": mutate.as_yaml(data, rng), **base.files}, f"values of {base.path.name}")
        case 8:
            return _renamed(rng)
    return Case({"a.yaml": mutate.as_yaml(program_spec(rng), rng)}, "a random program")


def _copy(rng: Random, family: str | None = None) -> tuple[Base, Any]:
    base = rng.choice([b for b in bases() if family in (None, b.data["family"])])
    return base, deepcopy(base.data)


def _at_a_place(turn: int, rng: Random) -> Case:
    """A payload at the next place of the model."""
    all_places = [(family, path) for family in FAMILY_SPECS for path in places.places(family)]
    family, path = all_places[turn % len(all_places)]
    base, data = _copy(rng, family)
    places.put(data, family, path, lambda old: payloads.value(rng, old), rng)
    shown = ".".join(path)
    return Case({"a.yaml": mutate.as_yaml(data, rng), **base.files}, f"{shown} of {base.path.name}")


def _renamed(rng: Random) -> Case:
    """Some names of a spec, wherever they stand, become hostile ones."""
    base, data = _copy(rng)
    text = mutate.as_yaml(data, rng).decode("utf-8")
    ours = sorted({name for section in _NAMED for name in data.get(section, {})} | {data["op"], data["plan"]})
    for name in rng.sample(ours, min(len(ours), rng.choice((1, 1, 2, 5)))):
        new = payloads.legal_name(rng) if name.islower() else rng.choice(payloads.all_names())
        text = re.sub(_WORD.format(re.escape(name)), new + ("Plan" if name == data["plan"] else ""), text)
    return Case({"a.yaml": text.encode(), **base.files}, f"names of {base.path.name}")
