"""OpSpec -> Op: all decisions that a template relies on."""

from __future__ import annotations

from ..spec.family import family_of
from ..spec.once import once
from ..spec.spec import OpSpec
from .op import Op


def lower(spec: OpSpec, spec_path: str) -> Op:
    """The decisions for `spec`, which has been checked."""
    if spec.by_hand:  # files beside it decide, too
        return family_of(spec).lower(spec, spec_path)
    return _lowered(spec, spec_path)


@once
def _lowered(spec: OpSpec, spec_path: str) -> Op:
    return family_of(spec).lower(spec, spec_path)
