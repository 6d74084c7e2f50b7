"""Programs of several matrix products on the host device: how they are cut into passes, and what these compute."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda.runtime as rt
from baracuda.codegen.emit.generate import texts
from baracuda.codegen.emit.plan_classes import plan_of, rows_of
from baracuda.codegen.families.matmul.passes import passes
from baracuda.codegen.families.matmul.product import Product
from baracuda.codegen.lower.lower import lower
from baracuda.codegen.program import parse
from baracuda.codegen.program.evaluate import evaluate
from baracuda.codegen.program.space import Space
from baracuda.codegen.spec.load import load_spec
from baracuda.codegen.spec.scope import scope_of
from baracuda.generated import (
    DenseGemmBackwardDescriptor,
    DenseGemmBackwardPlan,
    LinearBackwardDescriptor,
    LinearBackwardPlan,
)
from baracuda.runtime.families.matmul.schedules import SCHEDULES
from baracuda.runtime.families.matmul.selection import MatmulSelection

HEAD = """\
op: sample
doc: A sample.
descriptor: {tokens: int, width: int, hidden: int, out: int}
dims: {t: tokens, i: width, h: hidden, o: out}
"""
INPUTS = {"x": "t, i", "w": "h, i", "v": "h, i", "q": "h, i", "p": "i, h", "u": "o, h", "s": "i", "r": "t, h", "g": "h"}
# Outputs and lines, and of each pass what it multiplies, or over which dims it reduces.
PROGRAMS: dict[str, tuple[str, str, list[str]]] = {
    "two factors of a gate": (
        "{y: {dims: [t, h]}}",
        "y = silu(sum(x * w, i)) * sum(x * v, i)",
        ["x * w, v"],
    ),
    "three factors of a gate": (
        "{y: {dims: [t, h]}}",
        "y = silu(sum(x * w, i)) * sum(x * v, i) + sum(x * q, i)",
        ["x * w, v", "x * q"],
    ),
    "factors whose axes differ": (
        "{y: {dims: [t, h]}}",
        "y = silu(sum(x * w, i)) * sum(x * p, i)",
        ["x * w", "x * p"],
    ),
    "two layers": (
        "{y: {dims: [t, o]}}",
        "a = T(silu(sum(x * w, i)) * sum(x * v, i))\ny = sum(a * u, h)",
        ["x * w, v", "a_held * u"],
    ),
    "an output that is multiplied again": (
        "{y: {dims: [t, o]}, a: {dims: [t, h]}}",
        "a = T(relu(sum(x * w, i)))\ny = sum(a * u, h)",
        ["x * w", "a * u"],
    ),
    "a factor that is made before": (
        "{y: {dims: [t, h]}}",
        "y = sum(T(x * s) * w, i) + r",
        ["", "y_sum_factor_held * w"],
    ),
    "a factor made of rows": (
        "{y: {dims: [t, h]}, z: {dims: [t, h]}}",
        "n = T(x / sqrt(mean(x * x, i) + 1.0) * s)\ny = sum(n * w, i)\nz = sum(n * v, i)",
        ["i", "", "n_held * w", "n_held * v"],
    ),
    "a reduction of what is multiplied": (
        "{y: {dims: [t, h]}}",
        "z = sum(x * w, i)\ne = exp(z - max(z, h))\ny = e / sum(e, h)",
        ["x * w", "h_part", "h", ""],
    ),
    "sums beside products": (
        "{y: {dims: [h, i]}, z: {dims: [i]}, c: {dims: [t, i]}}",
        "y = sum(r * x, t)\nz = sum(x, t)\nc = x + s",
        ["r * x", "t"],  # with the cells of `c`
    ),
    "sums of exponentials": (
        "{y: {dims: [t]}, c: {dims: [t]}}",
        "z = sum(x * w, i) + r\ny = logsumexp(z, h)\nc = sum(where(index(h) < 7, z, 0.0), h)",
        ["", "x * w", "h_part", "h_part"],
    ),
    "extremes of what is made of a product": (
        "{y: {dims: [t]}, m: {dims: [t]}}",
        "z = sum(x * w, i)\ny = min(z * r, h) + mean(abs(z), h)\nm = max(z, h)",
        ["x * w", "h_part"],
    ),
    "reductions of rows": (
        "{y: {dims: [h]}}",
        "z = sum(x * w, i)\ny = max(z, t)",
        ["x * w", "t_part"],
    ),
    "reductions beside what is stored": (
        "{y: {dims: [t, h]}, m: {dims: [t]}, e: {dims: [h]}, a: {dims: []}}",
        "z = sum(x * w, i) + r\ny = relu(z)\nm = max(abs(y), h)\ne = sum(z, t) / size(t)\na = max(abs(z), t, h)",
        ["x * w", "h_part", "t_part", "th_part"],
    ),
    "reductions of what is stored turned": (
        "{y: {dims: [h, t]}, m: {dims: [t]}, e: {dims: [h]}}",
        "z = T(sum(x * w, i))\ny = z\nm = max(z, h)\ne = sum(z, t) / size(t)",
        ["w * x", "h_part", "t_part"],
    ),
    "reductions of what is multiplied again": (
        "{y: {dims: [t, o]}, m: {dims: [t]}}",
        "a = T(sum(x * w, i))\nm = max(a, h)\ny = sum(a * u, h)",
        ["x * w", "h_part", "a_held * u"],
    ),
    "a norm of what is stored": (
        "{y: {dims: [t, h]}, z: {dims: [t, h]}}",
        "z = sum(x * w, i) + r\ny = z / sqrt(mean(z * z, h) + 1.0)",
        ["x * w", "h_part", ""],
    ),
    "a reduction that reads elsewhere": (
        "{y: {dims: [t, h]}, m: {dims: [t]}}",
        "y = sum(x * w, i)\nm = max(y * g[index(h) // 2], h)",
        ["x * w", "h"],
    ),
    "an index beside a product": ("{y: {dims: [t, h]}}", "y = sum(x * w, i) * index(h)", ["", "x * w"]),
    "a result that is turned": ("{y: {dims: [h, t]}}", "y = sum(x * w, i)", ["w * x"]),
}


def multiplied(product: Product) -> str:
    left, *right = product.factors
    return f"{left} * {', '.join(right)}"


def spec_of(folder: Path, outputs: str, lines: str) -> Any:
    body = "".join(f"  {line}\n" for line in lines.splitlines())
    known = [name for name in INPUTS if re.search(rf"\b{name}\b", lines)]
    outside = {name: ", outside: 0" for name in known if f"{name}[" in lines}
    inputs = ", ".join(f"{name}: {{dims: [{INPUTS[name]}]{outside.get(name, '')}}}" for name in known)
    dims = {dim.strip() for name in known for dim in INPUTS[name].split(",")}
    head = HEAD
    for dim, field in (("o", "out"), ("h", "hidden")):
        if dim not in dims:
            head = head.replace(f", {field}: int", "").replace(f", {dim}: {field}", "")
    path = folder / "sample.yaml"
    head += "family: matmul\n" if any(outside.values()) else ""  # what reads elsewhere says so
    path.write_text(f"{head}inputs: {{{inputs}}}\noutputs: {outputs}\nprogram: |\n{body}")
    return load_spec(path).spec


def plan_for(spec: Any, arch: str, **fields: Any) -> Any:
    op = lower(spec, "sample.yaml")
    plan = plan_of(op, rows_of(op, texts([op])["custom/sample.cu"]))
    known = {name: value for name, value in fields.items() if name in plan.DESCRIPTOR._types or name == "element"}
    return plan.select(plan.DESCRIPTOR(**known), rt.PlanPreference(archs=frozenset({arch})))


@pytest.fixture
def watched() -> Iterator[None]:
    device: Any = rt.get_device("host")
    device.check = True
    yield
    device.check = False


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_program_is_cut_at_its_products(tmp_path: Path, name: str, arch: str) -> None:
    """Each pass multiplies or reduces what it should, and the whole is what NumPy says."""
    outputs, lines, cut = PROGRAMS[name]
    spec = spec_of(tmp_path, outputs, lines)
    assert spec.family == "matmul"
    found = [(of.product, "".join(of.parts.summed)) for of in passes(spec)]
    assert [multiplied(p) if isinstance(p, Product) else over for p, over in found] == cut
    element, kind = ("f32", np.float32) if arch == "sm_80" else ("bf16", ml_dtypes.bfloat16)
    rng, sizes = np.random.default_rng(5), {"tokens": 21, "width": 40, "hidden": 33, "out": 16}
    plan = plan_for(spec, arch, element=element, **sizes)
    extents = {dim: sizes[of.of] for dim, of in spec.dims.items()}
    arrays = {n: (rng.normal(size=plan.shapes()[n][0]) / 2).astype(kind) for n in spec.inputs}
    given = {n: np.full(plan.shapes()[n][0], 99, kind) for n in spec.outputs}
    scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8)
    plan._run(tuple({**arrays, **given}[name] for name in plan.ARGUMENTS), scratch, None)

    def spread(name: str) -> Any:
        dims = spec.inputs[name].dims
        array = arrays[name].astype(np.float64).transpose([dims.index(dim) for dim in extents if dim in dims])
        return array.reshape([n if dim in dims else 1 for dim, n in extents.items()])

    values = evaluate(parse(spec.program, scope_of(spec)), {n: spread(n) for n in arrays}, Space(extents))
    for output, tensor in spec.outputs.items():
        order = [dim for dim in extents if dim in tensor.over]
        value = values[output].reshape([extents[dim] for dim in order])
        value = value.transpose([order.index(dim) for dim in tensor.dims])
        tolerance = 1e-5 if element == "f32" else 0.03
        np.testing.assert_allclose(given[output].astype(float), value, rtol=tolerance, atol=tolerance * 4)


TILES = [row[2] for row in SCHEDULES if row[0] == "sm_90a" and "bf16" in row[1] and "swapped0" in row[2]]


STORED = (
    "{y: {dims: [t, h]}, m: {dims: [t], dtype: acc}, c: {dims: [t], dtype: acc}, e: {dims: [h], dtype: acc}}",
    "y = sum(x * w, i) + r\nm = max(abs(y), h)\nc = sum(y * y, h)\ne = sum(y, t)",
)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("program", [PROGRAMS["sums of exponentials"][:2], STORED])
def test_products_are_reduced_alike_in_every_tile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: tuple[str, str]
) -> None:
    """Bits depend neither on the tile nor on the kernel: rows of odd length go to another one."""
    spec = spec_of(tmp_path, program[0].replace("[t]}", "[t], dtype: acc}"), program[1])
    sizes = {"tokens": 150, "width": 40, "hidden": 536}
    rng, kind = np.random.default_rng(7), ml_dtypes.bfloat16
    x, w, r = (rng.normal(size=shape).astype(kind) for shape in ((150, 40), (536, 40), (150, 536)))
    found = []
    for text in [*TILES, TILES[0]]:
        one = (("sm_90a", ("bf16",), text),)
        monkeypatch.setattr(MatmulSelection, "schedules", classmethod(lambda _, one=one: one))
        plan = plan_for(spec, "sm_90a", element="bf16", **sizes)
        types = {name: kind if t.dtype[0] == "T" else np.float32 for name, t in spec.outputs.items()}
        given = {name: np.zeros(plan.shapes()[name][0], of) for name, of in types.items()}
        scratch = np.full(plan.workspace_bytes, 0xAA, np.uint8)
        strided = np.zeros((150, 81), kind)[:, ::2][:, :40]
        strided[:] = x
        arrays = {"x": strided if len(found) == len(TILES) else x, "w": w, "r": r, **given}
        plan._run(tuple(arrays[name] for name in plan.ARGUMENTS), scratch, None)
        found.append(b"".join(array.tobytes() for array in given.values()))
    assert len(TILES) == 5
    assert len({*found}) == 1


def test_a_gradient_rounds_only_what_it_made(tmp_path: Path) -> None:
    """What is handed over to be multiplied is half as large as a sum, and there is none where `dy` itself is."""
    sizes = {"tokens": 64, "in_features": 32, "out_features": 128, "has_bias": False, "element": "bf16"}
    bytes_of = {}
    for kind in ("identity", "silu"):
        plan = LinearBackwardPlan.select(LinearBackwardDescriptor(kind=kind, **sizes))
        bytes_of[kind] = plan.workspace_bytes
    assert bytes_of == {"identity": 0, "silu": 64 * 128 * 2}


@pytest.mark.parametrize("layout", ["turned", "gaps", "negative", "one number"])
def test_strides_of_what_comes_in_change_no_bit(layout: str) -> None:
    rng, (m, n, k) = np.random.default_rng(2), (24, 40, 33)
    x, w, dy = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (n, k), (m, n)))
    if layout == "one number":
        dy[:] = dy[0, 0]
    other = {
        "turned": np.ascontiguousarray(dy.T).T,
        "gaps": np.repeat(dy, 3, axis=1)[:, ::3],
        "negative": np.ascontiguousarray(dy[::-1])[::-1],
        "one number": np.broadcast_to(dy[:1, :1], dy.shape),
    }[layout]
    for arch in ("sm_80", "sm_90a"):
        for kind in ("identity", "gelu"):
            fields = {"tokens": m, "in_features": k, "out_features": n, "has_bias": False, "element": "bf16"}
            archs = rt.PlanPreference(archs=frozenset({arch}))
            plan = LinearBackwardPlan.select(LinearBackwardDescriptor(kind=kind, **fields), archs)
            results = []
            for given in (dy, other):
                dx, dw = np.zeros_like(x), np.zeros_like(w)
                plan.run(dy=given, x=x, w=w, dx=dx, dw=dw, workspace=np.zeros(plan.workspace_bytes, np.uint8))
                results.append(dx.tobytes() + dw.tobytes())
            assert results[0] == results[1]


def test_each_product_takes_its_own_tiles() -> None:
    """The gradient of few rows has few rows, that of the weights as many as they have."""
    sizes = {"batch_size": 1, "m": 16, "n": 8192, "k": 8192, "element": "bf16"}
    archs = rt.PlanPreference(archs=frozenset({"sm_90a"}))
    plan = DenseGemmBackwardPlan.select(DenseGemmBackwardDescriptor(**sizes), archs)
    of_a, of_b = (str(part.sku.schedule) for part in plan._passes)
    assert "swapped1" in of_a
    assert "swapped0" in of_b
    symbols = [source.symbol for source in plan.sources()]
    assert any("pass1" in symbol for symbol in symbols)
    assert any("pass2" in symbol for symbol in symbols)
