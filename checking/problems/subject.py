"""An op under test: its spec, the specs around it, its generated plan, and its descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from baracuda.codegen.spec.load import Loaded
from baracuda.codegen.spec.spec import OpSpec
from baracuda.runtime import Descriptor, ElementKind


@dataclass(frozen=True, eq=False)
class Subject:
    """An op with what its tests need: the spec, the specs around it and its generated plan."""

    loaded: Loaded
    others: Mapping[str, Loaded]
    package: str

    @property
    def spec(self) -> OpSpec:
        return self.loaded.spec

    @property
    def plan(self) -> Any:
        """The plan class, of the module that is imported now: a mutant may have taken its place."""
        return getattr(import_module(f"{self.package}.{self.spec.category}.{self.spec.op}"), self.spec.plan)

    def descriptor(self, values: Mapping[str, Any], element: ElementKind | str) -> Descriptor:
        """The descriptor of a test case, with the spec's defaults for what the case does not say."""
        return self.plan.DESCRIPTOR(**self.values(values), element=element)  # type: ignore[no-any-return]

    def values(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Every field of the descriptor but `element`."""
        merged = {**self.spec.of_kind(case.get("kind")).tests.defaults, **case}
        values = {name: merged.get(name, field.default) for name, field in self.spec.descriptor.items()}
        for name, field in self.spec.descriptor.items():
            if field.same_as and name not in merged:
                values[name] = values[field.same_as]
        return values
