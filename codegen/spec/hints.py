"""Walks the type hints of a pydantic model as its error locations do."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, RootModel


def child(hint: Any, step: str | int) -> Any:
    """Hint of the entry `step` of a value that `hint` describes; None if unknown."""
    hint = _bare(hint)
    if _is_model(hint):
        return dict(_fields(hint)).get(str(step))
    args, origin = get_args(hint), get_origin(hint)
    if origin is tuple and Ellipsis not in args:
        return args[step] if isinstance(step, int) and step < len(args) else None
    if isinstance(step, int):
        return args[0] if args else None
    return args[1] if len(args) == 2 else None


def union_of(hint: Any) -> tuple[Any, ...]:
    """The branches of a union without None; empty if `hint` is none or only optional."""
    hint = _bare(hint)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


def pick_branch(branches: tuple[Any, ...], label: str) -> Any:
    """The branch that pydantic calls `label`: a type's name, or the tag of a discriminated union."""
    for branch in map(_bare, branches):
        name = getattr(get_origin(branch) or branch, "__name__", "")
        if label == name or label.startswith(f"{name}[") or label in _tags(branch):
            return branch
    return None


def keys_of(hint: Any) -> tuple[str, ...]:
    """The keys of a model as a file spells them; empty for anything else."""
    hint = _bare(hint)
    return tuple(key for key, _ in _fields(hint)) if _is_model(hint) else ()


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield str(field.validation_alias or field.alias or name), field.annotation


def _tags(branch: Any) -> set[str]:
    hints = (hint for _, hint in _fields(branch)) if _is_model(branch) else ()
    return {str(tag) for hint in hints if get_origin(hint) is Literal for tag in get_args(hint)}


def _bare(hint: Any) -> Any:
    """`hint` without what adds no step to a location: Annotated, Optional, aliases, root models."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        branches = tuple(arg for arg in get_args(hint) if arg is not NoneType)
        return _bare(branches[0]) if len(branches) == 1 else Union[branches]  # noqa: UP007 (built at run time)
    if hasattr(hint, "__value__"):
        return _bare(hint.__value__)
    if isinstance(hint, type) and issubclass(hint, RootModel):
        return _bare(hint.model_fields["root"].annotation)
    return hint
