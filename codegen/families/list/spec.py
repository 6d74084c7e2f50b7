"""The keys of a spec of the list family."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...spec.types import Arguments, Expression, Ident
from ..map.spec import MapSpec, MapTensor


class ListTensor(MapTensor):
    """A list of arrays, or a single number in memory."""

    dims: Annotated[tuple[Expression, ...], Field(max_length=1, strict=False)]
    """The dim, for a list of arrays; `[]` for an array of no axes, whose number all elements read."""
    layout: Literal["contiguous"] = "contiguous"
    """The arrays of a list have no gaps."""

    @property
    def held(self) -> str:
        """What its argument holds: a "list" of arrays, or an "array" of no axes."""
        return "list" if self.dims else "array"


class ListSpec(MapSpec):
    """An op on every element of each array of some lists, which run as one launch."""

    inputs: Annotated[dict[Ident, ListTensor], Arguments]
    """Input -> what it is, in the order of the plan's arguments; for example `{lr: {dims: [], dtype: f32, doc: learning
    rate}}`."""
    outputs: Annotated[dict[Ident, ListTensor], Arguments]
    """Output -> what it is, in the order of the plan's arguments, after the inputs; for example `{p_new: {updates: p,
    doc: the parameters}}`."""
