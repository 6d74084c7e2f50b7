"""Invariant: whatever a caller passes, a call works, or one short line says which argument is wrong and why."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import baracuda.runtime as rt
from baracuda import ops
from baracuda.generated import (
    FlashSdpaDescriptor,
    RepeatDescriptor,
    RMSNormBackwardDescriptor,
    RMSNormBackwardPlan,
    RMSNormDescriptor,
    RMSNormPlan,
    SoftmaxDescriptor,
)
from baracuda.runtime import BaracudaError, InvalidProblem
from baracuda.runtime.arrays.tensor import check_span, view

LONGEST = 2000  # characters of a message


# ------------------------------------------------------------------------------------------------------ what is passed


def raising(error: BaseException) -> Callable[..., Any]:
    def method(*_: object, **__: object) -> Any:
        raise error

    return method


def lying(**methods: Any) -> Any:
    """An object of a class with these attributes."""
    return type("Lying", (), methods)()


def cai(**facts: object) -> Any:
    """An object that says this of its memory on a GPU."""
    usual = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": None, "strides": None}
    return lying(__cuda_array_interface__={**usual, **facts})


def dlpack(capsule: Any, device: Any = (1, 0)) -> Any:
    return lying(__dlpack__=lambda *_, **__: capsule, __dlpack_device__=lambda *_: device)


class OwnBase(np.ndarray):
    """An array that says it lies in its own memory."""

    @property
    def base(self) -> Any:
        return self


class Everything:
    """Says that it has whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}" * 10_000)


class Endless:
    def __iter__(self) -> Iterator[int]:
        return itertools.count()

    def __len__(self) -> int:
        return 3

    def __contains__(self, _: object) -> bool:
        return True


def on_itself() -> np.ndarray[Any, Any]:
    owner = lying(__array_interface__=np.zeros((2, 3), np.float32).__array_interface__)
    owner.base = owner
    return np.asarray(owner)


def bases_without_end() -> np.ndarray[Any, Any]:
    kind = type("Owner", (), {"base": property(lambda self: type(self)())})
    owner = kind()
    kind.__array_interface__ = np.zeros((2, 3), np.float32).__array_interface__
    return np.asarray(owner)


class Name(str):
    __slots__ = ()
    __hash__ = raising(RuntimeError("no hash"))  # type: ignore[assignment]


VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "abc",
    "long text": lambda: "x" * 10**6,
    "text of lines": lambda: "a\nb\x1b[31m\u202e",
    "bytes": lambda: b"\2\3",
    "dict": lambda: {2: 3},
    "set": lambda: {2, 3},
    "list": lambda: [2, 3],
    "nested": lambda: [[2], [[3]]],
    "deep": lambda: SimpleNamespace(base=[[[[[[[[]]]]]]]]),
    "long list": lambda: [1] * 10**6,
    "object": object,
    "a type": lambda: int,
    "function": lambda: raising,
    "huge": lambda: 10**5000,
    "negative": lambda: -1,
    "2^63": lambda: 2**63,
    "bool": lambda: True,
    "float": lambda: 1.5,
    "NaN": lambda: float("nan"),
    "complex": lambda: 1j,
    "endless": itertools.count,
    "endless collection": Endless,
    "index that raises": lambda: lying(__index__=raising(RuntimeError("no index"))),
    "index that lies": lambda: lying(__index__=lambda _: "1"),
    "float that raises": lambda: lying(__float__=raising(RuntimeError("no float"))),
    "float that lies": lambda: lying(__float__=lambda _: "1.0"),
    "iterator that raises": lambda: lying(__iter__=raising(KeyError())),
    "length that raises": lambda: lying(__len__=raising(ZeroDivisionError()), __iter__=lambda _: iter(())),
    "repr that raises": lambda: lying(__repr__=raising(RuntimeError("no repr"))),
    "long repr": lambda: lying(__repr__=lambda _: "long\n" * 10**5),
    "equality that raises": lambda: lying(__eq__=raising(RuntimeError("no ==")), __hash__=None),
    "hash that raises": lambda: lying(__hash__=raising(RuntimeError("no hash"))),
    "name without hash": lambda: Name("f32"),
    "attributes that raise": Everything,
    "class that raises": lambda: lying(__class__=property(raising(RuntimeError("no class")))),
    "0-d": lambda: np.float32(1),
    "0-d array": lambda: np.array(1, np.float32),
    "array of ints": lambda: np.array([2, 3]),
    "65 extents": lambda: [1] * 65,
    "other shape": lambda: np.zeros((3, 2), np.float32),
    "swapped bytes": lambda: np.zeros((2, 3), ">f4"),
    "structured": lambda: np.zeros((2, 3), [(f"field{n}", "f4") for n in range(2000)]),
    "objects": lambda: np.zeros((2, 3), object),
    "dates": lambda: np.zeros((2, 3), "M8[s]"),
    "texts": lambda: np.zeros((2, 3), "U7"),
    "long double": lambda: np.zeros((2, 3), np.longdouble),
    "masked": lambda: np.ma.zeros((2, 3), np.float32),
    "read-only": lambda: np.broadcast_to(np.float32(1), (2, 3)),
    "2^60 extents": lambda: np.broadcast_to(np.float32(1), (2**60,)),
    "strides that lie": lambda: as_strided(np.zeros(6, np.float32), (2, 3), (2**40, 4)),
    "on itself": on_itself,
    "its own base": lambda: np.zeros((2, 3), np.float32).view(OwnBase),
    "bases without end": bases_without_end,
    "array interface": lambda: lying(__array_interface__={"shape": "abc"}),
    "capsule that is none": lambda: dlpack(object()),
    "capsule None": lambda: dlpack(None),
    "DLPack of another device": lambda: dlpack(np.zeros((2, 3), np.float32).__dlpack__(), (2, 10**9)),
    "DLPack of no device": lambda: dlpack(None, "abc"),
    "DLPack that raises": lambda: lying(
        __dlpack__=raising(AssertionError()), __dlpack_device__=raising(AssertionError())
    ),
    "DLPack without device": lambda: lying(__dlpack__=lambda *_, **__: None),
    "CAI of text": lambda: cai(shape="abc"),
    "CAI that is none": lambda: lying(__cuda_array_interface__=3),
    "CAI without shape": lambda: lying(__cuda_array_interface__={}),
    "CAI that raises": lambda: lying(__cuda_array_interface__=property(raising(AssertionError()))),
    "CAI of floats": lambda: cai(shape=(2.0, 3.0)),
    "CAI below 0": lambda: cai(shape=(-2, 3)),
    "CAI of 2^62 extents": lambda: cai(shape=(2**62, 2**62)),
    "CAI of far strides": lambda: cai(strides=(2**62, 2**61)),
    "CAI of few strides": lambda: cai(strides=(4,)),
    "CAI of no data": lambda: cai(data=None),
    "CAI of address text": lambda: cai(data=("x", False)),
    "CAI below address 0": lambda: cai(data=(-4096, False)),
    "CAI of no type": lambda: cai(typestr="<q17"),
    "CAI of 2^70": lambda: cai(data=(2**70, False)),
    "stream that lies": lambda: lying(__cuda_stream__=lambda _: ("a", "b")),
    "stream that raises": lambda: lying(__cuda_stream__=raising(AssertionError())),
    "endless stream": lambda: lying(__cuda_stream__=lambda _: itertools.count()),
    "stream of 2^70": lambda: lying(__cuda_stream__=lambda _: (0, 2**70)),
    "reference of floats": lambda: rt.TensorRef(np.zeros(6, np.float32), (2.0, 3.0)),  # type: ignore[arg-type]
    "reference of NaN strides": lambda: rt.TensorRef(np.zeros(6, np.float32), (2, 3), (float("nan"), 1)),  # type: ignore[arg-type]
    "reference from 0.5": lambda: rt.TensorRef(np.zeros(6, np.float32), (2, 3), None, 0.5),  # type: ignore[arg-type]
    "reference from 2^62": lambda: rt.TensorRef(np.zeros(6, np.float32), (2, 3), None, 2**62),
    "reference without end": lambda: rt.TensorRef(np.zeros(6, np.float32), itertools.count()),  # type: ignore[arg-type]
    "reference to nothing": lambda: rt.TensorRef(None, (2, 3)),
    "reference to itself": lambda: _to_itself(),
    "view of nothing": lambda: rt.TensorView(*[None] * 8),  # type: ignore[arg-type]
    "view of text": lambda: rt.TensorView(4096, "ab", (1, 1), "f32", "host", False, None, None),  # type: ignore[arg-type]
    "view of floats": lambda: rt.TensorView(4096.0, (2, 3), (3, 1), "f32", "host", False, None, None),  # type: ignore[arg-type]
    "view of lists": lambda: rt.TensorView(4096, [2, 3], [3, 1], "f32", "host", False, None, None),  # type: ignore[arg-type]
    "view of huge": lambda: rt.TensorView(10**5000, (2, 3), (3, 1), "f32", "host", False, None, None),  # type: ignore[arg-type]
    "view of no element": lambda: rt.TensorView(4096, (2, 3), (3, 1), [], "host", False, None, None),  # type: ignore[arg-type]
    "view of no device": lambda: rt.TensorView(4096, (2, 3), (3, 1), "f32", 5, False, None, None),  # type: ignore[arg-type]
    "view of no buffer": lambda: rt.TensorView(4096, (2, 3), (3, 1), "f32", "host", False, 0, None),  # type: ignore[arg-type]
    "view at 0": lambda: rt.TensorView(0, (2, 3), (3, 1), "f32", "host", False, None, None),  # type: ignore[arg-type]
    "view to 2^64": lambda: rt.TensorView(2**63, (2, 3), (3, 1), "f32", "host", False, None, None),  # type: ignore[arg-type]
}


def _to_itself() -> rt.TensorRef:
    found = rt.TensorRef(None, (2, 3))
    object.__setattr__(found, "data", found)
    return found


# ------------------------------------------------------------------------------------------------------ where it is


def problem(**changes: Any) -> RMSNormDescriptor:
    return RMSNormDescriptor(
        **{"input_shape": (2, 3), "norm_axes_mask": 2, "eps": 1e-6, "has_gamma": True, "element": "f32"} | changes
    )


def backward(**changes: Any) -> RMSNormBackwardDescriptor:
    return RMSNormBackwardDescriptor(
        **{"input_shape": (2, 3), "norm_axes_mask": 2, "has_gamma": True, "element": "f32"} | changes
    )


def flash(**changes: Any) -> FlashSdpaDescriptor:
    sizes = dict.fromkeys(("batch_size", "num_heads", "num_kv_heads", "query_len", "key_len", "d_k", "d_v"), 2)
    return FlashSdpaDescriptor(**{**sizes, "scale": 1.0, "is_causal": True, "element": "f32"} | changes)


def arrays(**changes: Any) -> dict[str, Any]:
    x = np.ones((2, 3), np.float32)
    usual = {"x": x, "gamma": np.ones(3, np.float32), "y": np.zeros_like(x), "rms": np.zeros((2, 1), np.float32)}
    return usual | changes


def backward_arrays(**changes: Any) -> dict[str, Any]:
    x, gamma = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    usual = {
        "dy": x,
        "x": x,
        "gamma": gamma,
        "rms": np.ones((2, 1), np.float32),
        "dx": x.copy(),
        "dgamma": gamma.copy(),
    }
    return usual | changes


class Unstarted:
    """The host device, but that kernels do nothing: what is passed may lie where nothing is."""

    def __init__(self) -> None:
        self.host = rt.get_device("host")

    def launch(self, *_: object) -> None:
        """Start nothing."""


@pytest.fixture(autouse=True)
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are neither compiled nor started: what is said of memory is accepted where it may be true."""
    for name in ("RMSNormPlan", "RMSNormBackwardPlan"):
        monkeypatch.setattr(globals()[name], "_load", lambda _, device, sources, dtypes: [Unstarted() for _ in sources])


FORWARD = RMSNormPlan.select(problem())
BACKWARD = RMSNormBackwardPlan.select(backward(input_shape=(2, 3)))
SCRATCH = np.zeros(BACKWARD.workspace_bytes, np.uint8)


def calls() -> dict[str, Callable[[Any], object]]:
    """Every argument of every call, by its name after the last space."""
    found: dict[str, Callable[[Any], object]] = {}
    described: Mapping[Any, Any] = {problem: RMSNormDescriptor, flash: FlashSdpaDescriptor}
    for describe, kind in described.items():
        for name in (*kind._types, "element"):
            found[f"{kind.__name__} {name}"] = lambda v, d=describe, n=name: d(**{n: v})
    found["RepeatDescriptor repeats"] = lambda v: RepeatDescriptor(input_shape=(2,), repeats=v, element="f32")
    found["SoftmaxDescriptor input_shape"] = lambda v: SoftmaxDescriptor(input_shape=v, softmax_axis=0, element="f32")
    for name in rt.PlanPreference.__dataclass_fields__:
        found[f"PlanPreference {name}"] = lambda v, n=name: rt.PlanPreference(**{n: v})
    for method in ("select", "explain"):
        found[f"{method} descriptor"] = lambda v, m=method: getattr(RMSNormPlan, m)(v)
        found[f"{method} preference"] = lambda v, m=method: getattr(RMSNormPlan, m)(problem(), v)
        found[f"{method} device"] = lambda v, m=method: getattr(RMSNormPlan, m)(problem(), device=v)
    found["select layouts"] = lambda v: RMSNormPlan.select(problem(), layouts=v)
    for method in ("run", "run_unchecked", "bind", "can_implement"):
        for name in arrays():
            found[f"{method} {name}"] = lambda v, m=method, n=name: called(FORWARD, m, arrays(**{n: v}))
        found[f"{method} stream"] = lambda v, m=method: called(FORWARD, m, arrays(stream=v))
        found[f"{method} dx"] = lambda v, m=method: called(BACKWARD, m, backward_arrays(dx=v, workspace=SCRATCH))
        found[f"{method} workspace"] = lambda v, m=method: called(BACKWARD, m, backward_arrays(workspace=v))
    found["a bound plan's stream"] = lambda v: FORWARD.bind(**arrays())(v)
    found["prepare device"] = lambda v: FORWARD.prepare(v)
    found["prepare dtypes"] = lambda v: FORWARD.prepare("host", dtypes=v)
    found["prepare dtypes of gamma"] = lambda v: FORWARD.prepare("host", dtypes={"gamma": v})
    for name in ("x", "gamma", "norm_axes_mask", "eps", "y", "rms", "rms_dtype", "stream"):
        found[f"ops.rms_norm {name}"] = lambda v, n=name: ops.rms_norm(**{"x": np.ones((2, 3), np.float32), n: v})
    found["view x"] = lambda v: view(v, "x")
    for name in ("data", "shape", "strides", "offset"):
        given = {"data": np.zeros(6, np.float32), "shape": (2, 3)}
        found[f"TensorRef {name}"] = lambda v, n=name, g=given: view(rt.TensorRef(**{**g, n: v}), n)
    for name in rt.TensorView._fields[:-1]:
        given = view(np.zeros((2, 3), np.float32), "x")
        found[f"TensorView {name}"] = lambda v, n=name, g=given: view(g._replace(**{n: v}), n)
    found["get_device device"] = rt.get_device
    found["lookup sku"] = rt.REGISTRY.lookup
    found["KernelSku.parse sku"] = rt.KernelSku.parse
    found["functions package"] = ops.functions
    return found


def called(plan: Any, method: str, given: Mapping[str, Any]) -> object:
    """The result; for a verdict that is no acceptance, its error."""
    result = getattr(plan, method)(**given)
    if method == "can_implement" and not result:
        raise result.error
    return result


CALLS = calls()
# What messages call an argument by another name than its own.
OTHERWISE = {
    "sku": ("KernelSku",),
    "pointer": ("address",),
    "capacity": ("buffer",),
    "rms_dtype": ("rms",),
    "x": ("input_shape", "element", "output"),  # of the descriptor that a function's input makes
}


@contextmanager
def seconds(most: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer."""
    before = signal.signal(signal.SIGALRM, raising(TimeoutError("took too long")))
    signal.setitimer(signal.ITIMER_REAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wrong_with(call: str, value: str) -> str:
    """What is wrong with how a call takes a value, or nothing."""
    name = call.rpartition(" ")[2]
    try:
        with seconds(60):  # a value that is right may compile kernels
            CALLS[call](VALUES[value]())
    except BaracudaError as error:
        said = str(error)
        named = any(word in said for word in (name, *OTHERWISE.get(name, ())))
        lines = said.splitlines() if "no kernel for" not in said else [said]
        return "" if named and len(lines) == 1 and len(said) < LONGEST else f"{call} = {value}: {said[:200]!r}"
    except BaseException as error:
        return f"{call} = {value}: {type(error).__name__}: {str(error)[:200]}"
    return ""


# Arguments that nest too deeply leave hypothesis, loaded for other tests, no room to time the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <function gc_cumulative_time")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_works_or_says_in_a_line_what_is_wrong(call: str) -> None:
    """No other exception, no waiting, no message without the argument's name."""
    assert [wrong for value in VALUES if (wrong := wrong_with(call, value))] == []


# ------------------------------------------------------------------------------------------------------ and otherwise


def test_a_bound_array_keeps_its_memory() -> None:
    """NumPy refuses to move an array, or what it is a view of, while a plan is bound to it."""
    whole = np.zeros(12, np.float32)
    own = arrays(x=np.ones((2, 3), np.float32), y=whole[:6].reshape(2, 3))
    bound = FORWARD.bind(**own)
    for array in (own["x"], own["gamma"], whole):
        with pytest.raises(ValueError, match="cannot resize"):
            array.resize(10**6, refcheck=False)
    del bound
    whole.resize(24, refcheck=False)
    assert whole.shape == (24,)


def moved_by_state(array: np.ndarray[Any, Any], count: int) -> None:
    array.__setstate__(np.zeros(count, array.dtype).__reduce__()[2])  # type: ignore[index]


@pytest.mark.parametrize("count", [1, 5000])
@pytest.mark.parametrize("name", ["x", "gamma", "whole"])
def test_a_bound_plan_refuses_moved_memory(name: str, count: int) -> None:
    """Which NumPy moves, or cuts, when an array's state is set; that of what it is a view of too."""
    whole = np.zeros(12, np.float32)
    own = arrays(x=np.ones((2, 3), np.float32), y=whole[:6].reshape(2, 3))
    bound = FORWARD.bind(**own)
    bound()
    moved_by_state(whole if name == "whole" else own[name], count)
    with pytest.raises(InvalidProblem, match="memory moved since the plan was bound"):
        bound()


def test_a_derived_preference_is_checked() -> None:
    """Also one that was made behind the back of the checks."""

    class Unchecked(rt.PlanPreference):
        def __post_init__(self) -> None:
            pass

    given: Any = {"rungs": 5, "max_workspace_bytes": "x", "archs": frozenset({"?"})}
    for name, value in given.items():
        with pytest.raises(InvalidProblem, match=f"{name}"):
            RMSNormPlan.select(problem(), Unchecked(**{name: value}), device="host")
    with pytest.raises(InvalidProblem, match="cannot be read"):
        RMSNormPlan.select(problem(), object.__new__(Unchecked), device="host")
    assert RMSNormPlan.select(problem(), Unchecked(rungs=frozenset()), device="host").sku


@pytest.mark.parametrize("name", ["zz", "x" * 10**5, None, []])
def test_an_unknown_argument_is_named(name: Any) -> None:
    """With those that there are."""
    for ask in (FORWARD.elements_of, FORWARD.present):
        with pytest.raises(InvalidProblem, match=r"no argument .*; arguments are .*gamma"):
            ask(name)


def test_a_derived_array_is_what_numpy_says_of_it() -> None:
    """Not what its class says; bounds are those of the memory it is in."""

    class Lying(np.ndarray):
        shape = property(lambda _: (100, 100))  # type: ignore[assignment]
        strides = property(lambda _: (8, 8))  # type: ignore[assignment]
        size = nbytes = property(lambda _: 10**6)  # type: ignore[assignment]

    array = np.zeros(10, np.float32)[2:8].view(Lying)
    seen = view(array, "x")
    assert (seen.shape, seen.strides, seen.capacity) == ((6,), (1,), (2, 8)) and seen.owner is array


def test_a_message_of_any_length_prints_short() -> None:
    """Whatever it is made of."""
    assert len(str(InvalidProblem("x" * 10**6))) < 20_000
    assert str(InvalidProblem("x" * 10)) == "x" * 10


def test_an_output_larger_than_memory_is_refused() -> None:
    """With what it would take; nothing is allocated."""
    with pytest.raises(rt.OutOfMemory, match=r"no memory for an output of shape \(4611686018427387904,\) and f32"):
        ops.repeat(np.ones(1, np.float32), repeats=(2**62,))


def test_a_tampered_descriptor_is_refused() -> None:
    """One whose fields were put in place behind its back."""
    tampered = problem()
    object.__setattr__(tampered, "input_shape", [2, 3])
    with pytest.raises(InvalidProblem, match="descriptor"):
        RMSNormPlan.select(tampered)


def test_spans_of_views_are_checked_as_before() -> None:
    """A view that a caller makes is bounded by what it says of its buffer."""
    seen = view(np.zeros((2, 3), np.float32), "x")
    with pytest.raises(rt.BufferTooSmall):
        check_span(view(seen._replace(shape=(3, 3)), "x"), "x")


def test_strides_that_are_never_taken_may_be_any() -> None:
    """Also those that kernels have no words for: of an empty array, and along axes of one element."""
    plan = RMSNormPlan.select(problem(input_shape=(2, 0)))
    empty, rms = np.zeros(0, np.float32), np.zeros((2, 1), np.float32)
    x = rt.TensorRef(empty, (2, 0), (2**70, -(2**70)))
    assert plan.can_implement(x=x, gamma=empty, y=rt.TensorRef(empty, (2, 0), (2**70, 1)), rms=rms)
    given = arrays(rms=rt.TensorRef(np.zeros(2, np.float32), (2, 1), (1, 2**100)))
    assert FORWARD.can_implement(**given)


@pytest.mark.parametrize("arch", [None, "", "sm_", "sm_x", "sm_" + "9" * 5000, "cuda:0", 80, [], "host\n"])
def test_an_architecture_is_one_or_refused(arch: Any) -> None:
    """By every way to it."""
    with pytest.raises(InvalidProblem, match="'arch' must be 'host' or as sm_80, got "):
        FORWARD.sku.fits(arch)
