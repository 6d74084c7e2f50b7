"""Invariant: in a batch-invariant block, a sequence has the same bits whatever it is computed beside."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from repository import ROOT

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda.frontends.torch")
if not hasattr(torch.library, "get_kernel"):
    pytest.skip("torch is older than 2.9", allow_module_level=True)
kernels = pytest.importorskip("baracuda.frontends.torch.invariant.kernels")
table = pytest.importorskip("baracuda.frontends.torch.invariant.table")
nn, F = torch.nn, torch.nn.functional

WIDTH, HEADS, SHARED, WORDS, LENGTH = 32, 4, 2, 64, 9
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


class Block(nn.Module):
    """A block of Llama: attention whose heads share keys, and a gated layer of neurons."""

    def __init__(self) -> None:
        super().__init__()
        each = WIDTH // HEADS
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, SHARED * each, bias=False) for _ in "kv")
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in "gu")
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Any, past: list[Any]) -> Any:
        normal = self.first(x)
        split = (part(normal).unflatten(-1, (-1, WIDTH // HEADS)) for part in (self.q, self.k, self.v))
        q, k, v = (heads.transpose(1, 2) for heads in split)
        if past:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        mask = None
        if past:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=x.device).tril(k.shape[2] - q.shape[2])
        past[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        normal = self.second(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    """Log-probabilities of the next word after each of `words`, of which some may have been read before."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(WORDS, WIDTH), nn.RMSNorm(WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: Any, past: list[list[Any]] | None = None) -> Any:
        x = self.words(words)
        for block, before in zip(self.blocks, past or [[], []], strict=True):
            x = block(x, before)
        return self.head(self.last(x)).log_softmax(-1)


class Encoder(nn.Module):
    """Layers of nn, with a mean over each sequence in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, words: Any) -> Any:
        x = self.layers(self.words(words))
        y, weights = self.attention(x, x, x)
        return torch.cat((y.mean(1), weights.sum(1), F.normalize(y, dim=-1).var(1)), -1)


def example_decoder() -> Any:
    """That of the repository's example, made of torch's norm and attention; its convolution is ours."""
    spec = importlib.util.spec_from_file_location("example_model", ROOT / "examples" / "transformer" / "model.py")
    assert spec and spec.loader
    model = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    size = model.Size(layers=1, width=WIDTH, heads=HEADS, kv_heads=SHARED, context=LENGTH)
    return model.Decoder(size, model.Ops(nn.RMSNorm, bt.CausalConv1d, F.scaled_dot_product_attention))


MODELS: dict[str, Callable[[], Any]] = {"llama": Llama, "encoder": Encoder, "example": example_decoder}


def made(name: str, device: str, dtype: Any) -> tuple[Any, Any]:
    """A model, and eight texts."""
    torch.manual_seed(0)
    model = MODELS[name]().to(device, dtype).eval()
    return model, torch.randint(WORDS, (8, LENGTH)).to(device)


def same(model: Callable[[Any], Any], words: Any) -> bool:
    """Whether each text alone has the bits that it has at any place in batches of two and more."""
    alone = [model(words[i : i + 1])[0] for i in range(len(words))]
    for count in range(2, len(words) + 1):
        first = 3 * count
        order = [(first + i) % len(words) for i in range(count)]
        if not all(torch.equal(y, alone[i]) for i, y in zip(order, model(words[order]), strict=True)):
            return False
    return True


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The names of our kernels that run."""
    names: set[str] = set()
    compute = kernels.Kernel.compute

    def call(self: Any, *inputs: Any, **keywords: Any) -> Any:
        names.add(self.signature.name)
        return compute(self, *inputs, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(kernels.Kernel, "compute", call)
        yield names


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_has_the_same_bits_in_any_batch(name: str, dtype: Any, device: str) -> None:
    model, words = made(name, device, dtype)
    with torch.inference_mode(), bt.batch_invariant(device=device):
        assert same(model, words)


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_read_in_parts_has_the_bits_of_each_text_read_so(device: str) -> None:
    model, words = made("llama", device, torch.bfloat16)

    def in_parts(texts: Any) -> Any:
        past: list[list[Any]] = [[], []]
        return torch.cat([model(part, past) for part in texts.split([4, 3, 1, 1], 1)], 1)

    with torch.inference_mode(), bt.batch_invariant(device=device):
        assert same(in_parts, words[:4])


def test_training_gives_each_sequence_the_same_gradient_in_any_batch() -> None:
    """That of what goes in; of weights they are sums over the batch."""
    model, words = made("llama", "cpu", torch.float32)

    def slopes(x: Any) -> Any:
        x = model.words(x).detach().requires_grad_()
        y = x
        for block in model.blocks:
            y = block(y, [])
        loss = F.cross_entropy(model.head(model.last(y)).flatten(0, 1), words[0].repeat(len(x)), reduction="none")
        return torch.autograd.grad(loss.sum(), [x])[0]

    with bt.batch_invariant(device="cpu"):
        assert same(slopes, words[:3])


def test_recorded_calls_have_the_bits_of_those_that_are_not() -> None:
    model, words = made("llama", "cpu", torch.bfloat16)
    with bt.batch_invariant(device="cpu"):
        recorded = model(words[:2])
        with torch.no_grad():
            assert recorded.requires_grad and torch.equal(recorded, model(words[:2]))


def test_our_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (
        ("llama", {"dense_gemm", "log_softmax"}),
        ("encoder", {"dense_gemm", "linear", "softmax", "layer_norm", "reduce_rows"}),
    ):
        model, words = made(name, "cpu", torch.float32)
        with torch.no_grad(), counted(monkeypatch) as names:
            model(words[:2])
            assert not names
            with bt.batch_invariant(device="cpu"):
                model(words[:2])
            assert names == expected
            names.clear()
            model(words[:2])
            assert not names


@pytest.mark.parametrize("op", ["linear", "native_layer_norm", "mean.dim", "_softmax", "bmm"])
def test_a_kernel_that_depends_on_the_batch_is_noticed(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As aten's do: it computes otherwise for more than two texts."""
    entries = table.COMPOSED if op in table.COMPOSED else table.KERNELS
    compute = entries[op]

    def swayed(x: Any, *others: Any, **keywords: Any) -> Any:
        found = compute(x, *others, **keywords)
        if x.numel() <= 2 * LENGTH * 2 * WIDTH:
            return found
        return (found[0] * (1 + 2**-20), *found[1:]) if isinstance(found, tuple) else found * (1 + 2**-20)

    monkeypatch.setitem(entries, op, swayed)
    model, words = made("encoder", "cpu", torch.float32)
    with torch.inference_mode(), bt.batch_invariant(device="cpu"):
        assert not same(model, words)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_a_row_has_the_same_bits_in_every_product(dtype: Any, device: str) -> None:
    """In batches of one and of many torch takes different ones: by strides, ranks and whether a bias is expanded."""
    torch.manual_seed(0)
    x, w = torch.randn(5, 4, 40).to(device, dtype), torch.randn(24, 40).to(device, dtype)
    bias = torch.randn(24).to(device, dtype)
    with bt.batch_invariant(device=device):
        y = x @ w.t()
        for found in (
            torch.mm(x[2], w.t()),
            torch.bmm(x, w.t().expand(5, 40, 24))[2],
            torch.stack([torch.mv(w, row) for row in x[2]]),
            torch.stack([torch.stack([torch.dot(row, column) for column in w]) for row in x[2]]),
            torch.addmm(bias, x[2], w.t(), beta=0),
            torch.einsum("bij,kj->bik", x, w)[2],
            torch.matmul(x[2:3].transpose(0, 1), w.t())[:, 0],
        ):
            assert torch.equal(found, y[2])
        z = F.linear(x, w, bias)
        for found in (
            torch.addmm(bias, x[2], w.t()),
            torch.addmm(bias.expand(4, 24), x[2], w.t()),
            torch.baddbmm(bias, x, w.t().expand(5, 40, 24))[2],
            F.linear(x.transpose(0, 1), w, bias)[:, 2],
            F.linear(x[2:3].transpose(0, 1), w, bias)[:, 0],
        ):
            assert torch.equal(found, z[2])
