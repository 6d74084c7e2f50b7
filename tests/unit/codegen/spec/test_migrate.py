"""Invariant: specs of an earlier version of the language become today's, and nothing else of them changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from baracuda.cli.main import main
from baracuda.codegen.spec.language import FILE, KEY, VERSION, version_of
from baracuda.codegen.spec.load import load_folder, load_spec
from baracuda.codegen.spec.migrate import migrated
from baracuda.codegen.spec.schema import schema_text
from baracuda.runtime import SpecError

SPEC = """\
# What follows is aligned by hand.
op: row_sum

kind:      RowSUM   # as people write it
inputs:    [x]
dims: {rows: rest, cols: axis}
outputs:   {y: {dims: [rows]}}  # one a row
program:   y = sum(x, cols)
doc: "Sums: of rows."
"""
FIRST = schema_text().replace(f' "{KEY}": {VERSION},\n', "")


def migrate(folder: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["migrate", "--specs", str(folder), *options])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kind:      RowSUM ", "plan: RowSUMPlan "),
        ("kind:      RowSUM   # as people write it\n", ""),
        ("kind:      RowSUM   # as people write it\n", "plan: OtherPlan\n"),
    ],
)
def test_a_plan_keeps_its_name(old: str, new: str) -> None:
    text = SPEC
    if "Other" in new:
        text = SPEC.replace("inputs", "plan: OtherPlan\ninputs")
        new = ""
    elif not new:
        text = SPEC.replace("RowSUM", "RowSum")
        old = old.replace("RowSUM", "RowSum")
    assert old in text and migrated(text, 1) == text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{op: a, kind: B, doc: c}", "{op: a, plan: BPlan, doc: c}"),
        ("{op: a, kind: A, doc: c}", "{op: a, doc: c}"),
        ("{op: a, doc: c, kind: A}", "{op: a, doc: c}"),
        ("op: a\nbackward: {kind: B, doc: c}\n", "op: a\nbackward: {doc: c}\n"),
        ("op: a\nbackward:\n  kind: B\n", "op: a\nbackward:\n"),
        ("op: a\ndoc: c\nkind: A", "op: a\ndoc: c\n"),
        ("op: a_backward\nkind: B\ngradient: {of: a}\n", "op: a_backward\nplan: BBackwardPlan\ngradient: {of: a}\n"),
        ("op: a_backward\ndoc: c\n", "op: a_backward\nplan: APlan\ndoc: c\n"),
        ("op: slope\ngradient: {of: a}\n", "op: slope\nplan: SlopeBackwardPlan\ngradient: {of: a}\n"),
        ("op: a_backward\ngradient: {of: a}\n", "op: a_backward\ngradient: {of: a}\n"),
        ("op: a\nkinds: {relu: relu(x)}\n", "op: a\nkinds: {relu: relu(x)}\n"),
        ("- kind\n", "- kind\n"),
    ],
)
def test_a_key_goes_with_its_line_or_comma(text: str, expected: str) -> None:
    assert migrated(text, 1) == expected
    assert migrated(text, VERSION) == text


def test_a_folder_says_its_version_and_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "row_sum.yaml").write_text(SPEC)
    assert version_of(tmp_path) == VERSION
    with pytest.raises(SpecError, match=r"yaml:4: 'kind' is of language 1; run 'baracuda-gen migrate --from 1'"):
        load_folder(tmp_path)
    for text, version, remedy in (
        (FIRST, 1, "run 'baracuda-gen migrate'"),
        (schema_text().replace(f'"{KEY}": {VERSION}', f'"{KEY}": 99'), 99, "install a later one"),
    ):
        (tmp_path / FILE).write_text(text)
        assert version_of(tmp_path) == version
        with pytest.raises(SpecError, match=rf"schema\.json: specs are of language {version}, .* reads 2; {remedy}"):
            load_folder(tmp_path)
    (tmp_path / FILE).write_text('{"somebody": "else"}')
    assert version_of(tmp_path) == VERSION


def test_migrate_rewrites_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "row_sum.yaml"
    path.write_bytes(SPEC.replace("\n", "\r\n").encode())
    (tmp_path / FILE).write_text(FIRST)
    before = path.read_bytes()
    assert migrate(tmp_path, "--check")[0] == 1
    assert path.read_bytes() == before and version_of(tmp_path) == 1
    assert migrate(tmp_path)[0] == 0
    assert path.read_bytes() == before.replace(b"kind:      RowSUM", b"plan: RowSUMPlan")
    assert load_folder(tmp_path)["row_sum"].spec.plan == "RowSUMPlan" and version_of(tmp_path) == VERSION
    assert migrate(tmp_path, "--check") == (0, f"0 of the specs differ from language {VERSION}\n")


def test_nothing_is_written_where_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SPEC)
    (tmp_path / "b.yaml").write_text("op: [\n")
    code, said = migrate(tmp_path, "--from", "1")
    assert code and "b.yaml:2: " in said and (tmp_path / "a.yaml").read_text() == SPEC


def test_bounds_are_of_outputs_and_kinds(tmp_path: Path) -> None:
    """What is said of one comes before what `precision` says of all."""
    path = tmp_path / "two.yaml"
    text = "op: two\ndoc: Two.\ninputs: [x]\ndims: {cell: input_shape}\n"
    text += "precision: {bound: {f16: {c1: 2}, f32: {c2: 3}}}\n"
    outputs = "outputs: {y: {}, z: {bound: {f16: {c2: 4}}}}\n"
    path.write_text(f"{text}{outputs}program: |\n  y = x * x\n  z = y + x\n")
    spec = load_spec(path).spec
    found = {(o, t): (spec.bound_of(o, t).c1, spec.bound_of(o, t).c2) for o in "yz" for t in ("f16", "f32", "f64")}
    assert found == {
        **{("y", "f16"): (2, 1), ("y", "f32"): (1, 3), ("y", "f64"): (1, 1)},
        **{("z", "f16"): (1, 4), ("z", "f32"): (1, 3), ("z", "f64"): (1, 1)},
    }
    path.write_text(f"{text}outputs: [y]\nkinds: {{a: x * x, b: {{program: x + x, bound: {{f32: {{c1: 5}}}}}}}}\n")
    spec = load_spec(path).spec
    assert [spec.of_kind(kind).bound_of("y", "f32").c1 for kind in "ab"] == [1, 5]
