"""Invariant: a table of kinds is one op whose kinds are checked, tested and differentiated as ops of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.spec.load import load_folder, load_spec
from baracuda.runtime import InvalidProblem, SpecError

TABLE = """\
op: shaped
doc: A function of each element.
dims: {cell: input_shape}
dtypes: [f32, f64]
inputs: [x]
outputs: [y]
kinds:
  relu:
  wave: {program: sin(x), ranges: {x: [-3.0, 3.0]}}
  power: x**3
  gelu: {program: gelu(x), reference: x * (0.5 * erfc(-x / sqrt(2.0)))}
"""


def load(folder: Path, text: str) -> MapSpec:
    path = folder / "shaped.yaml"
    path.write_text(text, encoding="utf-8")
    spec = load_spec(path).spec
    assert isinstance(spec, MapSpec)
    return spec


def test_a_kind_is_a_spec_with_a_program_of_its_own(tmp_path: Path) -> None:
    spec = load(tmp_path, TABLE)
    assert {name: of.program for name, of in spec.by_kind.items()} == {
        "relu": "y = relu(x)",
        "wave": "y = sin(x)",
        "power": "y = x**3",
        "gelu": "y = gelu(x)",
    }
    wave, gelu = spec.of_kind("wave"), spec.of_kind("gelu")
    assert wave.reference == wave.program and wave.tests.ranges == {"x": (-3.0, 3.0)} and not wave.kinds
    assert gelu.reference == "y = x * (0.5 * erfc(-x / sqrt(2.0)))" and not gelu.tests.ranges
    assert spec.of_kind(None) is spec and spec.descriptor["kind"].type == "kind"
    assert spec.outputs["y"].may_alias == ("x",)


def test_a_program_may_go_on_with_the_value_of_a_kind(tmp_path: Path) -> None:
    spec = load(tmp_path, TABLE + "program: y = of_kind * 2.0\n")
    assert spec.of_kind("wave").program == "of_kind = sin(x)\ny = of_kind * 2.0"
    assert spec.of_kind("gelu").reference == "of_kind = x * (0.5 * erfc(-x / sqrt(2.0)))\ny = of_kind * 2.0"
    spec = load(tmp_path, TABLE + "program: y = of_kind * 2.0\nreference: y = of_kind + of_kind\n")
    assert spec.of_kind("relu").reference == "of_kind = relu(x)\ny = of_kind + of_kind"


def test_every_kind_has_a_problem_with_elements_and_every_problem_a_kind(tmp_path: Path) -> None:
    tests = load(tmp_path, TABLE + "tests: {cases: [{kind: gelu, input_shape: [5]}]}\n").tests
    assert tests.cases[0] == {"kind": "gelu", "input_shape": [5]}
    assert tests.draw["kind"] == ["relu", "wave", "power", "gelu"]
    assert {case["kind"] for case in tests.cases if 0 not in case["input_shape"]} == {"relu", "wave", "power", "gelu"}


def test_the_gradient_has_the_same_kinds(tmp_path: Path) -> None:
    (tmp_path / "shaped.yaml").write_text(TABLE + "backward: {}\n", encoding="utf-8")
    backward = load_folder(tmp_path)["shaped_backward"].spec
    assert isinstance(backward, MapSpec) and [*backward.by_kind] == ["relu", "wave", "power", "gelu"]
    assert backward.of_kind("wave").program == "dx = dy * cos(x)"
    assert backward.of_kind("wave").tests.ranges == {"x": (-3.0, 3.0)} and backward.of_kind("wave").reference is None


def test_promises_hold_for_every_kind(tmp_path: Path) -> None:
    exact = "kinds: {twice: x + x, half: 0.5 * x}\n"
    assert "bit_stable_across_arch" in load(tmp_path, TABLE[: TABLE.index("kinds:")] + exact).reproducibility["y"]
    assert "bit_stable_across_arch" not in load(tmp_path, TABLE).reproducibility["y"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("power: x**3", "power: z**3", "10: unknown name 'z'; known are x"),
        ("power: x**3", "power: x > 0", "10: 'y' is a bool; use where(condition, a, b), or dtype: bool"),
        ("power: x**3", "not: x**3", "10: 'not' is a reserved word; choose another name"),
        (
            "power: x**3",
            "power: {program: x, range: {x: [0, 1]}}",
            "10: unknown key 'range' in 'kinds.power'; did you mean 'ranges'?",
        ),
        ("{x: [-3.0", "{a: [-3.0", "9: unknown input 'a'; known are x"),
        ("power: x**3", "power: {program: x, defaults: {b: 1}}", "10: unknown field 'b'; known are kind, input_shape"),
        (
            "kinds:",
            "program: y = x\nkinds:",
            "8: the program does not read `of_kind`, the value of the kind that is chosen",
        ),
        (
            "kinds:",
            "reference: y = x\nkinds:",
            "7: a reference of all kinds goes with a `program` that they share; add it, or leave it out",
        ),
        (
            "kinds:",
            "program: |\n  z = of_kind\n  y = foo(z)\nkinds:",
            "9: unknown function 'foo'; did you mean 'floor'?",
        ),
        ("  relu:\n", "  grelu:\n", "8: unknown function 'grelu'; did you mean 'relu'?"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, TABLE.replace(old, new, 1))
    assert str(caught.value).partition("shaped.yaml:")[2] == message


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("kinds: {less: x}", "'y' is a float, and its dtype bool takes bools only; write a comparison"),
        ("program: y = x + 0.5\nreference: y = x + 0.5", "its dtype bool takes bools only"),
    ],
)
def test_bools_come_from_comparisons(tmp_path: Path, table: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, TABLE[: TABLE.index("outputs:")] + "outputs: {y: {dtype: bool}}\n" + table + "\n")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("dtypes", "kind", "message"),
    [
        ("[i8, f32]", "x + x", "i8 and f32 compute differently; an op is of floats, of ints, of bools or complex"),
        ("[i32]", "x * 0.5", "'y' is a float because of '0.5'"),
        ("[i32]", "x / x", "'y' is a float because of 'div'"),
        ("[u64]", "x + x", "u64 can only be moved; a program that computes takes f32, f16, bf16, f64, i8"),
    ],
)
def test_ints_compute_exactly_or_not_at_all(tmp_path: Path, dtypes: str, kind: str, message: str) -> None:
    text = TABLE.replace("[f32, f64]", dtypes)
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text[: text.index("kinds:")] + f"kinds: {{one: {kind}}}\n")
    assert message in str(caught.value)


def test_select_names_the_kinds() -> None:
    from baracuda.generated.elementwise.unary import UnaryDescriptor, UnaryPlan

    said = {"gelo": r"no kind 'gelo'; did you mean 'gelu'\?", "zz": "no kind 'zz'; kinds are abs, acos"}
    for kind, message in said.items():
        with pytest.raises(InvalidProblem, match=message):
            UnaryPlan.select(UnaryDescriptor(kind=kind, input_shape=(3,), element="f32"))
    with pytest.raises(InvalidProblem, match="'kind' must be a string, got 3"):
        UnaryDescriptor(kind=3, input_shape=(3,), element="f32")  # type: ignore[arg-type]


def test_one_kernel_is_compiled_per_kind() -> None:
    from baracuda.generated.elementwise.unary import UnaryDescriptor, UnaryPlan

    plans = [UnaryPlan.select(UnaryDescriptor(kind=k, input_shape=(3,), element="f32")) for k in ("exp", "log")]
    sources = [next(iter(plan.sources())) for plan in plans]
    assert [d for s in sources for d in s.defines if "KIND" in d] == ["BARACUDA_KIND=exp", "BARACUDA_KIND=log"]
    assert sources[0].symbol == sources[1].symbol and sources[0] != sources[1]
    assert plans[0].sku == plans[1].sku
