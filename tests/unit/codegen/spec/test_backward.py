"""Invariant: a gradient beside its forward says what is particular to it, and means what a file of its own would."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from repository import LONG, SPECS

from baracuda.codegen.emit.generate import lower_all, texts
from baracuda.codegen.families.body.spec import BodySpec
from baracuda.codegen.families.map.spec import MapSpec
from baracuda.codegen.families.row.spec import RowSpec
from baracuda.codegen.spec.load import Loaded, load_folder
from baracuda.runtime import SpecError

FORWARD = """\
op: scaled
doc: Each row times a gain, with its mean.
descriptor: {p: {type: float, doc: a power, default: 2.0}, bias: {type: float, doc: what is added, default: 1.0}}
require: [p > 0]
dims: {rows: rest, cols: axis}
inputs: {x: what is scaled, gain: {dims: [cols], dtype: [T, acc], optional: has_gain, default: 1}}
outputs: {y: the result, centre: {dims: [rows], dtype: acc, doc: "mean of each row, saved for the backward"}}
program: |
  centre = mean(x, cols)
  y = (x - centre) * gain * p + bias
reference: |
  centre = sum(x, cols) / size(cols)
  y = (x - centre) * gain * p + bias
tests: {cases: [{input_shape: [4, 9], p: 0.5}]}
"""
SHORTEST = {
    "row": """\
op: shortest
doc: Each row less its mean.
dims: {rows: rest, cols: axis}
inputs: [x]
outputs: [y]
program: y = x - mean(x, cols)
reference: y = x - sum(x, cols) / size(cols)
backward: {}
""",
    "map": """\
op: shortest
doc: Squares.
dims: {cell: input_shape}
inputs: [x]
outputs: [y]
program: y = x * x
reference: y = x ** 2
backward: {}
""",
}
BY_HAND = """\
backward:
  program: |
    g = dy * gain * p
    dx = g - mean(g, cols)
    dgain = sum(dy * p * (x - centre), rows)
"""


def pair(folder: Path, text: str) -> tuple[Loaded, Loaded]:
    (folder / "scaled.yaml").write_text(text, encoding="utf-8")
    forward, backward = load_folder(folder).values()
    return forward, backward


def test_a_program_by_hand_says_what_it_is_about(tmp_path: Path) -> None:
    spec = pair(tmp_path, FORWARD + BY_HAND)[1].spec
    assert isinstance(spec, RowSpec) and spec.gradient
    assert [*spec.inputs] == ["dy", "x", "gain", "centre"] and [*spec.outputs] == ["dx", "dgain"]
    assert spec.gradient.cotangents == {"dy": "y"} and spec.gradient.wrt == {"dx": "x", "dgain": "gain"}
    assert spec.gradient.saved == ("centre",)
    assert [*spec.descriptor] == ["input_shape", "axis", "p", "has_gain"]  # nothing reads the bias
    assert "p > 0" in [r.that for r in spec.require] and {"input_shape": [4, 9], "p": 0.5} in spec.tests.cases
    assert spec.inputs["centre"].doc == "mean of each row as the forward saved it"
    assert spec.outputs["dx"].may_alias == ("dy", "x") and spec.outputs["dgain"].dtype == ("T", "acc")
    assert (spec.op, spec.plan) == ("scaled_backward", "ScaledBackwardPlan")


def test_without_a_program_it_is_derived(tmp_path: Path) -> None:
    spec = pair(tmp_path, FORWARD + "backward: {gradient: {saved: [centre]}}\n")[1].spec
    assert isinstance(spec, RowSpec) and [*spec.inputs] == ["dy", "x", "gain", "centre"]
    assert [*spec.outputs] == ["dx", "dgain"] and spec.reproducibility["dx"][-1] == "bit_stable_across_arch"


@pytest.mark.parametrize("family", SHORTEST)
def test_nothing_need_be_said(family: str, tmp_path: Path) -> None:
    """Not even what the forward promises: the strongest of the derived program's own."""
    forward, backward = pair(tmp_path, SHORTEST[family])
    assert backward.spec.family == forward.spec.family == family and [*backward.spec.outputs] == ["dx"]
    assert backward.spec.reproducibility["dx"] == forward.spec.reproducibility["y"]
    assert texts(lower_all([forward, backward]))


def test_what_it_says_comes_first(tmp_path: Path) -> None:
    own = "  dtypes: [f32]\n  outputs: {dgain: {doc: mine}, dx: {may_alias: []}}\n  require: [p < 9]\n"
    own += "  descriptor: {bias: false, unused: {type: int, doc: d, default: 0}}\n  tests: {defaults: {p: 1.5}}\n"
    spec = pair(tmp_path, FORWARD + BY_HAND + own)[1].spec
    assert spec.dtypes == ("f32",) and [*spec.outputs] == ["dgain", "dx"]
    assert spec.outputs["dgain"].doc == "mine" and spec.outputs["dx"].may_alias == ()
    assert [r.that for r in spec.require][-2:] == ["p > 0", "p < 9"] and "unused" in spec.descriptor
    assert spec.tests.defaults["p"] == 1.5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("dx = g", "dx = h"), r":\d+: unknown name 'h'"),
        (("backward:", "backward: []\nbogus:"), "'backward' is a list"),
        (("  program:", "  plna: A\n  program:"), "unknown key 'plna'; did you mean 'plan'"),
        (("  program:", "  backward: {}\n  program:"), "a gradient has no `backward`"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    text = FORWARD + BY_HAND.replace(*change)
    (tmp_path / "scaled.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=said) as caught:
        load_folder(tmp_path)
    assert all(re.match(r".*scaled\.yaml:\d+: ", line) for line in str(caught.value).splitlines())


def test_kernels_by_hand_take_what_they_name() -> None:
    spec = load_folder(SPECS)["sdpa_backward"].spec
    assert isinstance(spec, BodySpec) and [*spec.inputs] == ["q", "k", "v", "attn", "dy"]
    assert not {"is_causal", "bottom_right", "has_mask"} & {*spec.descriptor}
    assert [*spec.settings] == ["DK", "DV"] and spec.oracle == "attention.sdpa_backward"


@cache
def long() -> dict[str, Loaded]:
    return load_folder(LONG)


@pytest.mark.parametrize("op", sorted(path.stem for path in LONG.glob("*.yaml")))
def test_specs_written_out_in_full_give_the_same_kernels(op: str) -> None:
    """The lines that name files and templates aside."""
    made = [kernels(folder[op]) for folder in (load_folder(SPECS), long())]
    assert made[0] == made[1]


def kernels(entry: Loaded) -> str:
    (text,) = (text for name, text in texts(lower_all([entry])).items() if name.endswith(".cu"))
    return re.sub(r"(?m)^// (@.*|edit\.)\n", "", text)


PLACED = """\
op: placed
doc: Rows of a table, read from another place on.
descriptor: {count: int, entries: int, far: {type: int, default: 1, doc: how far}}
dims: {i: count, row: entries}
inputs: {table: {dims: [row], outside: 0}, at: {dims: [i], dtype: i64}}
outputs: {y: {dims: [i]}}
program: y = table[at + far] * table[at + far]
tests: {ranges: {at: [-2, 9]}}
backward:
  dims: {k: 2}
  program: |
    dtable = sum(where(at + far == index(row), 2.0 * dy * table[at + far], 0.0), i) + 0.0 * sum(dy[row + k], k)
"""


def test_a_program_by_hand_reads_at_places_as_its_forward_does(tmp_path: Path) -> None:
    """Outside of the table is what the forward says, of the gradient 0; dims that are named are further ones."""
    spec = pair(tmp_path, PLACED)[1].spec
    assert isinstance(spec, MapSpec)
    assert {name: t.outside for name, t in spec.inputs.items()} == {"dy": 0, "table": 0, "at": None}
    assert {name: dim.of for name, dim in spec.dims.items()} == {"i": "count", "row": "entries", "k": "2"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("  dims: {k: 2}\n", "  dims: {row: entries, i: count, k: 2}\n"), None),
        (
            ("  program: |", "  inputs: {dy: {dims: [row], outside: 0}, table: {}, at: {}}\n  program: |"),
            r"'dy' belongs to 'y', so its dims are \[i\], got \[row\]",
        ),
        (
            ("  program: |", "  outputs: {dtable: {dims: [row, i]}}\n  program: |"),
            r"'dtable' belongs to 'table', so its dims are \[row\], got \[row, i\]",
        ),
    ],
)
def test_tensors_of_a_gradient_have_the_dims_of_theirs(
    tmp_path: Path, change: tuple[str, str], said: str | None
) -> None:
    if said is None:
        assert [*pair(tmp_path, PLACED.replace(*change))[1].spec.dims] == ["i", "row", "k"]
    else:
        with pytest.raises(SpecError, match=said):
            pair(tmp_path, PLACED.replace(*change))


def test_a_gradient_apart_lists_the_dims_of_its_forward_first(tmp_path: Path) -> None:
    forward = PLACED.partition("backward:\n")[0]
    (tmp_path / "placed.yaml").write_text(forward, encoding="utf-8")
    apart = "op: placed_backward\ndoc: Its gradient.\ngradient: {of: placed, cotangents: {dy: y}, wrt: "
    apart += "{dtable: table}}\n"
    apart += "descriptor: {count: int, entries: int}\ndims: {row: entries}\n"
    apart += "inputs: {dy: {dims: [row]}}\noutputs: {dtable: {dims: [row]}}\nprogram: dtable = dy\n"
    (tmp_path / "placed_backward.yaml").write_text(apart.replace("count: int, ", ""), encoding="utf-8")
    with pytest.raises(SpecError, match="dims must begin with those of 'placed', i, row; got row"):
        load_folder(tmp_path)
