"""What only a GPU can show: problems beyond 2^31 elements, graphs, streams, and the arrays of other libraries."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from baracuda import ops
from baracuda.generated import (
    FlashSdpaDescriptor,
    FlashSdpaSm90Plan,
    RMSNormBackwardDescriptor,
    RMSNormBackwardPlan,
    RMSNormDescriptor,
    RMSNormPlan,
)
from baracuda.runtime import DriverError, ElementKind, InvalidProblem, PlanPreference, TensorView
from baracuda.runtime.devices.tensor_map import encode

pytestmark = pytest.mark.gpu


def _bf16(shape: tuple[int, ...], bits: Any) -> TensorView:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return TensorView(
        int(bits.data.ptr), shape, tuple(reversed(strides)), ElementKind.BF16, "cuda:0", False, None, bits
    )


def _random_bits(cupy: Any, count: int) -> Any:
    """bf16 numbers between 1 and 2 of either sign, as their bits."""
    random = cupy.random.default_rng(1)
    bits = cupy.empty(count, np.uint16)
    for start in range(0, count, 1 << 28):
        stop = min(count, start + (1 << 28))
        drawn = random.integers(0, 1 << 16, stop - start, dtype=np.uint16)
        bits[start:stop] = (drawn & 0x807F) | 0x3F80
    return bits


def _floats(cupy: Any, bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_more_than_two_billion_elements() -> None:
    cupy = pytest.importorskip("cupy")
    rows, cols = 2**31 // 4096 + 9, 4096
    x, dy = _random_bits(cupy, rows * cols), _random_bits(cupy, rows * cols)
    gamma = _random_bits(cupy, cols)
    y, dx = cupy.zeros(rows * cols, np.uint16), cupy.zeros(rows * cols, np.uint16)
    rms, dgamma = cupy.zeros((rows, 1), np.float32), cupy.zeros(cols, np.float32)
    forward = RMSNormPlan.select(
        RMSNormDescriptor(input_shape=(rows, cols), norm_axes_mask=2, eps=1e-6, has_gamma=True, element="bf16")
    )
    forward.run(x=_bf16((rows, cols), x), gamma=_bf16((cols,), gamma), y=_bf16((rows, cols), y), rms=rms)
    backward = RMSNormBackwardPlan.select(
        RMSNormBackwardDescriptor(input_shape=(rows, cols), norm_axes_mask=2, has_gamma=True, element="bf16")
    )
    backward.run(
        dy=_bf16((rows, cols), dy),
        x=_bf16((rows, cols), x),
        gamma=_bf16((cols,), gamma),
        rms=rms,
        dx=_bf16((rows, cols), dx),
        dgamma=dgamma,
        workspace=cupy.empty(backward.workspace_bytes, np.uint8),
    )
    expected = cupy.zeros(cols, np.float64)
    for start in range(0, rows, 1 << 15):
        part = slice(start * cols, min(rows, start + (1 << 15)) * cols)
        values = _floats(cupy, x[part]).reshape(-1, cols).astype(np.float64)
        upstream = _floats(cupy, dy[part]).reshape(-1, cols).astype(np.float64)
        exact = cupy.sqrt((values**2).mean(1, keepdims=True) + 1e-6)
        gain = _floats(cupy, gamma).astype(np.float64)
        expected += (upstream * values / exact).sum(0)
        _close(cupy, _floats(cupy, y[part]).reshape(-1, cols), values / exact * gain, 2**-8)
        weighted = upstream * gain
        slope = weighted / exact - values * (weighted * values).mean(1, keepdims=True) / exact**3
        _close(cupy, _floats(cupy, dx[part]).reshape(-1, cols), slope, 2**-8)
    assert float(cupy.abs(dgamma - expected).max()) < 1e-6 * rows


def test_a_row_of_more_than_two_billion_elements() -> None:
    cupy = pytest.importorskip("cupy")
    cols = 2**31 + 4096
    x, y = _random_bits(cupy, cols), cupy.zeros(cols, np.uint16)
    rms = cupy.zeros((1, 1), np.float32)
    plan = RMSNormPlan.select(
        RMSNormDescriptor(input_shape=(1, cols), norm_axes_mask=2, eps=0.0, has_gamma=False, element="bf16")
    )
    plan.run(x=_bf16((1, cols), x), y=_bf16((1, cols), y), rms=rms)
    total = 0.0
    for start in range(0, cols, 1 << 28):
        total += float((_floats(cupy, x[start : start + (1 << 28)]).astype(np.float64) ** 2).sum())
    exact = (total / cols) ** 0.5
    assert abs(float(rms[0, 0]) / exact - 1) < 1e-2  # one thread adds two million terms one after the other
    tail = slice(cols - 5000, cols)
    _close(cupy, _floats(cupy, y[tail]), _floats(cupy, x[tail]).astype(np.float64) / float(rms[0, 0]), 2**-8)


def _close(cupy: Any, got: Any, exact: Any, relative: float) -> None:
    error = cupy.abs(got.astype(np.float64) - exact)
    assert bool((error <= relative * cupy.abs(exact) + 1e-5).all()), float(error.max())


def _small(cupy: Any, rows: int = 64, cols: int = 1024) -> tuple[Any, dict[str, Any]]:
    plan = RMSNormPlan.select(
        RMSNormDescriptor(input_shape=(rows, cols), norm_axes_mask=2, eps=1e-6, has_gamma=True, element="f32")
    )
    x = cupy.random.default_rng(0).standard_normal((rows, cols), dtype=np.float32)
    arrays = {"x": x, "gamma": cupy.ones(cols, np.float32), "y": cupy.zeros_like(x)}
    return plan, {**arrays, "rms": cupy.zeros((rows, 1), np.float32)}


def _expected(cupy: Any, x: Any) -> Any:
    return x / cupy.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("columns", "length"), [(64, 4100), (128, 520), (128, 64), (256, 1000)])
def test_passing_by_changes_no_bit(columns: int, length: int, causal: bool) -> None:
    """Warpgroups that pass by what only others see add up the same as those that weigh it with zero."""
    torch = pytest.importorskip("torch")
    sizes = {"batch_size": 3, "num_heads": 5, "query_len": length, "key_len": length, "d_k": columns, "d_v": columns}
    descriptor = FlashSdpaDescriptor(**sizes, scale=0.2, is_causal=causal, element="bf16")
    generator = torch.Generator("cuda").manual_seed(0)
    shape = 3, 5, length, columns
    q, k, v = (torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    found = []
    chosen = str(FlashSdpaSm90Plan.select(descriptor).sku.schedule)
    for passes in range(2):
        wanted = re.sub("passes[01]", f"passes{passes}", chosen)
        plan = FlashSdpaSm90Plan.select(descriptor, PlanPreference(schedules=frozenset({wanted})))
        y = torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        lse = torch.full(shape[:3], float("nan"), device="cuda")
        plan.run(q=q, k=k, v=v, y=y, lse=lse)
        found.append((y, lse))
    exact = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=causal, scale=0.2
    )
    assert float((found[0][0].double() - exact).norm() / exact.norm()) < 5e-3
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_thread_without_a_context_makes_tensor_maps() -> None:
    cupy = pytest.importorskip("cupy")
    bits = _random_bits(cupy, 64 * 64)
    view = _bf16((64, 64), bits)
    with ThreadPoolExecutor(1) as pool:
        maps = [pool.submit(encode, view, (64, 64)).result(), encode(view, (64, 64))]
    assert maps[0] == maps[1]


@pytest.mark.refuses("capture", "of a kernel that is not loaded yet", "DriverError")
def test_captured_in_a_graph() -> None:
    cupy = pytest.importorskip("cupy")
    plan, arrays = _small(cupy, cols=1536)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(DriverError, match="prepare"):
            plan.run(**arrays)
        stream.end_capture()
    plan.prepare("cuda:0")
    with stream:
        stream.begin_capture()
        plan.run(**arrays)
        graph = stream.end_capture()
        arrays["y"][:] = 0
        graph.launch()
    stream.synchronize()
    assert float(cupy.abs(arrays["y"] - _expected(cupy, arrays["x"])).max()) < 1e-5


def test_runs_on_the_stream_given_and_on_the_current_one() -> None:
    cupy = pytest.importorskip("cupy")
    plan, arrays = _small(cupy)
    plan.run(**arrays)
    cupy.cuda.Device().synchronize()
    slow = cupy.ones((4096, 4096), np.float32)
    for how in ("argument", "current"):
        stream = cupy.cuda.Stream(non_blocking=True)
        arrays["y"][:] = 0
        cupy.cuda.Device().synchronize()
        with stream:
            for _ in range(20):
                slow = slow @ slow / 4096
            arrays["x"] *= 2
            plan.run(**arrays, **({"stream": stream} if how == "argument" else {}))
        stream.synchronize()
        assert float(cupy.abs(arrays["y"] - _expected(cupy, arrays["x"])).max()) < 1e-5, how


def test_bound_launch_repeats() -> None:
    cupy = pytest.importorskip("cupy")
    plan, arrays = _small(cupy)
    bound = plan.bind(**arrays)
    for scale in (1, 3):
        arrays["x"] *= scale
        bound()
        cupy.cuda.Device().synchronize()
        assert float(cupy.abs(arrays["y"] - _expected(cupy, arrays["x"])).max()) < 1e-5


def test_takes_arrays_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(33, 4096, device="cuda", dtype=torch.bfloat16)
    gamma = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
    y, rms = torch.empty_like(x), torch.empty(33, 1, device="cuda")
    plan = RMSNormPlan.select(
        RMSNormDescriptor(input_shape=x.shape, norm_axes_mask=2, eps=1e-6, has_gamma=True, element="bf16")
    )
    plan.run(x=x, gamma=gamma, y=y, rms=rms)
    exact = torch.nn.functional.rms_norm(x.double(), (4096,), gamma.double(), 1e-6)
    assert bool(((y.double() - exact).abs() <= exact.abs() * 2**-8 + 1e-6).all())


def test_takes_arrays_of_numba() -> None:
    """A plan writes into them, and the functions that allocate take them."""
    cuda = pytest.importorskip("numba.cuda")
    host = np.random.default_rng(0).standard_normal((33, 1024), np.float32)
    x, y, rms = cuda.to_device(host), cuda.device_array_like(host), cuda.device_array((33, 1), np.float32)
    plan = RMSNormPlan.select(
        RMSNormDescriptor(input_shape=x.shape, norm_axes_mask=2, eps=1e-6, has_gamma=False, element="f32")
    )
    plan.run(x=x, y=y, rms=rms)
    cuda.synchronize()
    exact = np.sqrt((host.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6)
    assert np.abs(y.copy_to_host() - host / exact).max() < 1e-5
    assert np.abs(rms.copy_to_host() - exact).max() < 1e-5
    assert np.abs(ops.rms_norm(x, eps=1e-6).y.get() - host / exact).max() < 1e-5


@pytest.mark.refuses("device", "arrays on several", "InvalidProblem")
def test_refuses_mixed_devices() -> None:
    cupy = pytest.importorskip("cupy")
    plan, arrays = _small(cupy)
    with pytest.raises(InvalidProblem, match="one device"):
        plan.run(**{**arrays, "y": np.zeros((64, 1024), np.float32)})
