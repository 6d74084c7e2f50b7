"""torch: products of groups as torch.nn.functional.grouped_mm has them, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
bt = pytest.importorskip("baracuda.frontends.torch")

ENDS = (3, 3, 8, 9)  # of 11: an empty group, and two places of no group
SPANS = ((0, 3), (3, 3), (3, 8), (8, 9))


def _rows(a: Any, b: Any) -> Any:
    parts = [a[begin:end] @ b[g] for g, (begin, end) in enumerate(SPANS)]
    return torch.cat([*parts, torch.zeros(2, b.shape[2], dtype=a.dtype)])


def _columns(a: Any, b: Any) -> Any:
    parts = [a[g] @ b[:, begin:end] for g, (begin, end) in enumerate(SPANS)]
    return torch.cat([*parts, torch.zeros(a.shape[1], 2, dtype=a.dtype)], 1)


def _depth(a: Any, b: Any) -> Any:
    return torch.stack([a[:, begin:end] @ b[begin:end] for begin, end in SPANS])


FORMS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], tuple[int, ...], bool]] = {
    "rows": (_rows, (11, 6), (4, 6, 5), True),
    "columns": (_columns, (4, 5, 6), (6, 11), True),
    "depth": (_depth, (5, 11), (11, 6), True),
    "batches": (torch.bmm, (4, 5, 6), (4, 6, 3), False),
}


@pytest.mark.parametrize("offs", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_those_of_each_group(form: str, offs: Any) -> None:
    expected, *shapes, in_groups = FORMS[form]
    torch.manual_seed(0)
    a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    ends = torch.tensor(ENDS, dtype=offs) if in_groups else None
    theirs, ours = expected(a, b), bt.grouped_mm(a, b, offs=ends)
    weights = torch.randn_like(theirs)
    wanted = torch.autograd.grad((theirs * weights).sum(), (a, b))
    found = torch.autograd.grad((ours * weights).sum(), (a, b))
    torch.testing.assert_close((ours, *found), (theirs, *wanted), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", ["rows", "depth"])
def test_gradients_are_the_slopes(form: str) -> None:
    _, *shapes, _ = FORMS[form]
    torch.manual_seed(1)
    a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    ends = torch.tensor(ENDS, dtype=torch.int32)
    assert torch.autograd.gradcheck(lambda a, b: bt.grouped_mm(a, b, offs=ends), (a, b))


def test_it_compiles_with_its_gradient() -> None:
    torch.manual_seed(2)
    x, w = torch.randn(11, 6, requires_grad=True), torch.randn(4, 6, 5, requires_grad=True)
    ends = torch.tensor(ENDS, dtype=torch.int32)
    compiled = torch.compile(lambda x, w: bt.grouped_mm(x, w, offs=ends), backend="aot_eager", fullgraph=True)
    y, eager = compiled(x, w), bt.grouped_mm(x, w, offs=ends)
    assert torch.equal(y, eager)
    for ours, theirs in zip(*(torch.autograd.grad(of.square().sum(), (x, w)) for of in (y, eager)), strict=True):
        assert torch.equal(ours, theirs)


def test_it_trains() -> None:
    """Layers of two groups find the matrices that made the data."""
    torch.manual_seed(3)
    x, right = torch.randn(40, 8), torch.randn(2, 8, 8)
    ends = torch.tensor([25, 40], dtype=torch.int32)
    y = torch.cat([x[:25] @ right[0], x[25:] @ right[1]])
    w = torch.nn.Parameter(torch.zeros(2, 8, 8))
    optimizer = torch.optim.Adam([w], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        loss = (bt.grouped_mm(x, w, offs=ends) - y).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < 0.05 * y.square().mean()


@pytest.mark.parametrize(
    ("shapes", "offs", "message"),
    [
        (((3, 4), (2, 5, 6)), (1, 3), "mat_a has 4 columns, mat_b 5 rows; needs as many"),
        (((3, 4), (2, 4, 6)), None, r"shapes are \(3, 4\) and \(2, 4, 6\), offs is None; needs .* offs unless both"),
        (((2, 3, 4), (2, 4, 6)), (1, 3), "offs is given; needs"),
        (((4,), (4, 6)), (1, 3), "needs matrices or batches of matrices"),
    ],
)
def test_what_it_does_not_take_is_refused(shapes: Any, offs: Any, message: str) -> None:
    a, b = (torch.ones(shape) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        bt.grouped_mm(a, b, offs=None if offs is None else torch.tensor(offs, dtype=torch.int32))
