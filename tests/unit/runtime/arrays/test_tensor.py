"""Array intake: every library's array is seen in place, and what it addresses is known exactly."""

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from baracuda.runtime.arrays.element import BY_NUMPY, ELEMENTS
from baracuda.runtime.arrays.tensor import (
    TensorRef,
    TensorView,
    byte_range,
    check_span,
    may_share,
    overlaps_itself,
    same_view,
    view,
)
from baracuda.runtime.errors import BufferTooSmall, InvalidProblem, MisalignedOperand, Unsupported


class Exported:
    """An object that offers an array through DLPack and in no other way."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **request):
        return self.array.__dlpack__(**request)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def host_view(shape, strides, capacity=None, pointer=4096, element="f32", device="host"):
    return TensorView(pointer, shape, strides, element, device, False, capacity, None)


# --- NumPy


@pytest.mark.parametrize("dtype", BY_NUMPY, ids=str)
def test_every_element_is_read_from_its_numpy_dtype(dtype):
    """A NumPy array keeps its address, shape, and element, and its strides count elements."""
    array = np.zeros((2, 3), dtype)
    seen = view(array, "x")
    assert seen == (array.ctypes.data, (2, 3), (3, 1), BY_NUMPY[dtype], "host", False, (0, 6), array)
    assert seen.owner is array


def test_views_of_numpy_arrays_know_their_buffer():
    """Capacity counts elements of the owning buffer on either side of the first element."""
    buffer = np.zeros(24, np.float32)
    assert view(buffer[5:], "x").capacity == (5, 19)
    assert view(buffer[::-2], "x")[1:3] == ((12,), (-2,))
    assert view(buffer[::-2], "x").capacity == (23, 1)
    assert view(buffer.reshape(4, 6)[1:, 2:].T, "x")[1:3] == ((4, 3), (1, 6))
    assert view(buffer.reshape(4, 6)[1:, 2:].T, "x").capacity == (8, 16)
    assert view(buffer.view(np.float64)[1:], "x").capacity == (1, 11)
    assert view(np.broadcast_to(buffer[3], (7,)), "x").strides == (0,)
    assert view(buffer[3:3], "x").shape == (0,)


@pytest.mark.parametrize(
    "buffer",
    [bytearray(64), bytes(64), memoryview(bytearray(64))],
    ids=["bytearray", "bytes", "memoryview"],
)
def test_numpy_arrays_over_foreign_bytes_know_their_buffer(buffer):
    """The buffer behind `frombuffer` bounds the array and says whether it is writable."""
    seen = view(np.frombuffer(buffer, np.float32, offset=8), "x")
    assert seen.capacity == (2, 14)
    assert seen.readonly is isinstance(buffer, bytes)


def test_a_mapped_file_knows_its_buffer(tmp_path):
    """A memory map is bounded by the map, not by the part of it that the array shows."""
    mapped = np.memmap(tmp_path / "x", np.int16, "w+", shape=(8, 8))
    assert view(mapped[2:, 1:], "x").capacity == (17, 47)


def test_an_unknown_owner_leaves_the_capacity_open():
    """An array imported through DLPack hides its buffer, so no bounds are claimed for it."""
    seen = view(np.from_dlpack(Exported(np.zeros(4))), "x")
    assert seen.capacity is None
    check_span(seen, "x")


def test_read_only_arrays_are_marked():
    """A view says whether its array may be written."""
    array = np.zeros(3)
    array.flags.writeable = False
    assert view(array, "x").readonly
    assert view(np.broadcast_to(np.zeros(1), (3,)), "x").readonly


def test_a_view_keeps_its_array_alive():
    """The memory outlives every other reference to the array."""
    array = np.zeros(3)
    alive = weakref.ref(array)
    seen = view(array, "x")
    del array
    gc.collect()
    assert alive() is seen.owner
    del seen
    gc.collect()
    assert alive() is None


def test_subclasses_are_read_like_their_library():
    """What derives from a known array class is read as one."""
    assert view(np.zeros((2, 2)).view(np.recarray), "x").strides == (2, 1)


# --- refusals


def test_addresses_and_strides_must_be_whole_elements():
    """An element that straddles its natural boundary is refused, by its pointer or by a stride."""
    raw = np.zeros(65, np.uint8)
    with pytest.raises(MisalignedOperand, match=r"'x' starts at 0x.*multiple of 4 bytes"):
        view(raw[1:].view(np.float32), "x")
    packed = np.zeros(4, np.dtype([("a", np.float32), ("b", np.uint8)]))
    with pytest.raises(MisalignedOperand, match=r"'x' has byte strides \(5,\); they must be multiples of 4"):
        view(packed["a"], "x")


def test_what_addresses_nothing_cannot_be_misaligned():
    """Strides of extent-1 axes and the pointer of an empty array are never used, so they may be anything."""
    packed = np.zeros(4, np.dtype([("a", np.float32), ("b", np.uint8)]))
    assert view(packed["a"][:1], "x").shape == (1,)
    assert view(packed["a"].reshape(2, 2)[:, :0], "x").shape == (2, 0)
    assert view(np.zeros(65, np.uint8)[1:].view(np.float32)[:0], "x").shape == (0,)


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.zeros(2, ">f4"), Unsupported, "'x' has big-endian dtype >f4; convert it with astype"),
        (np.zeros(2, np.longdouble), Unsupported, "'x' has dtype float128; supported are float16, bfloat16"),
        (np.zeros(2, object), Unsupported, "'x' has dtype object"),
        (np.zeros(2, ml_dtypes.int4), Unsupported, "'x' has dtype int4"),
        (np.ma.array([1.0], mask=[True]), InvalidProblem, "'x' is a masked array, whose mask no kernel reads"),
        ([1.0], InvalidProblem, "'x' is of type builtins.list; pass a NumPy, CuPy or torch array"),
        (1.0, InvalidProblem, "'x' is of type builtins.float"),
        (None, InvalidProblem, "'x' is of type builtins.NoneType"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__,
)
def test_what_is_no_tensor_is_refused_by_name(array, error, message):
    """The message names the argument, what it was, and what would be right."""
    with pytest.raises(error) as caught:
        view(array, "x")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


# --- torch


@pytest.mark.frontends
@pytest.mark.parametrize("kind", ELEMENTS)
def test_every_element_is_read_from_its_torch_dtype(kind):
    """A torch tensor on the host has the strides, element, and storage that torch reports."""
    torch = pytest.importorskip("torch")
    base = torch.empty((4, 6), dtype=getattr(torch, str(ELEMENTS[kind].numpy)))
    part = base[1:, 2:].T
    seen = view(part, "x")
    assert seen == (part.data_ptr(), (4, 3), (1, 6), kind, "host", False, (8, 16), part)
    assert type(seen.shape) is tuple
    assert view(base[:0], "x").shape == (0, 6)
    assert view(torch.nn.Parameter(torch.zeros(3)), "x").shape == (3,)


@pytest.mark.frontends
def test_torch_tensors_without_plain_memory_are_refused():
    """Sparse, meta, lazily conjugated, and foreign-dtype tensors hold nothing that a kernel could read."""
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidProblem, match="'x' has no strided memory"):
        view(torch.eye(3).to_sparse(), "x")
    with pytest.raises(Unsupported, match="'x' is on device 'meta'; tensors must be on 'cpu' or 'cuda'"):
        view(torch.empty(3, device="meta"), "x")
    waves = torch.ones(3, dtype=torch.complex64)
    for lazy in (waves.conj(), waves.conj().imag):
        with pytest.raises(InvalidProblem, match="lazy conjugate or negative"):
            view(lazy, "x")
    with pytest.raises(Unsupported, match=r"'x' has dtype torch\.float8_e4m3fnuz"):
        view(torch.empty(3, dtype=torch.float8_e4m3fnuz), "x")
    with pytest.raises(MisalignedOperand):
        view(torch.frombuffer(bytearray(9), dtype=torch.float32, offset=1), "x")


# --- CuPy, over memory that is never touched


@pytest.fixture
def device_memory():
    cupy = pytest.importorskip("cupy")
    memory = cupy.cuda.UnownedMemory(1 << 20, 1024, owner=None, device_id=3)

    def array(shape, dtype, offset=0, strides=None):
        pointer = cupy.cuda.MemoryPointer(memory, offset)
        return cupy.ndarray(shape, dtype, memptr=pointer, strides=strides)

    return array


def test_cupy_arrays_know_their_device_and_memory(device_memory):
    """A CuPy array is read with its device, and its bounds are those of the allocation."""
    array = device_memory((4, 6), np.float32, offset=64)
    seen = view(array, "x")
    assert seen == ((1 << 20) + 64, (4, 6), (6, 1), "f32", "cuda:3", False, (16, 240), array)
    assert view(array[::-1, ::2], "x")[:3] == ((1 << 20) + 64 + 72, (4, 3), (-6, 2))
    assert view(device_memory((4,), ml_dtypes.bfloat16), "x").element == "bf16"
    assert view(device_memory((4, 4), np.float32, strides=(0, 4)), "x").strides == (0, 1)


def test_cupy_views_beyond_their_allocation_are_caught(device_memory):
    """Strides that leave the allocation are noticed, since CuPy itself does not check them."""
    check_span(view(device_memory((4, 64), np.float32), "x"), "x")
    with pytest.raises(BufferTooSmall, match="needs 257, got 256") as caught:
        check_span(view(device_memory((2,), np.float32, strides=(1024,)), "x"), "x")
    assert (caught.value.needed, caught.value.got) == (257, 256)


def test_cupy_misfits_are_refused(device_memory):
    """Device pointers and strides obey the same rules as those of the host."""
    with pytest.raises(MisalignedOperand, match="starts at 0x100002"):
        view(device_memory((2,), np.float32, offset=2), "x")
    with pytest.raises(MisalignedOperand, match=r"byte strides \(6,\)"):
        view(device_memory((2,), np.float32, strides=(6,)), "x")


# --- DLPack and the CUDA array interface


def test_dlpack_objects_are_read_in_place():
    """An object known only by DLPack is seen at the exporter's address, and its export stays alive."""
    array = np.zeros((4, 6), np.float32)
    part = array[::-1, 1::2]
    seen = view(Exported(part), "x")
    assert seen[:6] == (part.ctypes.data, (4, 3), (-6, 2), "f32", "host", False)
    assert seen.capacity is None
    array.flags.writeable = False
    assert view(Exported(array), "x").readonly


@pytest.mark.frontends
def test_dlpack_carries_bfloat16():
    """bfloat16, which NumPy itself cannot export, arrives through DLPack; the 8-bit floats are refused."""
    torch = pytest.importorskip("torch")
    tensor = torch.zeros((2, 3), dtype=torch.bfloat16)
    assert view(Exported(tensor), "x")[:4] == (tensor.data_ptr(), (2, 3), (3, 1), "bf16")
    with pytest.raises(InvalidProblem, match=r"'x' of type Exported could not export its memory: .*dtype"):
        view(Exported(tensor.to(torch.float8_e5m2)), "x")


def test_an_export_that_fails_is_reported_by_name():
    """The exporter's own reason reaches the caller, under the argument's name."""

    class Broken(Exported):
        def __dlpack__(self, **request):
            raise BufferError("the tensor is gone")

    with pytest.raises(InvalidProblem, match="'x' of type Broken could not export its memory: the tensor is"):
        view(Broken(np.zeros(1)), "x")


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class OnDevice:
    """A DLPack export of bfloat16 memory on CUDA device 1 that nobody may touch."""

    def __init__(self, pointer, shape):
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.tensor = _DLTensor(pointer, (2, 1), len(shape), 4, 16, 1, ctypes.addressof(self.shape))

    def __dlpack_device__(self):
        return 2, 1

    def __dlpack__(self, *, stream=None, max_version=None):
        assert stream == -1
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        return capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def test_dlpack_exports_from_a_device_name_it():
    """A device export is read without touching the memory or any stream; absent strides are row-major."""
    seen = view(OnDevice(1 << 20, (3, 4)), "x")
    assert seen[:6] == (1 << 20, (3, 4), (4, 1), "bf16", "cuda:1", False)
    with pytest.raises(MisalignedOperand):
        view(OnDevice((1 << 20) + 1, (3, 4)), "x")
    with pytest.raises(InvalidProblem, match=r"'x' of shape .* null pointer"):
        view(OnDevice(None, (3, 4)), "x")
    assert view(OnDevice(None, (0, 4)), "x").shape == (0, 4)


def test_an_array_interface_on_the_device_is_accepted(monkeypatch):
    """An object with nothing but `__cuda_array_interface__` is read with stream ordering left out."""

    class Foreign:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (2,), "typestr": "<f4", "data": (1 << 20, True), "version": 3}

    class Seen:  # what cuda.core makes of it where there is a driver to ask for the device
        ptr, shape, strides, dtype = 1 << 20, (2,), None, np.dtype(np.float32)
        is_device_accessible, device_id, readonly = True, 0, True

        @classmethod
        def from_any_interface(cls, array, stream_ptr):
            assert type(array) is Foreign
            assert stream_ptr == -1
            return cls()

    monkeypatch.setattr("cuda.core.utils.StridedMemoryView", Seen)
    assert view(Foreign(), "x")[:6] == (1 << 20, (2,), (1,), "f32", "cuda:0", True)


# --- references and bounds


def test_a_reference_lays_a_tensor_over_a_slice():
    """Shape, strides, and offset count elements of the data slice, which bounds the tensor."""
    data = np.arange(30, dtype=np.float32)[3:27]
    seen = view(TensorRef(data, (2, 3), (6, -1), offset=8), "x")
    assert seen == (data.ctypes.data + 32, (2, 3), (6, -1), "f32", "host", False, (8, 16), data)
    assert view(TensorRef(data, (4, 6)), "x").strides == (6, 1)
    assert view(seen, "y") is seen


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "needed"),
    [
        ((4, 6), None, 0, None),
        ((4, 6), None, 1, 25),
        ((5, 6), None, 0, 30),
        ((5, 6), (0, 1), 0, None),  # five times the same row: 30 elements in 6
        ((24,), (-1,), 23, None),
        ((24,), (-1,), 22, 25),  # one element before the buffer
        ((2, 2), (1, 23), 0, 25),
        ((0, 99), (1, 1), 99, None),  # addresses nothing, wherever it is
        ((1, 24), (999, 1), 0, None),
        ((), (), 23, None),
        ((), (), 24, 25),
        ((2,), (1,), -1, 25),
    ],
)
def test_the_span_decides_whether_a_buffer_suffices(shape, strides, offset, needed):
    """The true span is checked, never the number of elements; the error carries what was needed."""
    seen = view(TensorRef(np.zeros(24), shape, strides, offset), "x")
    if needed is None:
        check_span(seen, "x")
        return
    with pytest.raises(BufferTooSmall) as caught:
        check_span(seen, "x")
    assert (caught.value.needed, caught.value.got) == (needed, 24)
    assert ("before its buffer" in str(caught.value)) is (byte_range(seen)[0] < seen.pointer - 8 * offset)


def test_numpy_views_beyond_their_buffer_are_caught():
    """Stride tricks are followed back to the array that owns the memory."""
    inside = as_strided(np.zeros(8, np.float32)[2:], (3, 2), (8, 4))
    assert view(inside, "x").capacity == (2, 6)
    check_span(view(inside, "x"), "x")
    beyond = as_strided(np.zeros(8, np.float32)[2:], (4, 2), (8, 4))
    with pytest.raises(
        BufferTooSmall, match=r"'x' of shape \(4, 2\) and strides \(2, 1\) .*: needs 10, got 8"
    ):
        check_span(view(beyond, "x"), "x")


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (TensorRef(np.zeros((2, 2)), (4,)), "lies over data of shape (2, 2)"),
        (TensorRef(np.zeros(4)[::2], (2,)), "pass 1-D data of stride 1"),
        (TensorRef(np.zeros(4), (2, 2), (1,)), "pass a stride per extent"),
        (TensorRef(np.zeros(4), (-1,)), "extents >= 0"),
        (TensorRef([1.0], (1,)), "'x' is of type builtins.list"),
    ],
)
def test_a_reference_is_checked_when_it_is_viewed(ref, message):
    """A reference that contradicts itself is refused by name."""
    with pytest.raises(InvalidProblem) as caught:
        view(ref, "x")
    assert message in str(caught.value)


# --- aliasing


def test_byte_ranges_follow_the_span():
    """A range covers exactly the bytes between the lowest and the highest element."""
    assert byte_range(host_view((2, 3), (8, 1))) == (4096, 4096 + 4 * 11)
    assert byte_range(host_view((2, 3), (-8, 1))) == (4096 - 32, 4096 + 12)
    assert byte_range(host_view((5,), (0,), element="bf16")) == (4096, 4098)
    assert byte_range(host_view((), (), element="c128")) == (4096, 4112)
    assert byte_range(host_view((2, 0), (8, 1))) == (4096, 4096)


@given(st.integers(0, 7), st.integers(0, 5), st.integers(0, 7), st.integers(0, 5))
def test_sharing_is_never_missed(start, count, other_start, other_count):
    """Two slices of one buffer may share exactly when they have an element in common."""
    buffer = np.zeros(16)
    a, b = buffer[start : start + count], buffer[other_start : other_start + other_count]
    assert may_share(view(a, "a"), view(b, "b")) is np.may_share_memory(a, b)


def test_devices_do_not_share():
    """Equal addresses on two devices are different memory."""
    assert may_share(host_view((4,), (1,)), host_view((4,), (1,)))
    assert not may_share(host_view((4,), (1,)), host_view((4,), (1,), device="cuda:0"))


def test_overlap_is_a_matter_of_the_layout():
    """Broadcast and sliding windows overlap; slices, flips, and empty views do not."""
    array = np.zeros((4, 6))
    assert overlaps_itself(view(np.broadcast_to(array[:1], (3, 6)), "x"))
    assert overlaps_itself(view(np.lib.stride_tricks.sliding_window_view(array[0], 3), "x"))
    assert not overlaps_itself(view(array[::-1, ::2].T, "x"))
    assert not overlaps_itself(view(np.broadcast_to(array[:1], (1, 6)), "x"))
    assert not overlaps_itself(view(np.broadcast_to(array[:1], (0, 6)), "x"))


def test_sameness_ignores_axes_of_extent_one():
    """Views are the same when they address the same elements in the same order, and only then."""
    one = host_view((4, 1, 6), (6, 99, 1))
    assert same_view(one, host_view((4, 1, 6), (6, 0, 1)))
    assert same_view(one, host_view((1, 4, 6), (7, 6, 1)))
    assert same_view(host_view((0, 3), (1, 2)), host_view((0, 3), (3, 1)))
    for other in (
        host_view((4, 1, 6), (6, 99, 1), pointer=4100),
        host_view((4, 1, 6), (6, 99, 1), element="i32"),
        host_view((4, 1, 6), (6, 99, 1), device="cuda:0"),
        host_view((4, 1, 6), (1, 99, 4)),
        host_view((4, 6, 1), (1, 4, 1)),
    ):
        assert not same_view(one, other)
