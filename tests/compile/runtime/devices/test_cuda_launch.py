"""Loading and launching against a driver that only records what it is asked for, and in which context."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baracuda.generated import RMSNormBackwardDescriptor, RMSNormBackwardPlan
from baracuda.runtime.arrays.element import ElementKind
from baracuda.runtime.arrays.tensor import TensorView
from baracuda.runtime.device import Cubin, KernelSource, Resources
from baracuda.runtime.devices import cuda as cuda_module
from baracuda.runtime.devices import driver as driver_module
from baracuda.runtime.devices.cuda import CudaDevice, CudaKernel, stream_is_capturing
from baracuda.runtime.devices.named import _devices
from baracuda.runtime.errors import DriverError, InvalidProblem, KernelInternal

SOURCE = KernelSource("a.cu", "text", "axpy")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    built = tmp_path_factory.mktemp("driver") / "recording_driver.so"
    text = Path(__file__).with_name("recording_driver.c")
    subprocess.check_call(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", built, text])
    return ctypes.CDLL(str(built))


@pytest.fixture
def fake(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """The recording driver in the real one's place; call it to read a counter or to set it."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(cuda_module, "compile_cubin", compile_nothing)
    driver_module.forget()
    _devices.clear()

    def counter(name: str, value: int | None = None) -> int:
        word = ctypes.c_int.in_dll(library, name)
        if value is not None:
            word.value = value
        return word.value

    for name in ("refusal", "launches", "loads", "retained", "reserved", "reservations"):
        counter(name, 0)
    counter("devices", 2)
    yield counter
    driver_module.forget()
    _devices.clear()


def compile_nothing(source: KernelSource, arch: str) -> Cubin:
    return Cubin(b"\x7fELF\0cubin for " + arch.encode(), Resources(32, 0, 0, 0, 0.0))


def seen(library: ctypes.CDLL) -> list[int]:
    return list((ctypes.c_long * 16).in_dll(library, "seen"))[:13]


def current() -> int:
    return driver_module.handle("cuCtxGetCurrent")


Words = ctypes.c_int64 * 2


def launch(kernel: CudaKernel, *, words: tuple[int, int] = (7, 8), **changes: Any) -> None:
    args = Words(*words)
    defaults: dict[str, Any] = {"grid": (2, 3, 4), "block": 256, "args_bytes": 16, "stream": 0x7F00_1234_5678}
    kernel.launch(args=ctypes.addressof(args), **(defaults | changes))


def test_launch_hands_over_everything(fake: Callable[..., int], library: ctypes.CDLL) -> None:
    """Grid, block, stream, function and the struct's bytes reach the driver, in the device's own context."""
    kernel = CudaDevice(1).load(SOURCE)
    for words in ((7, 8), (-1, 2**62)):
        launch(kernel, words=words)
        assert seen(library) == [2, 3, 4, 256, 1, 1, 0, 0x7F00_1234_5678, 0, 0x1001, 0x6001, *words]
    for grid, block, stream in [
        ((9, 1, 1), 32, 0),
        ((9, 1, 1), 32, 5),
        ((9, 1, 1), 64, 5),
        ((9, 1, 1), 32, 0),
    ]:
        launch(kernel, grid=grid, block=block, stream=stream)
        assert seen(library)[:8] == [*grid, block, 1, 1, 0, stream]
    assert fake("launches") == 6


def test_dynamic_shared_memory_is_asked_for_once(fake: Callable[..., int], library: ctypes.CDLL) -> None:
    """The function is given its size when it is loaded, in the device's context, and is launched with that size."""
    device = CudaDevice(1)
    assert device.multiprocessors == 132
    large = replace(SOURCE, dynamic_shared=100_000)
    for grid in (2, 3, 2):
        launch(device.load(large), grid=(grid, 1, 1))
        assert (seen(library)[0], seen(library)[6], seen(library)[10]) == (grid, 100_000, 0x6001)
        assert (fake("reserved"), fake("reservations"), fake("loads")) == (100_000, 1, 1)
    launch(device.load(replace(SOURCE, dynamic_shared=64)))
    assert (seen(library)[6], fake("reserved"), fake("reservations"), fake("loads")) == (64, 64, 2, 2)
    launch(device.load(SOURCE))
    assert (seen(library)[6], fake("reservations"), fake("loads")) == (0, 2, 3)


def test_shared_memory_that_the_driver_refuses(fake: Callable[..., int]) -> None:
    """Loading fails, and again when it is tried again: nothing half made is kept."""
    device, large = CudaDevice(), replace(SOURCE, dynamic_shared=10**6)
    fake("refusal", 1)
    for _ in range(2):
        with pytest.raises(DriverError, match=r"cuFuncSetAttribute: CUDA_ERROR_INVALID_VALUE \(1\): invalid argument"):
            device.load(large)
        assert not device.is_loaded(large) and current() == 0


def test_many_configurations(fake: Callable[..., int], library: ctypes.CDLL) -> None:
    """However many grids a kernel has seen, each launch has its own."""
    kernel = CudaDevice().load(SOURCE)
    for blocks in [*range(1, 200), *range(1, 200)]:
        launch(kernel, grid=(blocks, 1, 1))
        assert seen(library)[0] == blocks


def test_caller_keeps_its_context(fake: Callable[..., int], library: ctypes.CDLL) -> None:
    """Loading and launching leave the thread's context as it was: none, another device's, or this one's."""
    device = CudaDevice(0)
    kernel = device.load(SOURCE)
    assert current() == 0
    for context in (0x1001, 0x1000):
        with driver_module.current(context):
            launch(kernel)
            assert (seen(library)[9], current()) == (0x1000, context)
            fake("refusal", 1)
            with pytest.raises(DriverError):
                launch(kernel)
            assert current() == context
            fake("refusal", 0)
    assert current() == 0


def test_a_launch_that_overlaps(fake: Callable[..., int], library: ctypes.CDLL) -> None:
    """Programmatic serialization is asked for where the launch says so, and where the device has it."""
    kernel = CudaDevice(1).load(SOURCE)
    args = Words(7, 8)
    for overlaps, attribute in ((True, 61), (False, 0)):
        kernel.prepared((2, 1, 1), 64, ctypes.addressof(args), 16, args, overlaps)(0x70)
        assert seen(library) == [2, 1, 1, 64, 1, 1, 0, 0x70, attribute, 0x1001, 0x6001, 7, 8]
    kernel._may_overlap = False
    kernel.prepared((2, 1, 1), 64, ctypes.addressof(args), 16, args, True)(0x70)
    assert seen(library)[8] == 0


def test_load_once_per_architecture(fake: Callable[..., int]) -> None:
    """A source is loaded once per architecture, also by threads that ask together; `is_loaded` tells."""
    device = CudaDevice()
    assert (device.name, device.arch) == ("cuda:0", "sm_90")
    assert not device.is_loaded(SOURCE) and fake("retained") == 0
    kernels: list[CudaKernel] = []
    threads = [threading.Thread(target=lambda: kernels.append(device.load(SOURCE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, kernels))) == 1 == fake("loads") and device.is_loaded(SOURCE)
    assert not device.is_loaded(SOURCE, "sm_90a")
    assert device.load(SOURCE, "sm_90a") is not kernels[0] and fake("loads") == 2
    assert kernels[0].resources.registers == 32


def test_refusals_name_call_code_and_text(fake: Callable[..., int]) -> None:
    """A driver error carries the kernel, the call, the code's name and its text."""
    kernel = CudaDevice().load(SOURCE)
    fake("refusal", 1)
    expected = (
        r"kernel 'axpy', grid \(2, 3, 4\), block 256: "
        r"cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE \(1\): invalid argument"
    )
    with pytest.raises(DriverError, match=expected):
        launch(kernel)
    fake("refusal", 12345)
    with pytest.raises(DriverError, match=r"cuLaunchKernelEx: unknown \(12345\): unknown"):
        launch(kernel)
    with pytest.raises(DriverError, match=r"cuLibraryGetKernel: unknown \(500\)"):
        CudaDevice().load(KernelSource("a.cu", "text", "absent"))


def test_what_the_driver_cannot_see_is_refused(fake: Callable[..., int]) -> None:
    """A struct of another size and a grid that would wrap around never reach the driver."""
    kernel = CudaDevice().load(SOURCE)
    with pytest.raises(KernelInternal, match="'axpy' takes a struct of 16 bytes, got 24"):
        launch(kernel, args_bytes=24)
    with pytest.raises(DriverError, match=r"grid \(4294967297, 1, 1\) of 256 threads is beyond 2147483647"):
        launch(kernel, grid=(2**32 + 1, 1, 1))
    assert fake("launches") == 0


@pytest.mark.refuses("exit", "a launch in a forked child, or after the driver has shut down", "DriverError")
@pytest.mark.refuses("exit", "a launch after a kernel has failed for good", "DriverError")
@pytest.mark.parametrize("code", [3, 4, 700], ids=["forked", "shut down", "illegal address"])
def test_a_driver_that_is_gone_is_said_at_each_launch(
    fake: Callable[..., int], plan: RMSNormBackwardPlan, code: int
) -> None:
    """Also by a call that is remembered or bound, with the kernel; and when the driver is back, the next one works."""
    arrays = arrays_of(plan, "cuda:0")
    for call in (plan.run, plan.run_unchecked, lambda **arrays: plan.bind(**arrays)()):
        call(**arrays)
        fake("refusal", code)
        for _ in range(2):
            with pytest.raises(DriverError, match=rf"^kernel 'rms_norm_backward_\w+', grid .*: cuLaunch.*\({code}\)"):
                call(**arrays)
        fake("refusal", 0)
        call(**arrays)


@pytest.mark.refuses("capture", "a stream whose state the driver does not tell", "DriverError")
def test_capture_status(fake: Callable[..., int]) -> None:
    """Only an active capture counts; a thread without a context captures nothing; an illegal query raises."""
    assert not stream_is_capturing(5)
    with driver_module.current(0x1000):
        assert [stream_is_capturing(stream) for stream in (4, 5, 6)] == [False, True, False]
        with pytest.raises(DriverError, match=r"cuStreamIsCapturing: unknown \(906\)"):
            stream_is_capturing(0)


@pytest.mark.refuses("device", "one that is not there, or no driver", "DriverError")
def test_devices_are_counted(fake: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is not there is refused; without devices or without a driver none is available."""
    assert CudaDevice.available()
    with pytest.raises(DriverError, match="no device 'cuda:2': the driver shows 2, numbered from 0"):
        CudaDevice(2)
    driver_module.forget()
    fake("devices", 0)
    assert not CudaDevice.available()
    driver_module.forget()

    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert not CudaDevice.available()
    with pytest.raises(DriverError, match=r"no CUDA driver \(libcuda\.so\.1: cannot open"):
        CudaDevice()


# Plans on several devices. Arrays are views of memory that nobody touches.

CONTEXTS = {"cuda:0": 0x1000, "cuda:1": 0x1001}


@pytest.fixture
def plan(fake: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> RMSNormBackwardPlan:
    """A plan of two kernels and a workspace, which no device has loaded."""
    monkeypatch.setattr(cuda_module, "_parameter_bytes", lambda kernel: None)
    monkeypatch.setattr(RMSNormBackwardPlan, "_selected", {})
    problem = RMSNormBackwardDescriptor(input_shape=(512, 4096), norm_axes_mask=2, has_gamma=True, element="f32")
    return RMSNormBackwardPlan.select(problem)


def arrays_of(plan: RMSNormBackwardPlan, device: str, **elsewhere: str) -> dict[str, TensorView]:
    """The plan's arrays and its workspace on `device`, those that are named elsewhere."""
    shapes = {name: shapes[0] for name, shapes in plan.shapes().items()} | {"workspace": (plan.workspace_bytes // 4,)}
    found = {}
    for number, (name, shape) in enumerate(shapes.items(), 1):
        strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        where = elsewhere.get(name, device)
        pointer = (number << 28) + (int(where[5:]) << 36)
        found[name] = TensorView(pointer, shape, strides, ElementKind.F32, where, False, None, None)
    return found


def how_to_call(plan: RMSNormBackwardPlan) -> dict[str, Callable[..., None]]:
    return {
        "run": plan.run,
        "run_unchecked": plan.run_unchecked,
        "bind": lambda stream=None, **arrays: plan.bind(**arrays)(stream),
    }


@pytest.mark.parametrize("how", ["run", "run_unchecked", "bind"])
@pytest.mark.parametrize("before", [0, 0x1000, 0x1001])
def test_a_plan_runs_where_its_arrays_are(
    fake: Callable[..., int], library: ctypes.CDLL, plan: RMSNormBackwardPlan, how: str, before: int
) -> None:
    """Each device has its own module and launches in its own context; the caller's stays current, or none does."""
    launches = plan._launches({n: v for n, v in arrays_of(plan, "cuda:0").items() if n in plan.ARGUMENTS}, 0)
    kernels, modules = len(launches), len({launch.source for launch in launches})
    assert kernels > 1
    with driver_module.current(before) if before else nullcontext():
        for turn, device in enumerate(("cuda:1", "cuda:0", "cuda:1", "cuda:0")):
            how_to_call(plan)[how](**arrays_of(plan, device))
            assert seen(library)[7:11:2] == [0, CONTEXTS[device]] and seen(library)[10] == CONTEXTS[device] + 0x5000
            assert fake("launches") == kernels * (turn + 1) and current() == before
    assert (fake("loads"), fake("retained")) == (2 * modules, 2)


@pytest.mark.refuses("device", "arrays on several", "InvalidProblem")
@pytest.mark.refuses("device", "a workspace on another than the arrays", "InvalidProblem")
def test_mixed_devices_are_refused(fake: Callable[..., int], plan: RMSNormBackwardPlan) -> None:
    """In a line that has every array and its device; nothing is loaded or started."""
    where = {"gamma": "cuda:0", "dx": "cuda:0"}
    said = (
        "RMSNormBackwardPlan: all arrays must be on one device, "
        "got 'dy', 'x', 'rms', 'dgamma' on cuda:1; 'gamma', 'dx' on cuda:0"
    )
    for call in (plan.run, plan.bind):
        with pytest.raises(InvalidProblem) as error:
            call(**arrays_of(plan, "cuda:1", **where))
        assert str(error.value) == said
    assert said in str(plan.can_implement(**arrays_of(plan, "cuda:1", **where)))
    with pytest.raises(InvalidProblem, match=r"^RMSNormBackwardPlan: workspace is on cuda:0, the arrays are on cuda:1"):
        plan.run(**arrays_of(plan, "cuda:1", workspace="cuda:0"))
    assert (fake("launches"), fake("loads"), fake("retained")) == (0, 0, 0)


@pytest.mark.refuses("stream", "of another device than the arrays, also for a bound plan", "InvalidProblem")
@pytest.mark.parametrize("how", ["run", "run_unchecked", "bind"])
def test_streams_of_another_device_are_refused(
    fake: Callable[..., int], library: ctypes.CDLL, plan: RMSNormBackwardPlan, how: str
) -> None:
    """Also where the call is remembered and the stream's device is current; the context stays as it is."""
    call, arrays = how_to_call(plan)[how], arrays_of(plan, "cuda:1")
    said = r"^kernel 'rms_norm_backward_\w+': stream 0xde00 is of cuda:0, the arrays are on cuda:1; pass a stream of"
    for before in (0x1000, 0x1001):
        with driver_module.current(before):
            for _ in range(2):
                with pytest.raises(InvalidProblem, match=said):
                    call(**arrays, stream=0xDE00)
                call(**arrays, stream=0xDE01)
                assert (seen(library)[7], seen(library)[9], current()) == (0xDE01, 0x1001, before)


@pytest.mark.refuses("capture", "of a kernel that is not loaded yet", "DriverError")
def test_nothing_is_loaded_while_a_graph_is_captured(fake: Callable[..., int], plan: RMSNormBackwardPlan) -> None:
    """The plan says what to do instead; once prepared it can be captured."""
    arrays = arrays_of(plan, "cuda:0")
    with driver_module.current(0x1000):
        for call in (plan.run, plan.run_unchecked):
            with pytest.raises(DriverError, match="is not loaded while a graph is captured; prepare the plan first"):
                call(**arrays, stream=5)
        assert (fake("loads"), fake("launches")) == (0, 0)
        plan.prepare("cuda:0").run(**arrays, stream=5)
    assert fake("launches") > 1


def test_a_plan_is_prepared_for_each_device(fake: Callable[..., int], plan: RMSNormBackwardPlan) -> None:
    plan.prepare("cuda:1")
    loads = fake("loads")
    plan.run(**arrays_of(plan, "cuda:1"))
    assert fake("loads") == loads and fake("retained") == 1
    plan.run(**arrays_of(plan, "cuda:0"))
    assert fake("loads") > loads and fake("retained") == 2
