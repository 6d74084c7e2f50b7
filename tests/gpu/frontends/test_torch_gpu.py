"""Invariant: on a GPU, torch ops are what they are on the host device, on torch's streams, in its graphs and modes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from host.frontends.test_torch import DIFFERENTIABLE, DOUBLES, FORWARDS, called, ft, given, needing, numbers, overload, problems, signature, slopes  # noqa: E402,E501,I001

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")]
F = torch.nn.functional
DEVICE = "cuda"


@pytest.mark.parametrize("op", DOUBLES)
def test_values_and_gradients_are_the_host_devices(op: str) -> None:
    for problem in problems(op, "f64"):
        here, there = (needing(problem, numbers(problem, device=device)) for device in (DEVICE, "cpu"))
        ours, theirs = called(problem, here), called(problem, there)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9, check_device=False)
        if op in DIFFERENTIABLE:
            found, wanted = slopes(problem, ours, here), slopes(problem, theirs, there)
            torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8, check_device=False)


CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.mark.parametrize("op", FORWARDS)
def test_opcheck(op: str) -> None:
    problem = problems(op, "f32")[0]
    tensors = needing(problem, numbers(problem, device=DEVICE))
    arguments = [tensors.get(a.name) for a in signature(op).inputs]
    # The check of the schema multiplies inputs by 0, which torch has not for 8-bit floats.
    of_bytes = any(tensor.is_floating_point() and tensor.itemsize == 1 for tensor in tensors.values())
    torch.library.opcheck(overload(op), arguments, given(problem), test_utils=CHECKS[of_bytes:])


def random(*shape: int, dtype: Any = torch.float32, device: str = DEVICE) -> Any:
    return torch.randn(shape, device=device, dtype=dtype, requires_grad=True)


def attention(attend: Callable[..., Any]) -> Callable[[Any], Any]:
    """Of three parts of one tensor, a batch of 2 and 4 heads, each key before the query."""
    return lambda x: attend(*x.unflatten(1, (4, 3, -1)).permute(2, 0, 1, 4, 3), is_causal=True)


class Attention(torch.nn.Module):
    """As above, as a module."""

    def __init__(self, attend: Callable[..., Any], **_made: Any) -> None:
        super().__init__()
        self.forward = attention(attend)


class CutConv1d(torch.nn.Conv1d):
    """Without what its padding adds at the end."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)[..., : x.shape[-1]]


STAND_FOR: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...]]] = {
    "norm": (partial(ft.RMSNorm, 1024), partial(torch.nn.RMSNorm, 1024), (512, 1024)),
    "convolution": (
        partial(ft.CausalConv1d, 48, 4),
        partial(CutConv1d, 48, 48, 4, groups=48, padding=3),
        (2, 48, 700),
    ),
    "attention": (
        partial(Attention, ft.scaled_dot_product_attention),
        partial(Attention, F.scaled_dot_product_attention),
        (2, 4 * 3 * 64, 300),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", STAND_FOR)
def test_what_stands_for_torchs_is_as_exact(name: str, dtype: Any) -> None:
    """Its distance from torch's in float64 is at most twice that of torch's, or a few roundings.

    Of attention in f32 it is eight times: a product of floats is three of TF32 there, which drop what both left over.
    """
    factor = 8 if (name, dtype) == ("attention", torch.float32) else 2
    torch.manual_seed(0)
    our, their, shape = STAND_FOR[name]
    ours, theirs, exact = (m(device=DEVICE, dtype=d) for m, d in ((our, dtype), (their, dtype), (their, torch.float64)))
    ours.load_state_dict(theirs.state_dict())
    exact.load_state_dict(theirs.state_dict())
    x = random(*shape, dtype=dtype)
    values, gradients = zip(*(both(f, x) for f in (ours, theirs)), strict=True)
    for (mine, its), best in zip((values, gradients), both(exact, x.double()), strict=True):
        apart = [float((found.double() - best).abs().max()) for found in (mine, its)]
        assert apart[0] <= factor * apart[1] + 4 * torch.finfo(dtype).eps


def both(function: Any, x: Any) -> tuple[Any, Any]:
    """The value at `x`, and the gradient of its sum."""
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y.sum(), x)[0]


def test_the_usual_eps_is_torchs() -> None:
    x = torch.rand(4, 8, dtype=torch.bfloat16, device=DEVICE) * 1e-2
    torch.testing.assert_close(ft.rms_norm(x, (8,)), F.rms_norm(x, (8,)))


def test_ops_run_on_the_current_stream() -> None:
    x, stream = torch.zeros(1 << 16, 64, device=DEVICE), torch.cuda.Stream()
    softmax = torch.ops.baracuda.softmax
    softmax(x, softmax_axis=1)  # compiled, so that nothing waits below
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x[:, 0] = 100.0
        y = softmax(x, softmax_axis=1)
    stream.synchronize()
    assert torch.all(y[:, 0] == 1)


def test_a_graph_records_forward_and_backward() -> None:
    x, gain = random(64, 128), random(128)

    def step() -> Any:
        y, _ = torch.ops.baracuda.rms_norm(x, gain, norm_axes_mask=2, eps=1e-6)
        return torch.autograd.grad(y.square().sum(), (x, gain))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(found, step(), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of inductor itself
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_compiles_forward_and_backward(mode: str) -> None:
    torch._dynamo.reset()
    norm, conv = ft.RMSNorm(300, device=DEVICE), ft.CausalConv1d(4 * 3 * 64, 4, silu=True, device=DEVICE)
    attend = attention(ft.scaled_dot_product_attention)
    block = lambda x: attend(conv(norm(x)))  # noqa: E731
    compiled = torch.compile(block, fullgraph=True, mode=mode)
    for _ in range(4):  # the third replays what the second records
        x = random(2, 4 * 3 * 64, 300)
        torch.compiler.cudagraph_mark_step_begin()
        ours = torch.autograd.grad(compiled(x).square().sum(), x)[0].clone()
        torch.testing.assert_close(ours, torch.autograd.grad(block(x).square().sum(), x)[0], rtol=1e-4, atol=1e-4)


def test_autocast_with_scaled_losses() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), ft.RMSNorm(64), torch.nn.Linear(64, 8)).to(DEVICE)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(DEVICE, init_scale=1024.0)
    with torch.autocast(DEVICE, torch.float16):
        y = model(random(32, 64))
    assert y.dtype == torch.float16 and model[1].weight.dtype == torch.float32
    before = model[1].weight.detach().clone()
    scaler.scale(y.float().square().mean()).backward()
    scaler.step(optimizer)
    assert model[1].weight.grad.dtype == torch.float32 and not torch.equal(model[1].weight, before)


def test_tensors_here_and_there_are_refused() -> None:
    with pytest.raises(Exception, match="all arrays must be on one device"):
        torch.ops.baracuda.rms_norm(torch.rand(2, 3, device=DEVICE), torch.rand(3), norm_axes_mask=2, eps=0.0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_tensors_on_a_device_that_is_not_the_current_one() -> None:
    torch.manual_seed(0)
    drawn = torch.randn(2, 4 * 3 * 64, 300)
    found = []
    for device in ("cuda:0", "cuda:1", "cuda:1"):  # compiled, and again
        x = drawn.to(device).requires_grad_()
        y = attention(ft.scaled_dot_product_attention)(x)
        assert y.device == x.device and torch.cuda.current_device() == 0
        found.append((y.cpu(), torch.autograd.grad(y.square().sum(), x)[0].cpu()))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    torch.testing.assert_close(found[2], found[0], rtol=0, atol=0)
