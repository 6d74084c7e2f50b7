"""What only two GPUs can show: a plan compiles and launches where its arrays are, whichever device is current."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import baracuda.ops
from baracuda.generated import FlashSdpaDescriptor, FlashSdpaPlan, RMSNormDescriptor, RMSNormPlan
from baracuda.runtime import InvalidProblem

pytestmark = pytest.mark.gpu(2)

ROWS, COLS = 64, 1024
Arrays = dict[str, Any]


def a_plan() -> RMSNormPlan:
    """One that no device has loaded, nor remembers a call."""
    problem = RMSNormDescriptor(input_shape=(ROWS, COLS), norm_axes_mask=2, eps=1e-6, has_gamma=True, element="f32")
    RMSNormPlan._selected.clear()
    return RMSNormPlan.select(problem)


class Cupy:
    """Arrays of CuPy, made on a device while device 0 stays current."""

    def __init__(self) -> None:
        self.cupy = pytest.importorskip("cupy")

    def arrays(self, ordinal: int) -> Arrays:
        with self.cupy.cuda.Device(ordinal):
            x = self.cupy.asarray(np.random.default_rng(0).standard_normal((ROWS, COLS), np.float32))
            made = {"x": x, "gamma": self.cupy.ones(COLS, np.float32), "y": self.cupy.zeros_like(x)}
            return {**made, "rms": self.cupy.zeros((ROWS, 1), np.float32)}

    def stream(self, ordinal: int) -> Any:
        with self.cupy.cuda.Device(ordinal):
            return self.cupy.cuda.Stream(non_blocking=True)

    def use(self, ordinal: int) -> None:
        self.cupy.cuda.runtime.setDevice(ordinal)

    def current(self) -> int:
        return int(self.cupy.cuda.runtime.getDevice())

    def clear(self, array: Any) -> None:
        with self.cupy.cuda.Device(array.device.id) as device:
            array.fill(0)
            device.synchronize()

    def values(self, array: Any) -> Any:
        with self.cupy.cuda.Device(array.device.id) as device:
            device.synchronize()
            return array.get()

    def ordinal_of(self, array: Any) -> int:
        return int(array.device.id)


class Torch:
    """The same of torch."""

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")

    def arrays(self, ordinal: int) -> Arrays:
        place = f"cuda:{ordinal}"
        x = self.torch.from_numpy(np.random.default_rng(0).standard_normal((ROWS, COLS), np.float32)).to(place)
        made = {"x": x, "gamma": self.torch.ones(COLS, device=place), "y": self.torch.zeros_like(x)}
        return {**made, "rms": self.torch.zeros(ROWS, 1, device=place)}

    def stream(self, ordinal: int) -> Any:
        return self.torch.cuda.Stream(f"cuda:{ordinal}")

    def use(self, ordinal: int) -> None:
        self.torch.cuda.set_device(ordinal)

    def current(self) -> int:
        return int(self.torch.cuda.current_device())

    def clear(self, array: Any) -> None:
        array.zero_()
        self.torch.cuda.synchronize(array.device)

    def values(self, array: Any) -> Any:
        self.torch.cuda.synchronize(array.device)
        return array.cpu().numpy()

    def ordinal_of(self, array: Any) -> int:
        return int(array.device.index)


@pytest.fixture(params=[Cupy, Torch])
def library(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A library of arrays; device 0 is current before and after a test, whatever others left (JAX leaves the last)."""
    found = request.param()
    found.use(0)
    found.values(found.arrays(0)["x"])
    assert found.current() == 0
    yield found
    assert found.current() == 0


def calls(plan: RMSNormPlan) -> dict[str, Callable[..., None]]:
    return {
        "run": plan.run,
        "run_unchecked": plan.run_unchecked,
        "bind": lambda stream=None, **arrays: plan.bind(**arrays)(stream),
    }


def is_right(library: Any, arrays: Arrays) -> bool:
    x, y = library.values(arrays["x"]).astype(np.float64), library.values(arrays["y"])
    return bool(np.abs(y - x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)).max() < 1e-5)


@pytest.mark.parametrize("how", ["run", "run_unchecked", "bind"])
@pytest.mark.parametrize("own_stream", [False, True])
def test_runs_on_the_device_that_is_not_current(library: Any, how: str, own_stream: bool) -> None:
    """The first time and when the call is remembered, on either device in turn."""
    plan = a_plan()
    for ordinal in (1, 0, 1):
        arrays, stream = library.arrays(ordinal), library.stream(ordinal) if own_stream else None
        for _ in range(2):
            library.clear(arrays["y"])
            calls(plan)[how](**arrays, stream=stream)
            assert library.current() == 0
            assert is_right(library, arrays), (ordinal, how)


@pytest.mark.refuses("device", "arrays on several", "InvalidProblem")
def test_mixed_devices_are_refused(library: Any) -> None:
    plan, arrays = a_plan(), library.arrays(1)
    arrays["gamma"] = library.arrays(0)["gamma"]
    with pytest.raises(InvalidProblem, match="one device, got 'x', 'y', 'rms' on cuda:1; 'gamma' on cuda:0"):
        plan.run(**arrays)


@pytest.mark.refuses("stream", "of another device than the arrays, also for a bound plan", "InvalidProblem")
@pytest.mark.parametrize("how", ["run", "run_unchecked", "bind"])
def test_streams_of_another_device_are_refused(library: Any, how: str) -> None:
    """And leave nothing behind: the next call works."""
    plan, arrays, stream = a_plan(), library.arrays(1), library.stream(0)
    library.values(arrays["x"])
    for _ in range(2):
        with pytest.raises(InvalidProblem, match="is of cuda:0, the arrays are on cuda:1; pass a stream of that"):
            calls(plan)[how](**arrays, stream=stream)
    calls(plan)[how](**arrays)
    assert is_right(library, arrays)


def test_functions_allocate_where_their_inputs_are(library: Any) -> None:
    arrays = library.arrays(1)
    y, rms = baracuda.ops.rms_norm(arrays["x"], arrays["gamma"])
    assert library.ordinal_of(y) == library.ordinal_of(rms) == 1
    assert is_right(library, {**arrays, "y": y})


def test_attention_finds_its_tensors_on_the_other_device() -> None:
    """By the copy engine, where there is one: it is told of tensors by the host."""
    torch = pytest.importorskip("torch")
    sizes = {"batch_size": 1, "num_heads": 4, "query_len": 512, "key_len": 512, "d_k": 64, "d_v": 64}
    plan = FlashSdpaPlan.select(FlashSdpaDescriptor(**sizes, scale=0.125, is_causal=True, element="bf16"))
    found = []
    for ordinal in (0, 1):
        place = torch.device("cuda", ordinal)
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, 4, 512, 64, generator=generator).bfloat16().to(place) for _ in range(3))
        y, lse = torch.empty_like(q), torch.empty(1, 4, 512, device=place)
        plan.run(q=q, k=k, v=v, y=y, lse=lse)
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
        assert float((y.double() - exact).norm() / exact.norm()) < 5e-3
        found.append(y.cpu())
    same = torch.cuda.get_device_capability(0) == torch.cuda.get_device_capability(1)
    assert torch.equal(*found) or not same


def test_gradients_are_computed_on_the_other_device() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("baracuda.frontends.torch")
    torch.cuda.set_device(0)
    x = torch.randn(32, 256, device="cuda:1", requires_grad=True)
    gain = torch.ones(256, device="cuda:1", requires_grad=True)
    torch.ops.baracuda.rms_norm(x, gain, norm_axes_mask=2, eps=1e-6)[0].square().sum().backward()
    found = x.grad.clone(), gain.grad.clone()
    x.grad = gain.grad = None
    torch.nn.functional.rms_norm(x, (256,), gain, 1e-6).square().sum().backward()
    for ours, theirs in zip(found, (x.grad, gain.grad), strict=True):
        assert ours.device.index == 1
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert torch.cuda.current_device() == 0
