"""Invariant: an op whose inputs do not show its element type, or are all absent, works all the same."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda.codegen.emit.generate import generate

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
ft = pytest.importorskip("baracuda.frontends.torch")
bj = pytest.importorskip("baracuda.frontends.jax")

from host.codegen.spec.test_unusual_specs import ARANGE, MAP, SCALED  # noqa: E402

WIDE = MAP.replace("doc: what", "dtype: [acc, T], doc: what")
BACKWARD = (
    WIDE.replace("direction: forward", "direction: backward")
    .replace("  y: {dims: [i, j],", "  dx: {dims: [i, j], dtype: [acc, T],")
    .replace("  x: {", "  dy: {")
    .replace("y = x * 2.0\nreference: y = x * 2.0", "dx = dy * 2.0")
    .replace("{y: []}", "{dx: []}")
    .replace("reproducibility", "gradient: {of: wide, cotangents: {dy: y}, wrt: {dx: x}}\nreproducibility")
)
WIDE = WIDE.replace("y: {dims: [i, j]", "y: {dims: [i, j], dtype: [acc, T]")
PLACED = ARANGE.replace("  n:", "  device:").replace("of: n", "of: device").replace("n >=", "device >=")
PLACED = PLACED.replace("{n: 3", "{device: 3")
SPECS = {"arange": ARANGE, "placed": PLACED, "scaled": SCALED, "wide": WIDE, "wide_backward": BACKWARD}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("elements")
    (folder / "specs").mkdir()
    for op, text in SPECS.items():
        title = op.title().replace("_", "")
        text = text.replace("op: probe", f"op: {op}").replace("ProbePlan", f"{title}Plan")
        text = text.replace("[f32]", "[f32, f16]")
        (folder / "specs" / f"{op}.yaml").write_text(text)
    generate(folder / "specs", folder / "elements_of_mine")
    with pytest.MonkeyPatch.context() as patch, rt.REGISTRY.apart():
        patch.syspath_prepend(folder)
        yield import_module("elements_of_mine")


@pytest.fixture(scope="module")
def ops(package: ModuleType) -> object:
    ft.register(package, "elements_of_mine")
    return torch.ops.elements_of_mine


def test_torch_without_tensors(ops: object) -> None:
    schema = "(*, int n, int m, ScalarType? element=None, Device? device=None) -> Tensor y"
    assert str(ops.arange.default._schema).endswith(schema)
    expected = torch.arange(6).reshape(2, 3)
    found = ops.arange(n=2, m=3, element=torch.float16)
    assert found.dtype == torch.float16 and torch.equal(found, expected.half())
    traced = torch.compile(lambda: ops.arange(n=2, m=3, element=torch.float32, device="cpu"), backend="aot_eager")
    assert torch.equal(traced(), expected.float())
    assert ops.arange(n=2, m=3, element=torch.float16, device="meta").device.type == "meta"
    with pytest.raises(Exception, match="arange takes element as well; pass element=, one of f32, f16"):
        ops.arange(n=2, m=3)


def test_torch_has_no_device_instead_of_a_field(ops: object) -> None:
    assert torch.equal(ops.placed(device=2, m=3, element=torch.float32), torch.arange(6.0).reshape(2, 3))


def test_torch_with_optional_tensors(ops: object) -> None:
    assert torch.equal(ops.scaled(torch.ones(2, 3).half()), torch.full((2, 3), 2.0).half())
    assert torch.equal(ops.scaled(n=1, m=2, element=torch.float32), torch.full((1, 2), 6.0))


def test_torch_tensors_of_several_types(ops: object) -> None:
    x = torch.rand(2, 3, requires_grad=True)
    y = ops.wide(x, element=torch.float16, y_dtype=torch.float16)
    y.sum().backward()
    assert y.dtype == torch.float16 and torch.equal(x.grad, torch.full((2, 3), 2.0))


def test_jax_without_arrays(package: ModuleType) -> None:
    mine = bj.functions(package)
    found = jax.jit(lambda: mine["arange"](n=2, m=3, element="f16"))()
    assert found.dtype == np.float16 and np.array_equal(found, np.arange(6).reshape(2, 3))
    assert np.array_equal(mine["scaled"](n=1, m=2, element="f32"), np.full((1, 2), 6.0))
    with pytest.raises(rt.InvalidProblem, match="arange takes element as well"):
        mine["arange"](n=2, m=3)


def test_jax_arrays_of_several_types(package: ModuleType) -> None:
    wide = bj.functions(package)["wide"]
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(jax.grad(lambda x: wide(x, element=np.float16).sum())(x), np.full((2, 3), 2.0))


def test_registering_twice_changes_nothing(package: ModuleType, ops: object) -> None:
    assert "arange" in ft.register(package, "elements_of_mine")
    other = ModuleType("other")
    vars(other).update({"MODULES": ["Plan"], "Plan": type("OtherPlan", (package.ArangePlan,), {"OP": "arange"})})
    with pytest.raises(rt.InvalidProblem, match=r"arange is of elements_of_mine.probes.arange"):
        ft.register(other, "elements_of_mine")
    with pytest.raises(rt.InvalidProblem, match=r"aten.arange is not one of ours, .*; choose another namespace"):
        ft.register(other, "aten")
