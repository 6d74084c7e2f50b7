"""Hostile calls: every public parameter gets wrong types, odd numbers, and objects that lie or raise."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np

import baracuda.ops as ops
import baracuda.runtime as rt
from baracuda.codegen.project import PACKAGE, installed, plans_of
from baracuda.codegen.spec.load import Loaded, load_folder
from baracuda.runtime import BaracudaError, get_device

from ...problems.subject import Subject
from ..draw import payloads
from ..verdict import refusal
from .target import Target

_OF_EACH = 2  # ops of a family and direction, those of the fewest arguments


@dataclass(frozen=True)
class Good:
    """A valid call: a function and its arguments by name."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A valid call with some arguments replaced by `hostile` ones from a seed."""

    good: Good
    replaced: tuple[str, ...]
    seed: int


def _some(loaded: Iterable[Loaded]) -> Iterator[Loaded]:
    """Ops of every family, forward and backward."""
    kinds: dict[tuple[str, str], list[Loaded]] = {}
    for loaded_spec in sorted(loaded, key=lambda loaded_spec: (len(loaded_spec.spec.arguments), loaded_spec.spec.op)):
        kinds.setdefault((loaded_spec.spec.family, loaded_spec.spec.direction), []).append(loaded_spec)
    return (loaded_spec for kind in kinds.values() for loaded_spec in kind[:_OF_EACH])


class Calls(Target):
    """Calls of descriptors, plans, preferences, functions and the readers of arrays."""

    name: ClassVar[str] = "calls"
    pure = False

    def __init__(self, seed: int, folder: Path) -> None:
        self.good: list[Good] = []
        super().__init__(seed, folder)

    def prepare(self) -> None:
        plans_of(PACKAGE)
        loaded = load_folder(installed("baracuda.specs"))
        for loaded_spec in _some(loaded.values()):
            self.good += _calls_of(Subject(loaded_spec, loaded, PACKAGE))
        self.good += _others()
        for good in self.good:
            good.function(**good.arguments)

    def case(self, index: int, rng: Random) -> object:
        turns = [(good, name) for good in self.good for name in good.arguments]
        good, name = turns[index % len(turns)]
        extra = [rng.choice(list(good.arguments))] if rng.random() < 0.2 else []
        return Call(good, tuple(dict.fromkeys((name, *extra))), rng.getrandbits(32))

    def judge(self, case: object) -> str:
        assert isinstance(case, Call)
        rng = Random(case.seed)
        replaced = {name: hostile(rng, case.good.arguments[name]) for name in case.replaced}
        try:
            case.good.function(**{**case.good.arguments, **replaced})
        except BaracudaError as error:
            return refusal(error)
        return ""

    def describe(self, case: object) -> str:
        assert isinstance(case, Call)
        rng = Random(case.seed)
        arguments = (f"{name}={_safe_repr(hostile(rng, case.good.arguments[name]))}" for name in case.replaced)
        return f"{case.good.name}({', '.join(arguments)})"


def _safe_repr(value: Any) -> str:
    try:
        return f"<{type(value).__name__}> {value!r:.200}"
    except Exception as error:  # it is hostile
        return f"<{type(value).__name__}> whose repr raises {type(error).__name__}"


def _calls_of(subject: Subject) -> Iterator[Good]:
    spec, plan_of = subject.spec, subject.plan
    case = min(spec.tests.cases, key=lambda c: math.prod(v if isinstance(v, int) else 1 for v in _numbers(c)))
    element = str(case.get("dtype", spec.dtypes[0]))
    values = subject.values({name: value for name, value in case.items() if name != "dtype"})
    fields = {**values, "element": element}
    yield Good(plan_of.DESCRIPTOR.__name__, partial(_checked, plan_of.DESCRIPTOR), fields)
    descriptor = plan_of.DESCRIPTOR(**fields)
    select = {"descriptor": descriptor, "preference": rt.PlanPreference(), "device": "host", "layouts": plan_of.LAYOUTS}
    yield Good(f"{plan_of.__name__}.select", plan_of.select, select)
    plan = plan_of.select(descriptor, device="host")
    arrays = {name: _array(plan, name) if plan.present(name) else None for name in plan.ARGUMENTS}
    workspace = np.zeros(plan.workspace_bytes, np.uint8) if plan.workspace_bytes else None
    for method in ("run", "bind", "can_implement"):
        arguments = {**arrays, "workspace": workspace, "stream": None}
        yield Good(f"{plan_of.__name__}.{method}", partial(_raise_refusal, getattr(plan, method)), arguments)
    yield Good(f"{plan_of.__name__}.prepare", plan.prepare, {"device": "host", "dtypes": None})
    function = getattr(ops, spec.op)
    parameters = inspect.signature(function).parameters
    inputs = {name: array for name, array in arrays.items() if name in spec.inputs and array is not None}
    fields = {name: value for name, value in fields.items() if name in parameters and name not in inputs}
    yield Good(f"ops.{spec.op}", function, {**inputs, **fields, "stream": None})


def _numbers(case: Mapping[str, Any]) -> Iterator[Any]:
    for value in case.values():
        yield from value if isinstance(value, list) else [value]


def _checked(kind: Any, /, **fields: Any) -> None:
    kind(**fields).check()


def _raise_refusal(method: Callable[..., Any], /, **arguments: Any) -> None:
    """A verdict may contain an error, which must be one of ours, too."""
    verdict = method(**arguments)
    if (error := getattr(verdict, "error", None)) is not None:
        raise error


def _array(plan: Any, name: str) -> Any:
    return np.zeros(plan.shapes()[name][0], plan.elements_of(name)[0].row.numpy)


def _others() -> Iterator[Good]:
    preference = {"max_workspace_bytes": 1 << 40, "allow_sm90a": True, "prefer_backend": None, "rungs": ()}
    others = {"archs": None, "schedules": None, "tuned": True, "numerics": None}
    yield Good("PlanPreference", rt.PlanPreference, {**preference, **others})
    yield Good("view", rt.view, {"array": np.zeros((3, 4), np.float32), "name": "x"})
    yield Good("get_device", get_device, {"name": "host"})
    yield Good("KernelSku.parse", rt.KernelSku.parse, {"text": str(next(iter(rt.REGISTRY)).sku)})
    yield Good("REGISTRY.lookup", rt.REGISTRY.lookup, {"sku": next(iter(rt.REGISTRY)).sku})
    yield Good("ElementKind.of", partial(rt.ElementKind.of, name="element"), {"value": "f32"})


class Oops(Exception):
    """What a hostile object raises."""


def _raises(*_: Any, **__: Any) -> Any:
    raise Oops("x" * 30000 + "\n\x1b[2J")


def _lying(**methods: Any) -> Any:
    """An object with these attributes, functions among them as methods of its class."""
    return type("Lying", (), methods)()


_INTERFACE = {"shape": (3, 4), "typestr": "<f4", "data": (0, False), "version": 3, "strides": None}


def _interface(rng: Random) -> Any:
    """An array interface one of whose entries is no such thing."""
    key = rng.choice(list(_INTERFACE))
    wrong: Any = rng.choice((None, "", "x", -1, (), (-1,), ("a",), [[1]], (2**80,), 1.5, b"\0", {}, (1, 2, 3, 4, 5)))
    interface = {**_INTERFACE, key: wrong}
    if rng.random() < 0.3:
        del interface[key]
    name = rng.choice(("__array_interface__", "__cuda_array_interface__"))
    return _lying(**{name: rng.choice((interface, interface, None, 7, "x", property(_raises)))})


def _dlpack(rng: Random) -> Any:
    device = rng.choice(((1, 0), (2, 0), (99, 99), None, "x", (1,), (2**40, 0)))
    capsule = rng.choice((None, 7, b"x", np.zeros(3), object()))
    return _lying(
        __dlpack__=rng.choice((lambda *_, **__: capsule, _raises)),
        __dlpack_device__=rng.choice((lambda *_: device, _raises)),
    )


def _array_like(rng: Random, old: Any) -> Any:
    """Another array than the good one."""
    array = old if isinstance(old, np.ndarray) else np.zeros((3, 4), np.float32)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: array.astype(rng.choice(("f2", "f4", "f8", ">f4", "i4", "u1", "c8", "?", "O", "S3", "U2", "M8[s]"))),
        lambda: np.zeros(array.shape, [("a", "f4"), ("b", "i4")]),
        lambda: array[..., None],
        lambda: array.reshape(-1),
        lambda: array.reshape(-1)[:-1],
        lambda: np.zeros((), array.dtype),
        lambda: np.zeros((0, *array.shape), array.dtype),
        lambda: np.zeros((1,) * 40, array.dtype),
        lambda: array[::-1] if array.ndim else array[...],
        lambda: np.broadcast_to(np.resize(array, 1)[0], array.shape),
        lambda: _read_only(array.copy()),
        lambda: np.frombuffer(bytearray(array.nbytes + 1), np.uint8)[1:].view(array.dtype),
        lambda: array.tolist(),
        lambda: memoryview(bytearray(64)),
        lambda: np.ma.masked_array(array, True),
        lambda: np.memmap,
        lambda: type(array),
    )
    return rng.choice(kinds)()


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _object(rng: Random) -> Any:
    """An object whose protocol lies or raises."""
    name = rng.choice((
        "__index__", "__int__", "__float__", "__len__", "__iter__", "__bool__", "__hash__", "__eq__", "__repr__",
        "__str__", "__getattr__", "__getitem__", "__array__", "__fspath__", "__format__", "__cuda_stream__",
    ))  # fmt: skip
    answers: tuple[Any, ...] = (None, -1, 1.5, "x" * 20000, 2**70, [], float("nan"))
    answer = rng.choice(answers)
    return _lying(**{name: rng.choice((_raises, lambda *_, **__: answer))})


def hostile(rng: Random, old: Any) -> Any:
    """Something else in place of `old`."""
    pick = rng.random()
    if isinstance(old, np.ndarray) and pick < 0.45:
        return _array_like(rng, old)
    if pick < 0.55:
        return _object(rng)
    if pick < 0.65:
        return rng.choice((_interface, _dlpack))(rng)
    if pick < 0.85:
        return _iterable(rng, old)
    return payloads.value(rng, old)


def _iterable(rng: Random, old: Any) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: itertools.count(1),
        lambda: iter(lambda: "x", None),
        lambda: iter(()),
        lambda: range(10**12),
        lambda: (_ for _ in (1, 2, "x")),
        lambda: tuple(range(200)),
        lambda: [10**5000],
        lambda: (2**63,),
        lambda: (True, 1.0),
        lambda: {1: 2},
        lambda: {"x"},
        lambda: b"\x01\x02",
        lambda: bytearray(4),
        lambda: np.int64(3),
        lambda: np.float16("nan"),
        lambda: np.array(["a"]),
        lambda: 1j,
        lambda: math.nan,
        lambda: -math.inf,
        lambda: 10**5000,
        lambda: Ellipsis,
        lambda: NotImplemented,
        lambda: type(old),
        lambda: [old],
        lambda: (old, old),
        lambda: object(),
        lambda: _cyclic(),
    )
    return rng.choice(kinds)()


def _cyclic() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle
