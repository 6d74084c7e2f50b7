"""The spec of a gradient from its forward's, which has it under `backward`: all that is not said there follows.

Without a program or kernels of its own, its program is the derivative of the forward's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ..conditions.parse import ConditionError, evaluate_condition, fields_of
from ..program import Expr, Line, ProgramError, to_source
from ..program.derive import derive
from ..program.derived_lines import Forward
from ..program.tree import Call, Const, Read, reads, walk
from .defaults import spelled_out, usual_docs
from .family import family_of
from .parts import GradientSpec
from .scope import axes_of, kinds_of, scope_of
from .spec import OpSpec, ProgramSpec
from .wording import did_you_mean
from .yaml_source import Loc, YamlSource

Data = Mapping[str, Any]

_COPIED = ("category", "family", "source", "dtypes", "dims", "settings", "terms")
_MERGED = ("descriptor", "settings", "tests", "bench", "gradient")
_TESTS = ("defaults", "draw", "ranges")
_SHARED = ("dims", "shape", "shapes", "dtype", "layout", "optional")  # what two tensors that correspond have alike
_SAVED = ", saved for the backward"
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_ASSIGNED = re.compile(r"^\s*([a-z_][a-z0-9_]*)\s*=(?!=)", re.MULTILINE)


def within(source: YamlSource) -> YamlSource:
    """What the file of a forward says of its `backward`, as a file of its own."""
    lines, text_lines = _below("backward", source.lines), _below("backward", source.text_lines)
    return YamlSource(source.path, source.data["backward"], lines, text_lines)


def _below(key: str, lines: Mapping[Loc, int]) -> dict[Loc, int]:
    return {loc[1:]: number for loc, number in lines.items() if loc[:1] == (key,)}


def completed(source: YamlSource, forward: OpSpec, data: Data) -> YamlSource:
    """`source` with everything that follows from the `forward` op and its file's `data`."""
    gradient = source.data.get("gradient")
    if isinstance(gradient, dict) and gradient.get("of", forward.op) != forward.op:
        text = f"this is the gradient of {forward.op!r}, whose file it is in; leave `of` out, or take another file"
        raise source.error(("gradient", "of"), text)
    for section, known in (("cotangents", forward.outputs), ("wrt", forward.inputs)):
        given = gradient.get(section) if isinstance(gradient, dict) else None
        for name in given.values() if isinstance(given, dict) else ():
            if isinstance(name, str) and name not in known:
                text = f"op {forward.op!r} has no {name!r}; {did_you_mean(name, known)}"
                raise source.error(("gradient", section), text)
    try:
        complete = _Backward(forward, data, spelled_out(source.data)).complete()
    except ProgramError as error:
        raise source.error((), str(error)) from None
    return YamlSource(source.path, complete, source.lines, source.text_lines)


def derived_program(
    spec: ProgramSpec, cotangents: Mapping[str, str], wrt: Mapping[str, str], saved: Iterable[str]
) -> tuple[Line, ...]:
    """The program of the gradient of a forward op; see `derive`."""
    scope, family = scope_of(spec), family_of(spec)
    lines = family.lines(spec)
    over = {name: tensor.over for name, tensor in spec.tensors.items()}
    dims = {**scope.values, **{d: over[output] for d, output in cotangents.items()}}
    kept = {name for name in saved if name in spec.outputs}
    dims |= {name: over[name] for name in kept}
    axes = {name: of.dims for name, of in axes_of(spec).items()}
    axes |= {name: spec.outputs[output].dims for name, output in (*cotangents.items(), *zip(kept, kept, strict=True))}
    elements = frozenset(d for d, of in cotangents.items() if spec.outputs[of].holds_elements)
    of_family = family.pulled(spec), axes, family.sizes(spec), family.multiplied(spec)
    forward = Forward(lines, kinds_of(spec, lines), dims, *of_family, elements)
    return derive(forward, cotangents, wrt, kept)


def is_derivable(spec: OpSpec | None, gradient: GradientSpec) -> bool:
    """Whether a forward op's program has a derivative that a program can say."""
    try:
        if isinstance(spec, ProgramSpec):
            derived_program(spec, gradient.cotangents, gradient.wrt, gradient.saved)
    except ProgramError:
        return False
    return True


class _Backward:
    def __init__(self, forward: OpSpec, data: Data, own: Data) -> None:
        self.forward, self.data, self.own = forward, data, own
        given = own.get("gradient")
        gradient = given if isinstance(given, dict) else {}
        floats = [name for name, t in forward.tensors.items() if forward.sort_of(t) in ("float", "complex")]
        outputs = [name for name in forward.outputs if name in floats]
        inputs = [name for name in forward.inputs if name in floats]
        self.saved = self._kept(gradient.get("saved"), list(forward.tensors), forward.outputs)
        read = self._read if self._read is not None else {f"d{name}" for name in outputs if name not in self.saved}
        outputs = [name for name in outputs if f"d{name}" in read]
        self.cotangents = _renamed(gradient.get("cotangents"), outputs, floats)
        self.wrt = _renamed(gradient.get("wrt"), [n for n in inputs if self._has(f"d{n}", self._made)], floats)

    @property
    def by_hand(self) -> bool:
        """Whether it has a program or kernels of its own."""
        return self.forward.by_hand or "program" in self.own

    @cached_property
    def _made(self) -> set[str] | None:
        """What is assigned by hand, or None where anything may be."""
        if isinstance(program := self.own.get("program"), str):
            return {*_ASSIGNED.findall(program)}
        return {*self.own["outputs"]} if isinstance(self.own.get("outputs"), dict) else None

    @cached_property
    def _read(self) -> set[str] | None:
        """What is read by hand, or None where anything may be."""
        if isinstance(program := self.own.get("program"), str):
            return _names(program) - {*_ASSIGNED.findall(program)}
        return {*self.own["inputs"]} if self.by_hand and isinstance(self.own.get("inputs"), dict) else None

    @staticmethod
    def _has(name: str, names: set[str] | None) -> bool:
        return names is None or name in names

    def _kept(self, given: Any, known: list[str], outputs: Iterable[str]) -> list[str]:
        """What the forward saves: as is `given`, or the outputs that are read."""
        if isinstance(given, list):
            return [name for name in given if isinstance(name, str) and name in known]
        return [name for name in outputs if self._read is not None and name in self._read]

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The derivatives of the forward's programs, where there are none by hand."""
        return tuple(line for lines in self.by_kind.values() for line in lines)

    @cached_property
    def by_kind(self) -> dict[str, tuple[Line, ...]]:
        return {name: self._derivative(of) for name, of in self.forward.by_kind.items()}

    def _derivative(self, spec: OpSpec) -> tuple[Line, ...]:
        if self.by_hand or not isinstance(spec, ProgramSpec):
            return ()
        return derived_program(spec, self.cotangents, self.wrt, self.saved)

    def complete(self) -> dict[str, Any]:
        """The data of the whole spec; what it says itself comes first."""
        followed, own = self._followed(), dict(self.own)
        for key in _MERGED:
            if isinstance(own.get(key), dict):
                own[key] = _merged(followed.get(key, {}), own[key])
        own |= {key: _named(followed[key], own.get(key)) for key in ("inputs", "outputs")}
        dims, of = own.get("dims"), followed.get("dims")
        if isinstance(dims, dict) and isinstance(of, dict):
            has_other_names = len(dims) >= len(of) and dims.keys().isdisjoint(of)
            own["dims"] = dims if has_other_names else {**of, **dims}
        if isinstance(own.get("require"), list):
            own["require"] = [*followed["require"], *own["require"]]
        return {**followed, **own}

    def _followed(self) -> dict[str, Any]:
        op, data, names = self.forward.op, self.data, " and ".join(self.wrt.values())
        inputs, outputs = self._inputs(), self._outputs()
        merged = [_named(followed, self.own.get(key)) for key, followed in (("inputs", inputs), ("outputs", outputs))]
        fields = self._fields([tensor for tensors in merged for tensor in tensors.values() if isinstance(tensor, dict)])
        followed = {
            **{key: data[key] for key in _COPIED if key in data},
            "op": f"{op}_backward",
            "direction": "backward",
            "plan": f"{self.forward.plan.removesuffix('Plan')}BackwardPlan",
            "doc": f"Gradient{'s'[: len(self.wrt) != 1]} of {op} with respect to {names}.",
            "gradient": {"of": op, "cotangents": self.cotangents, "wrt": self.wrt, "saved": self.saved},
            "descriptor": {name: self._field(name) for name in fields},
            "require": [*(r for r in self._conditions() if not self._gone(fields) & _names(r["that"])), *self._steps()],
            "inputs": inputs,
            "outputs": outputs,
            "tests": self._tests(fields, inputs),
        }
        programs = {name: _printed(lines) for name, lines in self.by_kind.items()}
        if kinds := data.get("kinds"):
            followed["formula"] = f"the derivative of {op} of each kind"
            followed["kinds"] = {n: self._kind(kinds[n], inputs, fields) | {"program": t} for n, t in programs.items()}
        elif self.lines:
            followed["program"] = programs[""]
        if "settings" in data:
            gone = self._gone(fields)
            followed["settings"] = {n: text for n, text in data["settings"].items() if not gone & _names(text)}
        if "oracle" in data:
            followed["oracle"] = f"{data['oracle']}_backward"
        if "precision" in data:
            followed["precision"] = {key: value for key, value in data["precision"].items() if key != "bound"}
        if "bench" in data:
            followed["bench"] = {**data["bench"], "cases": self._cases(data["bench"].get("cases", []), fields)}
            if ranges := data["bench"].get("ranges"):
                followed["bench"]["ranges"] = {name: of for name, of in ranges.items() if name in inputs}
        return followed

    @staticmethod
    def _kind(kind: Data, inputs: Data, fields: Iterable[str]) -> dict[str, Any]:
        """What the tests of a kind's gradient take over from its forward's."""
        known = {"ranges": inputs, "defaults": fields}
        return {key: {n: v for n, v in kind[key].items() if n in names} for key, names in known.items() if key in kind}

    def _conditions(self) -> list[Any]:
        conditions: list[Any] = spelled_out(self.data).get("require", [])
        return conditions

    def _steps(self) -> Iterator[dict[str, Any]]:
        """That no index is multiplied with 0 in a place that one cell reads, unless the forward says so."""
        found = dict.fromkeys(by for lines in self.by_kind.values() for by in _divisors(lines))
        of_forward = self.forward.by_kind if isinstance(self.forward, ProgramSpec) else {}
        own = {by for spec in of_forward.values() for by in _divisors(family_of(spec).lines(spec))}
        for by in found:
            if by not in own and reads(by) <= {*self.forward.descriptor} and not self._refuses(to_source(by)):
                yield {"that": f"{to_source(by)} != 0", "raises": "InvalidProblem"}

    def _refuses(self, field: str) -> bool:
        """Whether a condition of the forward does not hold where that field is 0."""
        said = [r.that for r in self.forward.require if field in fields_of(r.that)]
        return any(not any(_holds(text, field, other) for other in (1, 9)) for text in said)

    def _inputs(self) -> dict[str, Any]:
        """The gradients that come in, then what is read of the forward, in its order."""
        read = frozenset[str]().union(*(reads(line.expr) for line in self.lines)) if self.lines else None
        inputs: dict[str, Any] = {}
        for name, output in self.cotangents.items():
            tensor = _shared(self.data["outputs"][output])
            inputs[name] = tensor | ({"default": 0} if "optional" in tensor else {})
        for name in self.forward.inputs:
            if self._has(name, set(read) if read is not None else self._read):
                inputs[name] = _of_forward(self.data["inputs"][name])
        for name in self.saved:
            if name in self.forward.outputs and self._has(name, set(read) if read is not None else self._read):
                inputs[name] = _shared(self.data["outputs"][name]) | {"doc": _saved(self.data["outputs"][name]["doc"])}
        parts = (part for line in self.lines for part in walk(line.expr))
        placed = {part.tensor for part in parts if isinstance(part, Read) and part.computed}
        for name in [name for name in inputs if name in placed or self._is_placed_by_hand(name, inputs[name])]:
            inputs[name] |= {"outside": self.data["inputs"].get(name, {}).get("outside", 0)}
        return inputs

    def _is_placed_by_hand(self, name: str, tensor: Data) -> bool:
        """Whether a program by hand reads `name` anywhere but at a cell's own place."""
        own = ", ".join(map(str, tensor.get("dims") or self.data.get("dims", ())))
        places = re.findall(rf"\b{name}\[", program) if isinstance(program := self.own.get("program"), str) else []
        return len(places) > str(self.own.get("program")).count(f"{name}[{own}]")

    def _outputs(self) -> dict[str, Any]:
        return {name: _shared(self.data["inputs"][x]) for name, x in self.wrt.items()}

    def _fields(self, tensors: Iterable[Data]) -> list[str]:
        """The fields that something other than a condition reads; kernels by hand may read any but those of arrays
        that are gone."""
        fields: list[str] = [*self.data["descriptor"]]
        flags = {str(tensor["optional"]) for tensor in tensors if tensor.get("optional")}
        if self.forward.by_hand:
            gone = {t.optional for t in self.forward.tensors.values() if t.optional} - flags
            dropped = self.own.get("descriptor")
            gone |= {n for n, v in dropped.items() if v is False} if isinstance(dropped, dict) else set()
            return [name for name in fields if name not in gone]
        said = [self.data["dims"], self.own.get("dims", ""), self.own.get("chunks", "")]
        names = _names(" ".join([*flags, *map(str, said)]))
        names |= {name for line in self.lines for name in reads(line.expr)} | _names(self.own.get("program", ""))
        names |= {"kind"} if self.data.get("kinds") else set()
        return [name for name in fields if name in names]

    def _field(self, name: str) -> Any:
        """A field of the forward, whose usual documentation may be another here."""
        field, usual = self.data["descriptor"][name], usual_docs(self.data, self.data["descriptor"])
        return {key: value for key, value in field.items() if key != "doc" or usual.get(name, {}).get(key) != value}

    def _gone(self, fields: list[str]) -> set[str]:
        return {*self.data["descriptor"]} - {*fields}

    def _tests(self, fields: list[str], inputs: Data) -> dict[str, Any]:
        tests = {key: value for key, value in self.data.get("tests", {}).items() if key != "definition"}
        for key, known in (("defaults", fields), ("draw", fields), ("ranges", inputs)):
            if key in tests:
                tests[key] = {name: value for name, value in tests[key].items() if name in known}
        tests.pop("finite", None)
        if not self.by_hand:
            tests["finite"] = list(self.forward.dtypes)
        return tests | {"cases": self._cases(tests.get("cases", []), fields)}

    def _cases(self, cases: Iterable[Data], fields: list[str]) -> list[dict[str, Any]]:
        gone = self._gone(fields)
        kept = [{name: value for name, value in case.items() if name not in gone} for case in cases]
        return [case for place, case in enumerate(kept) if case not in kept[:place]]


def _divisors(lines: Iterable[Line]) -> Iterator[Expr]:
    """What places have to be multiples of."""
    for part in (part for line in lines for part in walk(line.expr)):
        match part:
            case Call(op="equal", args=(Call(op="remainder", args=(_, by)), Const(value=0))) if reads(by):
                yield by


def _holds(condition: str, field: str, others: int) -> bool:
    """Whether a condition holds where a field is 0 and others are any number."""
    try:
        return bool(evaluate_condition(condition, {**dict.fromkeys(fields_of(condition), others), field: 0}))
    except (ConditionError, TypeError):  # it is of shapes, too
        return True


def _merged(followed: Data, own: Data) -> dict[str, Any]:
    """What is said comes first, also of a field that random problems draw; what is false is left out."""
    both = {**followed, **own}
    both |= {key: {**followed[key], **own[key]} for key in _TESTS if _are_mappings(followed.get(key), own.get(key))}
    return {name: value for name, value in both.items() if value is not False}


def _named(followed: Data, own: Any) -> Any:
    """The tensors that are named, or all that follow; what is said of one comes first."""
    if own is None or not isinstance(own, dict):
        return followed if own is None else own
    return {n: {**followed.get(n, {}), **t} if isinstance(t, dict) else t for n, t in own.items()}


def _are_mappings(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def _shared(tensor: Data) -> dict[str, Any]:
    return {key: tensor[key] for key in _SHARED if key in tensor}


def _of_forward(tensor: Data) -> dict[str, Any]:
    """An input of the forward, whose usual documentation is another here."""
    return {k: v for k, v in tensor.items() if k not in ("may_alias", "outside") and (k, v) != ("doc", "input")}


def _saved(doc: str) -> str:
    return f"{doc.removesuffix(_SAVED)} as the forward saved it" if doc.endswith(_SAVED) else "output of the forward"


def _printed(lines: Iterable[Line]) -> str:
    return "\n".join(f"{line.name} = {to_source(line.expr)}" for line in lines)


def _names(text: object) -> set[str]:
    return {*_NAME.findall(str(text))}


def _renamed(given: Any, usual: list[str], known: list[str]) -> dict[str, str]:
    """What the gradients of tensors are called: as is `given` of `known` ones, or `dx` for the `usual` `x`."""
    if not isinstance(given, dict):
        return {f"d{name}": name for name in usual}
    return {name: of for name, of in given.items() if isinstance(name, str) and of in known}
