"""The spec of a gradient, from its forward's: what its file, or the forward's `backward`, leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..program import Line, parse, to_source
from ..program.derive import Forward, derive
from ..program.tree import reads
from .map_program import scope_of_map
from .scope import Programmed, kinds_of, scope_of
from .spec import MapSpec, MapTensor, RowSpec
from .wording import did_you_mean
from .yaml_source import Loc, YamlSource

_COPIED = ("category", "kind", "family", "source", "dtypes", "dims", "arch")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def is_derived(data: Any) -> bool:
    """Whether the file of a gradient leaves its program to be derived."""
    return isinstance(data, dict) and isinstance(g := data.get("gradient"), dict) and g.get("derive") is True


def within(source: YamlSource) -> YamlSource:
    """What the file of a forward says of its `backward`, as a file of its own."""
    lines, text_lines = _below("backward", source.lines), _below("backward", source.text_lines)
    own = source.data["backward"]
    gradient = own.get("gradient", {})
    if isinstance(gradient, dict):
        gradient = {"of": source.data["op"], "derive": True, **gradient}
    return YamlSource(source.path, {**own, "gradient": gradient}, lines, text_lines)


def _below(key: str, lines: Mapping[Loc, int]) -> dict[Loc, int]:
    return {loc[1:]: number for loc, number in lines.items() if loc[:1] == (key,)}


def completed(source: YamlSource, forward: Programmed, data: Mapping[str, Any]) -> YamlSource:
    """`source` with everything that follows from the `forward` op and its file's `data`."""
    for section, known in (("cotangents", forward.outputs), ("wrt", forward.inputs)):
        given = source.data["gradient"].get(section)
        for name in given.values() if isinstance(given, dict) else ():
            if isinstance(name, str) and name not in known:
                text = f"op {forward.op!r} has no {name!r}; {did_you_mean(name, known)}"
                raise source.error(("gradient", section), text)
    return replace(source, data=_Backward(forward, data, source.data).complete())


class _Backward:
    def __init__(self, forward: Programmed, data: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self.forward, self.data, self.own = forward, data, own
        gradient = own["gradient"]
        floats = [name for name, t in forward.tensors.items() if not t.dtype[0].startswith("i")]
        self.saved = [name for name in _texts(gradient.get("saved")) if name in forward.tensors]
        outputs = [name for name in forward.outputs if name in floats and name not in self.saved]
        inputs = [name for name in forward.inputs if name in floats]
        self.cotangents = _renamed(gradient.get("cotangents"), outputs)
        self.wrt = _renamed(gradient.get("wrt"), inputs)
        self.lines = self._lines()

    def _lines(self) -> tuple[Line, ...]:
        spec = self.forward
        scope = scope_of_map(spec) if isinstance(spec, MapSpec) else scope_of(spec)
        lines, over = parse(spec.program, scope), _over(spec)
        dims = {**scope.values, **{d: over[output] for d, output in self.cotangents.items()}}
        pull = {name for name, dim in spec.dims.items() if dim.axes != "rest"} if isinstance(spec, RowSpec) else ()
        saved = {name for name in self.saved if name in spec.outputs}
        dims |= {name: over[name] for name in saved}
        forward = Forward(lines, kinds_of(spec, lines), dims, frozenset(pull))
        return derive(forward, self.cotangents, self.wrt, saved)

    def complete(self) -> dict[str, Any]:
        """The data of the whole file; what it says itself comes first."""
        gradient = {"cotangents": self.cotangents, "wrt": self.wrt, "saved": self.saved, **self.own["gradient"]}
        return {**self._followed(), **self.own, "gradient": gradient}

    def _followed(self) -> dict[str, Any]:
        op, data, names = self.forward.op, self.data, " and ".join(self.wrt.values())
        program = "\n".join(f"{line.name} = {to_source(line.expr)}" for line in self.lines)
        inputs, outputs = self._inputs(), self._outputs()
        fields = self._fields([*inputs.values(), *outputs.values()])
        followed = {
            **{key: data[key] for key in _COPIED if key in data},
            "op": f"{op}_backward",
            "direction": "backward",
            "plan": f"{self.forward.plan.removesuffix('Plan')}BackwardPlan",
            "doc": f"Gradient{'s'[: len(self.wrt) != 1]} of {op} with respect to {names}.",
            "formula": program,
            "descriptor": {name: data["descriptor"][name] for name in fields},
            "require": [r for r in data.get("require", []) if not self._gone(fields) & _names(r["that"])],
            "inputs": inputs,
            "outputs": {name: self._aliasing(tensor, name, inputs) for name, tensor in outputs.items()},
            "program": program,
            "reproducibility": {name: self._promises(name) for name in outputs},
            "tests": self._tests(fields, inputs),
        }
        if "precision" in data:
            followed["precision"] = {key: value for key, value in data["precision"].items() if key != "bound"}
        if "bench" in data:
            followed["bench"] = {**data["bench"], "cases": self._cases(data["bench"].get("cases", []), fields)}
        return followed

    def _inputs(self) -> dict[str, Any]:
        """The gradients that come in, then what the program reads, in the forward's order."""
        read = frozenset[str]().union(*(reads(line.expr) for line in self.lines))
        inputs = {}
        for name, output in self.cotangents.items():
            tensor = self._tensor(self.data["outputs"][output], f"gradient of the loss with respect to {output}")
            inputs[name] = tensor | ({"default": 0} if "optional" in tensor else {})
        for name in self.forward.inputs:
            if name in read:
                inputs[name] = {k: v for k, v in self.data["inputs"][name].items() if k != "may_alias"}
        for name in self.saved:
            if name in read and name in self.forward.outputs:
                inputs[name] = self._tensor(self.data["outputs"][name], f"{name} as the forward saved it")
        return inputs

    def _outputs(self) -> dict[str, Any]:
        inputs = self.data["inputs"]
        return {name: self._tensor(inputs[x], f"gradient with respect to {x}") for name, x in self.wrt.items()}

    @staticmethod
    def _tensor(data: Mapping[str, Any], doc: str) -> dict[str, Any]:
        return {key: data[key] for key in ("dims", "dtype", "optional") if key in data} | {"doc": doc}

    def _aliasing(self, tensor: dict[str, Any], name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """An output may take the place of its own input, and of the first gradient that comes in."""
        if self._sums(name):
            return tensor
        known = {n: inputs[n] for n in (self.wrt[name], *self.cotangents) if n in inputs}
        shared = [n for n, t in known.items() if "optional" not in t and _storage(t) == _storage(tensor)]
        return tensor | ({"may_alias": shared} if shared else {})

    def _sums(self, name: str) -> bool:
        """Whether the gradient is a sum over dims that its input lacks."""
        over = _over(self.forward)
        return any(over[output] - over[self.wrt[name]] for output in self.cotangents.values())

    def _fields(self, tensors: Iterable[Mapping[str, Any]]) -> list[str]:
        """The fields that something other than a condition reads."""
        texts = [*(t["optional"] for t in tensors if "optional" in t)]
        for dim in self.data["dims"].values():
            texts += [str(dim.get("of")), str(dim.get("axes", ""))]
        names = {name for text in texts for name in _names(text)}
        names |= {name for line in self.lines for name in reads(line.expr)}
        return [name for name in self.data["descriptor"] if name in names]

    def _gone(self, fields: list[str]) -> set[str]:
        return {*self.data["descriptor"]} - {*fields}

    def _promises(self, name: str) -> list[str]:
        """What all of the forward's outputs are promised; a sum of terms depends on how many there are."""
        promised = [rungs or () for rungs in self.data["reproducibility"].values()]
        kept = [rung for rung in (promised[0] if promised else ()) if all(rung in rungs for rungs in promised)]
        dropped = {"bit_stable_across_arch"} | ({"batch_invariant"} if self._sums(name) else set())
        return [rung for rung in kept if rung not in dropped]

    def _tests(self, fields: list[str], inputs: Mapping[str, Any]) -> dict[str, Any]:
        tests = {key: value for key, value in self.data["tests"].items() if key != "definition"}
        for key, known in (("defaults", fields), ("draw", fields), ("ranges", inputs)):
            if key in tests:
                tests[key] = {name: value for name, value in tests[key].items() if name in known}
        tests["finite"] = self.data["dtypes"]
        return tests | {"cases": self._cases(tests["cases"], fields)}

    def _cases(self, cases: Iterable[Mapping[str, Any]], fields: list[str]) -> list[dict[str, Any]]:
        gone = self._gone(fields)
        kept = [{name: value for name, value in case.items() if name not in gone} for case in cases]
        return [case for place, case in enumerate(kept) if case not in kept[:place]]


def _names(text: object) -> set[str]:
    return {*_NAME.findall(str(text))}


def _texts(given: Any) -> list[str]:
    return [text for text in given if isinstance(text, str)] if isinstance(given, list) else []


def _renamed(given: Any, known: list[str]) -> dict[str, str]:
    """What the gradients of the `known` tensors are called: as is `given`, or `dx` for `x`."""
    if not isinstance(given, dict):
        return {f"d{name}": name for name in known}
    return {name: of for name, of in given.items() if isinstance(name, str) and of in known}


def _over(spec: Programmed) -> dict[str, frozenset[str]]:
    """The dims along which each tensor varies."""
    return {n: t.over if isinstance(t, MapTensor) else frozenset(t.dims) for n, t in spec.tensors.items()}


def _storage(tensor: Mapping[str, Any]) -> tuple[Any, Any]:
    return tensor.get("dims"), tensor.get("dtype")
