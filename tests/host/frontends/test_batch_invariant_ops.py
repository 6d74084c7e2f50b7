"""Invariant: what takes the place of aten's kernels computes the same, refuses what it cannot, and goes again."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from baracuda.runtime import InvalidProblem, Unsupported

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda.frontends.torch")
if not hasattr(torch.library, "get_kernel"):
    pytest.skip("torch is older than 2.9", allow_module_level=True)
F = torch.nn.functional

Made = Callable[..., Any]
PRODUCTS: dict[str, tuple[Made, list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(3, 4), (4, 5)]),
    "bmm": (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "addmm": (torch.addmm, [(5,), (3, 4), (4, 5)]),
    "addmm scaled": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [(3, 1), (3, 4), (4, 5)]),
    "addmm of nothing": (lambda c, a, b: torch.addmm(c, a, b, beta=0, alpha=2), [(3, 5), (3, 4), (4, 5)]),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=3), [(5,), (2, 3, 4), (2, 4, 5)]),
    "mv": (torch.mv, [(3, 4), (4,)]),
    "addmv": (lambda c, a, x: torch.addmv(c, a, x, beta=2), [(3,), (3, 4), (4,)]),
    "dot": (torch.dot, [(4,), (4,)]),
    "matmul": (torch.matmul, [(2, 1, 3, 4), (5, 4, 2)]),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bki", a, b), [(2, 3, 4), (2, 5, 4)]),
    "linear": (F.linear, [(2, 3, 4), (5, 4), (5,)]),
    "linear of a vector": (F.linear, [(4,), (5, 4)]),
    "linear of one row": (F.linear, [(2, 4), (4,)]),
    "bilinear": (F.bilinear, [(3, 4), (3, 5), (2, 4, 5)]),
}
ROWS: dict[str, tuple[Made, list[tuple[int, ...]]]] = {
    "softmax": (lambda x: x.softmax(1), [(3, 4, 5)]),
    "softmax of a number": (lambda x: x.softmax(0), [()]),
    "log_softmax": (lambda x: x.log_softmax(-1), [(3, 4)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3])), [(3, 4)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4, 5), w, b), [(3, 4, 5), (4, 5), (4, 5)]),
    "layer_norm without offset": (lambda x, w: F.layer_norm(x, (5,), w), [(3, 5), (5,)]),
    "layer_norm without gain": (lambda x, b: F.layer_norm(x, (5,), None, b), [(3, 5), (5,)]),
    "layer_norm alone": (lambda x: F.layer_norm(x, (5,)), [(3, 5)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4, 5), w), [(3, 4, 5), (4, 5)]),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), [(2, 3, 4, 8), (2, 3, 4, 8)]),
    "logsumexp": (lambda x: x.logsumexp(1), [(3, 4, 5)]),
    "normalize": (lambda x: F.normalize(x, dim=1), [(3, 4)]),
    "cosine": (F.cosine_similarity, [(3, 4), (3, 4)]),
}
for keep in (False, True):
    for dim in (0, 1, -1, (0, 2), (2, 0), (1, 2), (0, 1, 2), None):
        for reduce in (torch.sum, torch.mean, torch.var, torch.std, torch.linalg.vector_norm):
            if dim is not None or reduce in (torch.sum, torch.mean):
                ROWS[f"{reduce.__name__} {dim} {keep}"] = partial(reduce, dim=dim, keepdim=keep), [(3, 4, 5)]


def on() -> Any:
    return bt.batch_invariant(device="cpu")


@pytest.mark.parametrize("name", [*PRODUCTS, *ROWS])
def test_values_and_gradients_are_torchs(name: str) -> None:
    compute, shapes = {**PRODUCTS, **ROWS}[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    theirs = compute(*inputs)
    weights = torch.randn_like(theirs)
    expected = torch.autograd.grad((theirs * weights).sum(), inputs)
    with on():
        ours = compute(*inputs)
        found = torch.autograd.grad((ours * weights).sum(), inputs)
    torch.testing.assert_close((ours, *found), (theirs, *expected), rtol=1e-9, atol=1e-9)
    assert name == "attention" or ours.stride() == theirs.stride()


@pytest.mark.parametrize("gained", [False, True])
def test_the_fused_norm_of_gpus_is_the_norm(gained: bool) -> None:
    """torch has the op on GPUs alone."""
    from baracuda.frontends.torch.invariant import rows

    x, dy = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True), torch.randn(3, 4, 5, dtype=torch.float64)
    weight = torch.randn(5, dtype=torch.float64, requires_grad=True) if gained else None
    theirs = F.rms_norm(x, (5,), weight)
    inputs = [t for t in (x, weight) if t is not None]
    expected = torch.autograd.grad(theirs, inputs, dy)
    with torch.no_grad():
        y, rrms = rows.rms_norm(x, [5], weight)
        found = [g for g in rows.rms_norm_backward(dy, x, [5], rrms, weight, [True, True]) if g is not None]
    assert rrms.shape == (3, 4, 1)
    torch.testing.assert_close((y, *found), (theirs, *expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_types_are_torchs(dtype: Any) -> None:
    x, wide = torch.randn(3, 4).to(dtype), torch.randn(4)
    calls: list[Made] = [
        lambda: x.sum(1),
        lambda: x.sum(1, dtype=torch.float32),
        lambda: x.mean(-1, dtype=torch.float64),
        lambda: (x > 0).sum(1, dtype=torch.float32),
        lambda: x.softmax(-1, dtype=torch.float32),
        lambda: x.var(1),
        lambda: torch.linalg.vector_norm(x, dim=1, dtype=torch.float32),
        lambda: F.layer_norm(x, (4,)),
        lambda: F.rms_norm(x, (4,), wide.to(dtype)),
    ]
    for call in calls:
        theirs = call()
        with on():
            torch.testing.assert_close(call(), theirs, rtol=2e-2, atol=2e-2)


def test_results_are_written_where_they_are_wanted() -> None:
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    with on():
        expected = torch.addmm(c, a, b)
        out = torch.empty(3, 5)
        assert torch.addmm(c, a, b, out=out) is out and torch.equal(out, expected)
        grown = torch.empty(0)
        assert torch.equal(torch.mm(a, b, out=grown), a @ b) and grown.shape == (3, 5)
        assert torch.equal(c.addmm_(a, b), expected) and torch.equal(c, expected)
        assert torch.equal(torch.sum(a, 1, out=torch.empty(3)), a.sum(1))
        with pytest.raises(RuntimeError, match="dtype"):
            torch.mm(a, b, out=torch.empty(3, 5, dtype=torch.float64))


def test_groups_of_rows_have_the_bits_of_their_own_product() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(9, 6), torch.randn(4, 6, 5)
    ends = torch.tensor([3, 3, 8, 9], dtype=torch.int32)
    with on():
        y = torch._grouped_mm(x, w, offs=ends)
        for group, (begin, end) in enumerate(((0, 3), (3, 3), (3, 8), (8, 9))):
            assert torch.equal(y[begin:end], x[begin:end] @ w[group])
        assert torch.equal(torch._grouped_mm(x.expand(4, 9, 6), w), torch.bmm(x.expand(4, 9, 6), w))
        # Columns in groups: each has the matrix of its group on the left.
        y = torch._grouped_mm(w.mT, x.t(), offs=ends)
        for group, (begin, end) in enumerate(((0, 3), (3, 3), (3, 8), (8, 9))):
            assert torch.equal(y[:, begin:end], w[group].t() @ x[begin:end].t())
        with pytest.raises(Unsupported, match="rows or columns in groups only"):
            torch._grouped_mm(x.t(), x, offs=torch.tensor([4, 9], dtype=torch.int32))


def test_products_of_8_bit_floats_have_the_same_bits_for_each_row() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(20, 48).to(torch.float8_e4m3fn), torch.randn(32, 48).to(torch.float8_e4m3fn).t()
    of_a, of_b = torch.rand(20, 1) + 0.5, torch.rand(1, 32) + 0.5
    exact = (a.double() @ b.double()) * of_a * of_b
    one = torch.tensor(1.5)
    with on():
        y = torch._scaled_mm(a, b, of_a, of_b, out_dtype=torch.bfloat16)
        torch.testing.assert_close(y.double(), exact, rtol=2**-8, atol=0.02)
        assert torch.equal(torch._scaled_mm(a[7:9], b, of_a[7:9], of_b, out_dtype=torch.bfloat16), y[7:9])
        scaled = torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)
        torch.testing.assert_close(scaled.double(), (a.double() @ b.double()) * 2.25, rtol=1e-3, atol=0.02)
        with pytest.raises(Unsupported, match=r"stores torch\.float8_e4m3fn"):
            torch._scaled_mm(a, b, one, one)
        with pytest.raises(Unsupported, match=r"not \(20, 2\)"):
            torch._scaled_mm(a, b, torch.ones(20, 2), of_b, out_dtype=torch.bfloat16)


def test_products_with_scales_of_blocks_have_the_same_bits_for_each_row() -> None:
    torch.manual_seed(0)
    rows, depth, columns = 20, 272, 144
    a = torch.randn(rows, depth).to(torch.float8_e4m3fn)
    b = torch.randn(columns, depth).to(torch.float8_e4m3fn).t()
    of_a, of_b = torch.rand(rows, 3) + 0.5, torch.rand(3, 2) + 0.5
    wide_b = of_b.repeat_interleave(128, 0)[:depth].repeat_interleave(128, 1)[:, :columns]
    exact = (a.double() * of_a.repeat_interleave(128, 1)[:, :depth]) @ (b.double() * wide_b)
    padded = torch.cat((of_b, torch.full((1, 2), torch.nan)))
    with on():
        y = torch._scaled_mm(a, b, of_a, of_b, out_dtype=torch.bfloat16)
        torch.testing.assert_close(y.double(), exact, rtol=2**-8, atol=0.05)
        assert torch.equal(torch._scaled_mm(a[7:9], b, of_a[7:9], of_b, out_dtype=torch.bfloat16), y[7:9])
        with pytest.raises(Unsupported, match="with scales of blocks there is none with a bias"):
            torch._scaled_mm(a, b, of_a, of_b, torch.ones(columns), out_dtype=torch.bfloat16)
        if hasattr(torch, "_scaled_mm_v2"):
            for scales in (of_b, padded):
                assert torch.equal(_scaled(a, b, of_a, 4, scales, 5), y)


@pytest.mark.skipif(not hasattr(torch, "_scaled_mm_v2"), reason="torch has no _scaled_mm_v2")
def test_recipes_say_what_scales_belong_to() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(20, 48).to(torch.float8_e4m3fn), torch.randn(32, 48).to(torch.float8_e5m2).t()
    of_a, of_b, one = torch.rand(20, 1) + 0.5, torch.rand(1, 32) + 0.5, torch.tensor(1.5)
    with on():
        for given in ((of_a, 1, of_b, 1), (one, 0, one, 0)):
            expected = torch._scaled_mm(a, b, given[0], given[2], out_dtype=torch.bfloat16)
            assert torch.equal(_scaled(a, b, *given), expected)
            out = torch.empty_like(expected)
            _scaled(a, b, *given, out=out)
            assert torch.equal(out, expected)
        with pytest.raises(Unsupported, match=r"recipes \[3\] and \[3\]; needs TensorWise or RowWise twice"):
            _scaled(a, b, of_a, 3, of_b, 3)
        with pytest.raises(Unsupported, match="swizzled scales"):
            torch._scaled_mm_v2(a, b, [one], [0], [1], [one], [0], [1], None, torch.bfloat16)


def _scaled(a: Any, b: Any, of_a: Any, recipe_a: int, of_b: Any, recipe_b: int, **out: Any) -> Any:
    return torch._scaled_mm_v2(a, b, [of_a], [recipe_a], [], [of_b], [recipe_b], [], None, torch.bfloat16, **out)


def test_what_is_exact_is_left_to_torch() -> None:
    """Whole numbers, maxima, and what has no elements."""
    whole = torch.arange(12).reshape(3, 4)
    calls: list[Made] = [
        lambda: whole.sum(1),
        lambda: (whole > 3).sum(-1),
        lambda: whole @ whole.t(),
        lambda: whole.cumsum(1),
        lambda: torch.linalg.vector_norm(whole.float(), torch.inf, 1),
        lambda: torch.empty(0, 4) @ torch.ones(4, 5),
        lambda: torch.ones(3, 0) @ torch.ones(0, 5),
        lambda: torch.empty(0, 4).softmax(-1),
        lambda: torch.empty(3, 0).sum(1),
    ]
    for call in calls:
        theirs = call()
        with on():
            torch.testing.assert_close(call(), theirs, rtol=0, atol=0)


REFUSED: dict[str, tuple[Made, str]] = {
    "convolution": (lambda x: F.conv1d(x, x), r"aten::convolution of torch\.float32\[4, 4, 4\], torch\.float32\["),
    "dropout": (lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), r"dropout_p is 0\.5; needs 0"),
    "scan": (lambda x: x.cumsum(1), "aten::cumsum of .* has no batch-invariant kernel: there is none of this op"),
    "complex": (lambda x: torch.bmm(x.cfloat(), x.cfloat()), r"aten::bmm of torch\.complex64\[4, 4, 4\]"),
    "order": (lambda x: torch.linalg.vector_norm(x, 3, 1), "the norm is of order 3; needs 0, 1, 2 or infinity"),
    "factor": (lambda x: torch.baddbmm(x, x, x, alpha=torch.inf), r"aten::baddbmm of .* needs isfinite\(alpha\)"),
    "rank": (lambda x: x.reshape(1, 1, 1, 1, 1, 1, 4, 4, 4).sum(-1), r"aten::sum\.dim_IntList of .* <= 8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_is_refused(name: str) -> None:
    compute, told = REFUSED[name]
    x = torch.randn(4, 4, 4)
    with on(), pytest.raises(Unsupported, match=f"{told}.*strict=False"):
        compute(x)


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "dropout"])
def test_what_has_no_kernel_runs_torchs_if_asked(name: str) -> None:
    compute, told = REFUSED[name]
    x = torch.randn(4, 4, 4)
    theirs = compute(x)
    with bt.batch_invariant(strict=False, device="cpu"):
        with pytest.warns(UserWarning, match=f"{told}.*torch's runs"):
            found = compute(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compute(x)  # has been told
    assert torch.equal(found, theirs)


def test_wrong_calls_raise_what_torch_raises() -> None:
    x = torch.randn(3, 4)
    calls: list[Made] = [
        lambda: torch.mm(x, x),
        lambda: torch.mm(x, x[0]),
        lambda: torch.addmm(torch.ones(7), x, x.t()),
        lambda: F.linear(x, x.t()),
        lambda: F.layer_norm(x, (3,)),
        lambda: x.sum((0, 0)),
        lambda: x.sum(5),
        lambda: x.softmax(2),
    ]
    for call in calls:
        with pytest.raises((RuntimeError, IndexError)) as theirs:
            call()
        with on(), pytest.raises(type(theirs.value)) as ours:
            call()
        assert str(ours.value) == str(theirs.value)


def test_blocks_nest_and_hold_for_all_threads() -> None:
    x = torch.randn(4, 4)
    state = bt.are_batch_invariant_ops_enabled
    seen: list[Any] = []
    with bt.batch_invariant(strict=False, device="cpu") as outer, outer:
        with on(), pytest.raises(Unsupported):
            x.cumsum(0)
        with pytest.warns(UserWarning):
            x.cumsum(0)
        assert state("cpu") and not state()
        thread = threading.Thread(target=lambda: seen.append(x @ x))
        thread.start()
        thread.join()
        assert torch.equal(seen[0], x @ x)
    assert not state("cpu")
    x.cumsum(0)


def test_for_good_and_back() -> None:
    fast = torch.backends.mha.get_fastpath_enabled
    x, before = torch.randn(4, 4), fast()
    bt.use_batch_invariant_ops(True, device="cpu")
    try:
        bt.use_batch_invariant_ops(True, strict=False, device="cpu")
        with pytest.warns(UserWarning):
            x.cumsum(0)
        with on():
            pass
        assert bt.are_batch_invariant_ops_enabled("cpu") and not fast()
    finally:
        bt.use_batch_invariant_ops(False, device="cpu")
    bt.use_batch_invariant_ops(False, device="cpu")
    assert not bt.are_batch_invariant_ops_enabled("cpu") and fast() == before


def test_half_a_change_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where torch refuses to replace a kernel of another library."""
    x, before = torch.randn(4, 4), torch.backends.mha.get_fastpath_enabled()
    register = torch.library.Library.impl

    def refusing(self: Any, name: str, *others: Any, **keywords: Any) -> None:
        if name == "native_group_norm":
            raise RuntimeError("already a kernel")
        register(self, name, *others, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(torch.library.Library, "impl", refusing)
        with pytest.raises(RuntimeError, match="already a kernel"):
            bt.use_batch_invariant_ops(True, device="cpu")
    assert not bt.are_batch_invariant_ops_enabled("cpu") and torch.backends.mha.get_fastpath_enabled() == before
    x.cumsum(0)
    with on(), pytest.raises(Unsupported):
        x.cumsum(0)


def test_every_name_is_one_of_atens() -> None:
    """Of torch 2.9 or a later one."""
    from baracuda.frontends.torch.invariant import table

    known = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names()}
    later = {"_scaled_grouped_mm_v2", "_scaled_mm_v2", "_scaled_mm_v2.out"}
    assert {*table.KERNELS, *table.COMPOSED, *table.REFUSED} - later <= known
    assert not {*table.KERNELS, *table.COMPOSED} & {*table.REFUSED}


def test_it_decorates() -> None:
    @bt.batch_invariant(device="cpu")
    def enabled(depth: int) -> bool:
        return enabled(depth - 1) if depth else bt.are_batch_invariant_ops_enabled("cpu")

    assert enabled(2) and not bt.are_batch_invariant_ops_enabled("cpu")


def test_devices_are_known() -> None:
    with pytest.raises(InvalidProblem, match="device is 'mps'; needs 'cuda' or 'cpu'"):
        bt.batch_invariant(device="mps")
    if torch.version.cuda is None:
        with pytest.raises(Unsupported, match="torch is built without CUDA"):
            bt.use_batch_invariant_ops(True)


def test_compiled_code_runs_uncompiled_inside() -> None:
    """Its kernels are Inductor's."""
    ran: list[str] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        return lambda *inputs: ran.append("compiled") or graph(*inputs)

    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x @ x, backend=backend)
    x = torch.randn(4, 4)
    compiled(x)
    with on():
        found = compiled(x)
        assert torch.equal(found, x @ x)
    assert ran == ["compiled"]
    compiled(x)
    assert ran == ["compiled", "compiled"]


def test_autocast_casts_as_it_does() -> None:
    layer, x = torch.nn.Linear(4, 5), torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16), on():
        found = layer(x)
        assert found.dtype == torch.bfloat16 and torch.nn.functional.layer_norm(x, (4,)).dtype == torch.float32
    with on():
        assert torch.equal(found, F.linear(x.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16()))


def test_modes_see_what_runs() -> None:
    """A trace holds no numbers of the tensors that it was made with."""
    from torch.fx.experimental.proxy_tensor import make_fx

    w, x = torch.randn(5, 4), torch.randn(3, 4)
    with torch.no_grad(), on():
        traced = make_fx(lambda x: F.rms_norm(F.linear(x, w, w[:, 0]), (5,)))(torch.randn(3, 4))
        assert torch.equal(traced(x), F.rms_norm(F.linear(x, w, w[:, 0]), (5,)))


def test_transforms_of_torch_func_compose() -> None:
    w, x = torch.randn(5, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    one = lambda row: F.rms_norm(F.linear(row, w), (5,)).sum()  # noqa: E731
    expected = torch.func.vmap(torch.func.grad(one))(x)
    with on():
        torch.testing.assert_close(torch.func.vmap(torch.func.grad(one))(x), expected)
