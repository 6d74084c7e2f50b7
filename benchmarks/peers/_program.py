"""Any op with a program as a function of torch tensors, for a compiler to fuse: a peer that no table has to know."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from baracuda.checking.problems.problem import Problem
from baracuda.codegen.program import parse
from baracuda.codegen.program.ops import OPS
from baracuda.codegen.program.space import Space
from baracuda.codegen.program.tree import Call, Cast, Const, Expr, Name, Query, Read, Reduce, walk
from baracuda.codegen.spec.scope import scope_of
from baracuda.codegen.spec.spec import ProgramSpec

from ..case import Case

_REDUCTIONS: dict[str, Any] = {
    **{"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin, "prod": torch.prod},
    "var": partial(torch.var, correction=0),
    **{"any": torch.any, "all": torch.all, "argmax": torch.argmax, "argmin": torch.argmin},
}
# NumPy's names -> torch's.
_NAMED = {"left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift"}
_KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
_WHOLE = {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}
_STORED = _KINDS | _WHOLE | {"f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2, "bool": torch.bool}
_ABSENT = ("philox",)  # torch has other random numbers


class Program:
    """The program of a case's op. Called with its tensors in the caller's shapes, it returns its outputs likewise."""

    def __init__(self, case: Case) -> None:
        assert isinstance(case.spec, ProgramSpec)
        problem: Any = Problem.of(case.subject, case.declared, case.element)
        self.problem = problem  # its arrays are torch's
        self.space: Space = problem.space
        spec = case.spec.of_kind(case.values.get("kind"))
        assert isinstance(spec, ProgramSpec)
        self.lines = parse(spec.program, scope_of(spec))
        self.kinds = self.problem.stored_types()
        self.wide = _KINDS.get(case.element.row.acc.value, torch.int64)
        scalars = {n: v for n, v in case.values.items() if case.spec.descriptor[n].is_number}
        absent = {n: t.default for n, t in case.spec.inputs.items() if t.default is not None}
        self.fixed = {**absent, **scalars}

    @classmethod
    def of(cls, case: Case) -> Program | None:
        """None for an op that no program of torch's functions describes."""
        if not isinstance(case.spec, ProgramSpec) or case.element.value not in {**_KINDS, **_WHOLE}:
            return None
        program = cls(case)
        calls = [e for line in program.lines for e in walk(line.expr)]
        return None if any(not _has(e) for e in calls) else program

    def __call__(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        names: dict[str, Any] = dict(self.fixed)
        for name, tensor in tensors.items():
            flat = self.problem.flat(name, _Turned(tensor)).tensor
            is_bool = flat.dtype == torch.bool
            names[name] = flat if is_bool else flat.to(self.wide) if flat.is_floating_point() else flat.long()
        device = next(iter(tensors.values())).device
        for line in self.lines:
            names[line.name] = self._read(line.expr, names, device)
        return {argument: self._stored(argument, names[name]) for argument, name in self.problem.results.items()}

    def _stored(self, argument: str, value: torch.Tensor) -> torch.Tensor:
        kept = value.to(_STORED[self.kinds[argument].value])
        tensor: torch.Tensor = self.problem.caller(argument, _Turned(kept), self.problem.shape_of(argument)).tensor
        return tensor

    def _read(self, expr: Expr, names: Mapping[str, Any], device: torch.device) -> Any:
        match expr:
            case Const(value=value):
                return value
            case Name(id=name):
                return names[name]
            case Query(what="present", of=of):
                return of in self.space.present
            case Query(what="size", of=of):
                return self.space.extents[of]
            case Query(of=of):
                return torch.arange(self.space.extents[of], device=device).reshape(self.space.shape([of]))
            case Cast(to=to, arg=arg):
                kind = {"T": _STORED[self.problem.element.value], "acc": self.wide}.get(to) or _KINDS[to]
                return _real(self._read(arg, names, device), self.wide).to(kind).to(self.wide)
            case Call(op=op, args=args):
                return self._call(op, [self._read(a, names, device) for a in args])
            case Reduce(kind=kind, arg=arg, dims=dims):
                value = torch.as_tensor(self._read(arg, names, device))
                value = value.to(self.wide) if kind == "mean" else value
                value = value.reshape([1] * (len(self.space.extents) - value.dim()) + [*value.shape])
                value = value.expand([max(a, b) for a, b in zip(value.shape, self.space.shape(dims), strict=True)])
                axes = self.space.axes(dims)
                kept = [axis for axis in range(value.dim()) if axis not in axes]
                extents = [value.shape[axis] for axis in kept]
                reduced = _REDUCTIONS[kind](value.permute(*kept, *axes).reshape(*extents, -1), -1)
                return reduced.reshape([1 if axis in axes else n for axis, n in enumerate(value.shape)])
            case Read(tensor=tensor, dims=dims, places=places, outside=outside):
                found = [torch.as_tensor(self._read(place, names, device), device=device) for place in places]
                value, other = names[tensor], self._read(outside, names, device)
                return self._picked(value, dims, found, torch.as_tensor(other, dtype=value.dtype, device=device))
        raise AssertionError(expr)

    def _picked(
        self, array: torch.Tensor, dims: tuple[str, ...], places: list[torch.Tensor], outside: torch.Tensor
    ) -> torch.Tensor:
        axes, extents = self.space.axes(dims), [self.space.extents[dim] for dim in dims]
        by_dim = array.permute([*axes, *(i for i in range(array.dim()) if i not in axes)]).reshape(extents)
        inside = torch.ones((1,) * array.dim(), dtype=torch.bool, device=array.device)
        for place, extent in zip(places, extents, strict=True):
            inside = inside & (place >= 0) & (place < extent)
        last = [max(extent - 1, 0) for extent in extents]
        held = [place.clamp(0, most) for place, most in zip(places, last, strict=True)]
        return torch.where(inside, by_dim[tuple(held)], outside)

    def _call(self, op: str, args: list[Any]) -> Any:
        row = OPS[op]
        if not any(isinstance(a, torch.Tensor) for a in args):
            return np.asarray(row.numpy(np, *args)).item()  # torch takes Python's numbers
        if op == "where":
            return (args[1] if args[0] else args[2]) if isinstance(args[0], bool) else torch.where(*args)
        if row.symbol and row.kind != "bool":  # an operator of Python's
            return row.numpy(_Torch(), *args)
        args = [_real(a, self.wide) if row.kind == "float" else torch.as_tensor(a) for a in args]
        name = "eq" if op == "equal" else op  # torch.equal is about all elements at once
        return getattr(torch, name)(*args) if hasattr(torch, name) else row.numpy(_Torch(), *args)


def _has(expr: Expr) -> bool:
    """Whether torch can compute it as a program does."""
    match expr:
        case Call(op=op):
            return op not in _ABSENT
        case Reduce(kind=kind):
            return kind in _REDUCTIONS
    return isinstance(expr, Const | Name | Query | Cast | Read)


def _real(value: Any, wide: torch.dtype) -> torch.Tensor:
    """A tensor of floats."""
    tensor = torch.as_tensor(value)
    return tensor if tensor.is_floating_point() else tensor.to(wide)


class _Torch:
    """NumPy's names for torch's functions."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, _NAMED.get(name, name))

    @staticmethod
    def stop_gradient(value: Any) -> Any:
        return value

    @staticmethod
    def whole(value: Any) -> Any:
        if not value.is_floating_point():
            return value.to(torch.int64)
        edge = 2.0**63
        inside = torch.where((value > -edge) & (value < edge), value, 0).to(torch.int64)
        most = torch.iinfo(torch.int64)
        return torch.where(value >= edge, most.max, torch.where(value <= -edge, most.min, inside))


class _Turned:
    """A tensor with those of NumPy's methods that `flat` and `caller` of a problem use."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def T(self) -> _Turned:
        return _Turned(self.tensor.T)

    def reshape(self, *shape: Any) -> _Turned:
        return _Turned(self.tensor.reshape(*shape))

    def transpose(self, order: Any) -> _Turned:
        return _Turned(self.tensor.permute([int(axis) for axis in order]))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.broadcast_to:
            return NotImplemented
        array, shape = args
        return _Turned(array.tensor.broadcast_to([int(n) for n in shape]))

