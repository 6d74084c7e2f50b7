"""The table of defects: each has exactly one place in today's sources, and every stratum is covered."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from repository import ROOT, SPECS

from baracuda.checking.mutation.table import Defect, Edit, read_table
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import SpecError

TABLE = read_table(ROOT / "tests" / "defects")
STRATA = {
    "row", "map", "matmul", "language", "list", "body",
    "hopper", "gpu_branches", "shared_runtime", "spec_data", "promises",
}  # fmt: skip


def test_each_edit_has_one_place_and_changes_it() -> None:
    errors = []
    for defect, edit in [(each, edit) for each in TABLE for edit in each.edits]:
        text = (ROOT / edit.file).read_text()
        try:
            errors += [f"{defect.id}: changes nothing"] if edit.edited(text) == text else []
        except SpecError as error:
            errors.append(f"{defect.id}: {error}")
    assert not errors, "\n".join(errors)


def test_every_stratum_has_at_least_16_defects_half_of_them_semantic() -> None:
    strata = Counter(defect.stratum for defect in TABLE)
    semantic = Counter(defect.stratum for defect in TABLE if defect.semantic)
    assert set(strata) == STRATA
    assert min(strata.values()) >= 16 and all(semantic[name] >= count / 2 for name, count in strata.items())


def test_defects_are_of_ops_that_there_are() -> None:
    known = set(load_folder(SPECS))
    assert all(defect.ops and set(defect.ops) <= known for defect in TABLE)


def test_an_edit_takes_the_indentation_of_its_place() -> None:
    edit = Edit("a.py", "if a:\n    b\nc", "d\nif e:\n    f")
    assert edit.edited("x\n    if a:\n        b\n    c\ny") == "x\n    d\n    if e:\n        f\ny"
    assert edit.edited("if a:\n    b\nc") == "d\nif e:\n    f"


@pytest.mark.parametrize("text", ["", "a = 1; a = 1;", "a = 2;"])
def test_an_edit_without_one_place_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"b\.cu has [02] places like 'a = 1'; needs one"):
        Edit("b.cu", "a = 1", "a = 2").edited(text)


ENTRY = "- {id: a, semantic: true, wrong: b, file: c, find: d, replace: e, ops: [f]}\n"


def test_a_table_is_read(tmp_path: Path) -> None:
    more = ENTRY.replace("id: a", "id: g").replace("ops", "also: [{file: h, find: i, replace: j}], ops")
    (tmp_path / "k.yaml").write_text(ENTRY + more)
    first, second = read_table(tmp_path)
    assert first == Defect("a", "k", True, "b", (Edit("c", "d", "e"),), ("f",))
    assert (second.id, second.edits) == ("g", (Edit("c", "d", "e"), Edit("h", "i", "j")))


@pytest.mark.parametrize(
    "text, error",
    [
        (ENTRY + ENTRY, "entry 2: 'a' is in k already"),
        (
            ENTRY.replace("semantic: true, ", ""),
            "entry 1 needs id .str., semantic .bool., wrong .str., ops .list., file",
        ),
        (ENTRY.replace("true", "1"), r"entry 1 needs .*; got .*'semantic': 1"),
        (ENTRY.replace("ops", "also: [{file: h}], ops"), r"entry 1 needs file .str., find .str., replace .str.; got"),
        ("a: b\n", "needs a list of defects, got dict"),
        ("[]\n", "needs a STRATUM.yaml that lists defects, has none"),
    ],
)
def test_a_table_with_errors_is_refused(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "k.yaml").write_text(text)
    with pytest.raises(SpecError, match=error):
        read_table(tmp_path)
