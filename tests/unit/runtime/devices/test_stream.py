"""Streams: whatever the caller calls one becomes the handle of the stream that was meant."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from baracuda.runtime.arrays.tensor import TensorView
from baracuda.runtime.devices.stream import raw_stream
from baracuda.runtime.errors import InvalidProblem


def on(device, owner):
    return TensorView(4096, (1,), (1,), "f32", device, False, None, owner)


class Tensor:
    """Stands for torch.Tensor: streams look only at the name and the module of a class."""


class Array:
    """Stands for cupy.ndarray."""


Tensor.__module__ = "torch"
Array.__module__, Array.__qualname__ = "cupy", "ndarray"


@pytest.fixture
def libraries(monkeypatch):
    """Both libraries, with current streams 100 + device and 200 + device."""
    torch = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 100 + device))
    cuda = SimpleNamespace(get_current_stream=lambda device: SimpleNamespace(ptr=200 + device))
    cupy = SimpleNamespace(cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)


class Method:
    def __cuda_stream__(self):
        return 0, 77


class Property:
    __cuda_stream__ = (0, 78)


@pytest.mark.parametrize(
    ("stream", "handle"), [(0, 0), (2, 2), (1 << 40, 1 << 40), (Method(), 77), (Property(), 78)]
)
def test_a_given_stream_wins_over_the_arrays(libraries, stream, handle):
    """A stream that the caller names is used as it is, whatever the arrays' library would use."""
    assert raw_stream(stream, [on("cuda:0", Tensor())]) == handle


def test_streams_of_the_libraries_are_recognised():
    """CuPy's stream objects give their handles, and so do those of versions without `__cuda_stream__`."""
    cupy = pytest.importorskip("cupy")
    assert raw_stream(cupy.cuda.Stream.null, ()) == 0
    assert raw_stream(cupy.cuda.Stream.ptds, ()) == 2
    old_cupy = type("_BaseStream", (), {"__module__": "cupy.cuda.stream", "ptr": 98})
    old_torch = type("Stream", (), {"__module__": "torch.cuda.streams", "cuda_stream": 99})
    assert raw_stream(type("Stream", (old_cupy,), {})(), ()) == 98
    assert raw_stream(old_torch(), ()) == 99


@pytest.mark.refuses("stream", "no stream: a word, a float, a bool, below 0, a broken protocol", "InvalidProblem")
@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("main", "stream is of type builtins.str; pass None, a raw handle, a CuPy or torch stream"),
        (1.5, "stream is of type builtins.float"),
        (True, "stream is of type builtins.bool"),
        (-1, "stream handle -1 is negative"),
        (Method, "gives no handle"),
        (type("Wrong", (), {"__cuda_stream__": 5})(), "gives no handle"),
    ],
    ids=["word", "float", "bool", "negative", "class", "attribute"],
)
def test_anything_else_is_refused(stream, message):
    """What is no stream is named, together with what would be one."""
    with pytest.raises(InvalidProblem) as caught:
        raw_stream(stream, ())
    assert message in str(caught.value)


def test_the_arrays_library_decides_on_their_device(libraries):
    """Without a stream, the current one of the arrays' library is used, on the device that holds them."""
    assert raw_stream(None, [on("cuda:0", Tensor())]) == 100
    assert raw_stream(None, [on("cuda:3", Tensor()), on("cuda:3", Tensor())]) == 103
    assert raw_stream(None, [None, on("host", np.zeros(1)), on("cuda:1", Array())]) == 201


def test_subclasses_belong_to_their_library(libraries):
    """A class derived from a library's array uses that library's stream."""
    assert raw_stream(None, [on("cuda:2", type("Parameter", (Tensor,), {})())]) == 102


def test_host_and_libraryless_arrays_use_the_default_stream(libraries):
    """Host memory needs no stream, and an array of no known library has no current one."""
    assert raw_stream(None, ()) == 0
    assert raw_stream(None, [np.zeros(3), None]) == 0
    assert raw_stream(None, [on("host", Tensor())]) == 0
    assert raw_stream(None, [on("cuda:0", object())]) == 0


@pytest.mark.refuses("stream", "none given, and arrays of two libraries whose current streams differ", "InvalidProblem")
def test_libraries_that_disagree_are_not_guessed_at(libraries, monkeypatch):
    """Arrays of two libraries on different current streams would race, so the caller must choose."""
    mixed = [on("cuda:0", Tensor()), on("cuda:0", Array())]
    with pytest.raises(
        InvalidProblem, match=r"different current streams \(torch 0x64, cupy 0xc8\); pass stream="
    ):
        raw_stream(None, mixed)
    assert raw_stream(5, mixed) == 5
    monkeypatch.setattr(sys.modules["torch"]._C, "_cuda_getCurrentRawStream", lambda device: 200)
    assert raw_stream(None, mixed) == 200
