"""An expression that has no value for a problem is told in our words, wherever it is computed."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from repository import LONG, ROOT

from baracuda.checking.listing.variants import variants_of
from baracuda.codegen.emit import plan_classes as plans
from baracuda.codegen.project import Project
from baracuda.runtime import REGISTRY, InvalidProblem, PlanPreference, SpecError
from baracuda.runtime.plans.formula import written_out

ROW = (ROOT / "tests/specs/scale.yaml").read_text()
BODY = (LONG / "causal_conv1d_update.yaml").read_text()
SIZES = {"batch_size": 2, "channels": 8, "width": 2, "state_len": 4, "use_silu": False, "element": "f32"}


def project(folder: Path, text: str) -> Project:
    (folder / "specs").mkdir(exist_ok=True)
    (folder / "specs" / "op.yaml").write_text(text)
    return Project.read(folder / "specs")


def package(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The generated module, which is registered in a table of the test's own."""
    made, name = project(folder, text), f"novalue_{len(sys.modules)}"
    for path, content in made.files.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(content)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(REGISTRY, "_table", type(REGISTRY._table)())
    (op,) = made.ops.values()
    return import_module(f"{name}.{op.category}.{op.name}")


@pytest.mark.parametrize(
    ("condition", "shape", "said"),
    [
        ("8 // axis > 0", (3, 4), "8 // axis has no value: integer division or modulo by zero; got axis=0"),
        ("8 % axis == 0", (3, 4), "8 % axis has no value"),
        ("min(shape) > 0", (), "min(shape) has no value"),
        ("shape[axis + 1] > 0", (3,), "shape[axis + 1] has no value: tuple index out of range; got shape="),
        ("normalize_axis(axis + 1, len(shape)) == 0", (3,), "axis 1 is outside rank 1"),
        ("ceil_div(8, axis) > 0", (3, 4), "ceil_div(8, axis) has no value"),
        ("isfinite(prod(shape))", (2**62,) * 30, "isfinite(prod(shape)) has no value"),
    ],
)
def test_selection_names_the_requirement(
    condition: str, shape: tuple[int, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Divisions by zero, empty tuples and indices that are not there: what failed, with the values it saw."""
    text = ROW.replace("len(shape) >= 1", "len(shape) >= 0")  # no rank is refused, and none implied
    text = text.replace("{that: 0 <= axis < len(shape),", f'{{that: "{condition}",')
    module = package(tmp_path, text, monkeypatch)
    problem = module.ScaleDescriptor(shape=shape, axis=0, has_gain=False, element="f32")
    for ask in (module.ScalePlan.select, module.ScalePlan.explain):
        with pytest.raises(InvalidProblem, match=re.escape(said)) as caught:
            ask(problem)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("each: max(1, pack // even) if STATE > 0 else 1", "each: 16 // (seq_len - 3)", "16 // (seq_len - 3) has no"),
        ("  WIDTH: width\n", "  WIDTH: width // (seq_len - 3)\n", "width // (seq_len - 3) has no value"),
        ("(batch_size, channels, seq_len)", "(batch_size, channels, 9 // (seq_len - 3))", "9 // (seq_len - 3) has"),
        ("when: seq_len > 0", "when: 8 // (seq_len - 3) < 0", "8 // (seq_len - 3) has no value"),
        ("* batch_size\"]", "* ceil_div(batch_size, seq_len - 3)\"]", "ceil_div(batch_size, seq_len - 3) has"),
        ("when: seq_len > 0", "when: seq_len > 0, shared: 64 % (seq_len - 3) * 0", "64 % (seq_len - 3) has no value"),
        ("threads: 128}", "threads: 128, fits: 8 // (seq_len - 3) < 9}", "8 // (seq_len - 3) has no value"),
        ("kernels:", "workspace: {part: {size: 8 // (seq_len - 3)}}\nkernels:", "8 // (seq_len - 3) has no value"),
    ],
)  # fmt: skip
def test_selection_names_what_a_body_declares(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terms, settings, shapes, grids, shared memory, what schedules serve, workspaces."""
    assert old in BODY
    module = package(tmp_path, BODY.replace(old, new), monkeypatch)
    problem = module.CausalConv1dUpdateDescriptor(**{**SIZES, "element": "f64"}, seq_len=3)
    with pytest.raises(InvalidProblem, match=re.escape(said)) as caught:
        module.CausalConv1dUpdatePlan.select(problem, PlanPreference())
    assert "seq_len=3" in str(caught.value) and "\n" not in str(caught.value)


def test_a_term_that_nothing_asks_for_is_not_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a schedule may have terms that divide by numbers which others lack."""
    module = package(tmp_path, BODY.replace("  pack: 16 // itemsize\n", "  pack: 16 // (seq_len - 3)\n"), monkeypatch)
    given = {**SIZES, "element": "f64"}
    assert module.CausalConv1dUpdatePlan.select(module.CausalConv1dUpdateDescriptor(**given, seq_len=3))
    with pytest.raises(InvalidProblem, match=r"16 // \(1 - seq_len\) has no value"):
        text = BODY.replace("  pack: 16 // itemsize\n", "  pack: 16 // (1 - seq_len)\n")
        module = package(tmp_path, text, monkeypatch)
        module.CausalConv1dUpdatePlan.select(module.CausalConv1dUpdateDescriptor(**given, seq_len=1))


def test_a_case_without_a_value_is_told_with_its_line(tmp_path: Path) -> None:
    """`compile` and `check` ask plans for the spec's cases; what these cannot compute is the spec's."""
    text = BODY.replace("  pack: 16 // itemsize\n", "  pack: 16 // (seq_len - 1)\n")
    with pytest.raises(SpecError, match=r"op\.yaml:\d+: .*16 // \(seq_len - 1\) has no value"):
        variants_of(project(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("when: seq_len > 0", "when: 8 // (threads_of - 2) > 0", "division"),
        ("when: seq_len > 0", "when: 8 // 0 > 0", "divides by zero"),
        ("16 // itemsize", "16 // (2 - 2)", "divides by zero"),
        ("16 // itemsize", "prod((9223372036854775807,) * 3000000)", "a tuple may have 3000000 elements"),
        ("16 // itemsize", "len((0,) * 400000000)", "a tuple may have 400000000 elements"),
        ("16 // itemsize", "mask_axes(1, 2**63 - 1)", "'2 ** 63' is not allowed here"),
        ("(channels, width)", "(channels, width) * channels", "elements, the most is"),
        ("when: seq_len > 0", 'when: "len((0,) * 400000000) > 0"', "a tuple may have 400000000 elements"),
        ("STATE: state_len if", "STATE: len((0,) * 400000000) if", "a tuple may have 400000000 elements"),
    ],
)
def test_what_never_has_a_value_is_no_spec(old: str, new: str, said: str, tmp_path: Path) -> None:
    """It is refused when the spec is read, with its line."""
    text = BODY.replace(old, new).replace("threads: 128}", "threads: 128, numbers: {threads_of: 2}}")
    with pytest.raises(SpecError, match=r"op\.yaml:\d+: .*" + re.escape(said)):
        project(tmp_path, text)


def test_terms_do_not_multiply_beyond_the_budget(tmp_path: Path) -> None:
    """Each of a chain is small; together they would double the size of an int thirty times."""
    chain = "".join(f"  t{i + 1}: t{i} * t{i}\n" for i in range(30))
    with pytest.raises(SpecError, match="bits, the most is"):
        project(tmp_path, BODY.replace("  pack: 16", f"  t0: channels\n{chain}  pack: 16"))
    grown = "".join(f"  t{i + 1}: t{i} + t{i}\n" for i in range(30))
    with pytest.raises(SpecError, match="elements, the most is"):
        project(tmp_path, BODY.replace("  pack: 16", f"  t0: (channels, width)\n{grown}  pack: 16"))


def test_all_expressions_together_have_a_budget(tmp_path: Path) -> None:
    """Of requirements, of what selection evaluates for each schedule, and of what listing kernels evaluates in all."""
    many = "\n".join(f"  - {{that: {' + '.join(['width'] * 100)} > {i}, raises: Unsupported}}" for i in range(12))
    with pytest.raises(SpecError, match=r"evaluates 9[0-9]{3} characters of conditions; the most is 4000"):
        project(tmp_path, BODY.replace("dtypes:", f"{many}\ndtypes:", 1))
    terms = "".join(f"  t{i}: {' + '.join(['channels'] * 85)}\n" for i in range(17))
    with pytest.raises(SpecError, match=r"characters of shapes, settings, terms.*; the most is 16000"):
        project(tmp_path, BODY.replace("  pack: 16", f"{terms}  pack: 16"))


def test_listing_kernels_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random cases end where it is spent; the spec's own that spend it are too many."""
    made = project(tmp_path, BODY)
    monkeypatch.setattr(plans, "MAX_EVALUATED", 100)
    with pytest.raises(SpecError, match=r"op\.yaml:\d+: .* needs more than 100 characters of expressions"):
        variants_of(made)


def test_what_a_schedule_serves_is_written_out_once(tmp_path: Path) -> None:
    """Terms of terms double the text with each of them: it ends."""
    chain = "".join(f"  t{i + 1}: t{i} - t{i}\n" for i in range(60))
    text = BODY.replace("  pack: 16", f"  t0: channels\n{chain}  pack: 16")
    (op,) = project(tmp_path, text.replace("threads: 128}", "threads: 128, fits: t60 == 0}")).ops.values()
    assert any(row.fits for row in op.rows)
    assert all(len(written_out(row.fits, dict(op.terms))) < 2000 for row in op.rows)
    assert written_out("a < b and b_c", {"a": "n + 1", "b": "a * 2"}) == "(n + 1) < ((n + 1) * 2) and b_c"
