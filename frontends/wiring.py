"""How a backward op follows from its forward's call, for frontends of any library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import baracuda.runtime as rt
from baracuda.ops.signature import Signature


class Wiring:
    """A forward and its gradient op. Tensors with equal names are the same in both.

    Everything that follows from the specs is computed once, because the rest adds to every call.
    """

    def __init__(self, forward: Signature, backward: Signature) -> None:
        gradient = backward.plan.GRADIENT
        assert gradient is not None
        self.forward, self.backward = forward, backward
        self.cotangents = gradient.cotangents
        self.saved = [a.name for a in backward.inputs if a.name not in gradient.cotangents]
        self.wrt = [(gradient.wrt[a.name], a) for a in backward.outputs]
        self.differentiable = frozenset(gradient.wrt.values())
        self._chosen = {keyword: (gradient.wrt[a.name], a) for keyword, a in backward.chosen.items()}
        self._parameters = (*backward.parameters, *(("element",) if backward.takes_element else ()))
        self._flags = {a.optional for a in backward.outputs}

    def keywords(
        self,
        fields: Mapping[str, Any],
        requested: Collection[str],
        dtypes: Mapping[str, Any],
        allowed: Callable[[rt.Argument], Sequence[Any]],
    ) -> dict[str, Any]:
        """The backward's keywords: `fields` of the same names, its element, which gradients are `requested`,
        and their types where these are `allowed`.
        """
        flags = {f: any(name in requested for name, a in self.wrt if a.optional == f) for f in self._flags}
        values = {**fields, **flags}
        keywords = {name: values[name] for name in self._parameters if values.get(name) is not None}
        for keyword, (name, argument) in self._chosen.items():
            if name in dtypes and dtypes[name] in allowed(argument):
                keywords[keyword] = dtypes[name]
        return keywords


def wirings(signatures: Mapping[str, Signature]) -> dict[str, Wiring]:
    """The wiring of each op that has a gradient, by name."""
    backwards = {s.plan.GRADIENT.of: s for s in signatures.values() if s.plan.GRADIENT is not None}
    return {name: Wiring(s, backwards[name]) for name, s in signatures.items() if name in backwards}
