"""Hostile specs: those of this distribution, changed in one of several ways, and random ones with hostile names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from baracuda.codegen.project import installed
from baracuda.codegen.spec.family import families
from baracuda.codegen.spec.load import load_spec

from . import mutate, payloads, places
from .programs import program_spec

_NAMED = ("descriptor", "dims", "inputs", "outputs", "workspace", "terms", "settings")
_PROSE = ("doc", "formula", "source")
_BYTES = 5  # of ten cases the one whose bytes are changed
_TRIES = 30  # draws of a payload for one that fits
_WORD = r"(?<![A-Za-z0-9_]){}(?![A-Za-z0-9_])"


@dataclass(frozen=True)
class Case:
    """The files of a folder of specs, and the change that makes the first hostile."""

    files: Mapping[str, bytes]
    how: str


@dataclass(frozen=True)
class Base:
    """A spec of this distribution, and its data with all that follows."""

    path: Path
    data: Any


@cache
def bases() -> tuple[Base, ...]:
    """The specs of this distribution, some of every family."""
    paths = sorted(installed("baracuda.specs").rglob("*.yaml"))
    return tuple(Base(path, load_spec(path).source.data) for path in paths)


def spec_case(index: int, rng: Random) -> Case:
    """Hostile spec number `index`; those that put a payload at each place of the model take turns."""
    match index % 10:
        case 0 | 1:
            return _injected(index // 10 * 2 + index % 10, rng)
        case 2 | 3:
            return _at_a_place(index // 10 * 2 + index % 10 - 2, rng)
        case 4:
            return _in_all_texts(rng)
        case 5:  # as _BYTES says
            base = rng.choice(bases())
            data = mutate.garble(base.path.read_bytes(), rng)
            return Case({"a.yaml": data}, f"bytes of {base.path.name}")
        case 6 | 7:
            base, data = _copy(rng)
            mutate.change(data, rng, payloads.value)
            return Case({"a.yaml": mutate.as_yaml(data, rng)}, f"values of {base.path.name}")
        case 8:
            return _renamed(rng)
    return Case({"a.yaml": mutate.as_yaml(program_spec(rng), rng)}, "a random program")


def spec_data(index: int, rng: Random) -> Any:
    """The data of hostile spec number `index`, without changes of bytes."""
    kinds = [kind for kind in range(10) if kind != _BYTES]
    case = spec_case(index // len(kinds) * 10 + kinds[index % len(kinds)], rng)
    return json.loads(case.files["a.yaml"].decode("utf-8", "surrogatepass"))


def _copy(rng: Random, family: str | None = None) -> tuple[Base, Any]:
    base = rng.choice([b for b in bases() if family in (None, b.data["family"])])
    return base, deepcopy(base.data)


def _injected(turn: int, rng: Random) -> Case:
    """A text that leaves whatever it is printed into, at the next place that takes texts, alone or as a comment."""
    paths = _text_places()
    path = paths[turn % len(paths)]
    base, data = _copy(rng, rng.choice([family for family in families() if path in places.places(family)]))
    as_comment = turn // len(paths) % 2 == 0

    def payload(old: Any) -> Any:
        return f"{old}  # {payloads.EVERYWHERE}" if as_comment else payloads.EVERYWHERE

    places.put(data, base.data["family"], path, payload, rng)
    place = ".".join(path)
    return Case({"a.yaml": mutate.as_yaml(data, rng)}, f"a payload in {place} of {base.path.name}")


@cache
def _text_places() -> tuple[places.Path, ...]:
    """The places of all families that take text other than names."""
    paths = (path for family in families() for path in places.places(family) if places.fits(family, path, "(n,)"))
    return tuple(dict.fromkeys(paths))


def _at_a_place(turn: int, rng: Random) -> Case:
    """A payload at the next place of the model."""
    all_places = [(family, path) for family in families() for path in places.places(family)]
    family, path = all_places[turn % len(all_places)]
    base, data = _copy(rng, family)

    places.put(data, family, path, lambda old: _fitting(family, path, old, rng), rng)
    place = ".".join(path)
    return Case({"a.yaml": mutate.as_yaml(data, rng)}, f"{place} of {base.path.name}")


def _fitting(family: str, path: places.Path, old: Any, rng: Random) -> Any:
    """A payload for a place, mostly of a form that the model takes."""
    for _ in range(_TRIES if rng.random() < 0.8 else 1):
        leaf = isinstance(old, str) and rng.random() < 0.8
        payload = payloads.text(rng, old) if leaf else payloads.value(rng, old)
        if places.fits(family, path, payload):
            break
    return payload


def _in_all_texts(rng: Random) -> Case:
    """Payloads in prose: in one text, in some, or in all."""
    base, data = _copy(rng)
    family = data["family"]
    prose = [path for path in places.places(family) if path[-1] in _PROSE]
    for path in rng.sample(prose, rng.choice((1, 1, 2, len(prose)))):
        payload = payloads.EVERYWHERE if rng.random() < 0.5 else _fitting(family, path, "some text", rng)
        places.put(data, family, path, lambda _, payload=payload: payload, rng)
    return Case({"a.yaml": mutate.as_yaml(data, rng)}, f"texts of {base.path.name}")


def _renamed(rng: Random) -> Case:
    """Replace some names of a spec everywhere by hostile ones."""
    base, data = _copy(rng)
    text = mutate.as_yaml(data, rng).decode("utf-8")
    names = sorted({name for section in _NAMED for name in data.get(section, {})} | {data["op"], data["plan"]})
    for name in rng.sample(names, min(len(names), rng.choice((1, 1, 2, 5)))):
        new = payloads.legal_name(rng) if name.islower() else rng.choice(payloads.all_names())
        text = re.sub(_WORD.format(re.escape(name)), new + ("Plan" if name == data["plan"] else ""), text)
    return Case({"a.yaml": text.encode()}, f"names of {base.path.name}")
