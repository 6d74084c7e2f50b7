"""Invariant: a failure that was kept in a file is seen again from the file alone, until what was wrong is mended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from repository import share_runtime

from baracuda.checking.compare.judge import Outcome, Settings
from baracuda.checking.compare.worker import Judge
from baracuda.checking.problems.cases import problems, skus
from baracuda.checking.problems.subject import Subject
from baracuda.checking.repro import bundle
from baracuda.checking.repro.bundle import read, write
from baracuda.checking.trials.memory import HostMemory
from baracuda.checking.trials.trial import Trial, trial
from baracuda.checking.verify import checks
from baracuda.cli.main import main
from baracuda.cli.prove import repro as commanded
from baracuda.codegen.emit import generate
from baracuda.codegen.project import Project, installed, plans_of
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import ElementKind, KernelInternal

SPECS, PACKAGE = installed("baracuda.specs"), "baracuda.generated"
SPEC, TEMPLATE = SPECS / "normalization" / "rms_norm.yaml", installed("baracuda.templates") / "row.cu.jinja"
RIGHT = "{{ s | stored_value }});"
WRONG = "{{ s.tensor | stored_type }}({{ s.expr | cuda }} + acc_t(1)));"


def subject(op: str) -> Subject:
    plans_of(PACKAGE)
    loaded = load_folder(SPECS)
    return Subject(loaded[op], loaded, PACKAGE)


def one_trial(op: str, element: str = "f32") -> Trial:
    """On the smallest problem of the first kernel for an element."""
    one = subject(op)
    sku = next(sku for sku in skus(one) if sku.element == element)
    return checks.drawn(min((p for p in problems(one, sku) if p.several), key=lambda p: p.size), "normal")


def too_strict(right: Trial) -> Trial:
    """The same one, allowing less than any kernel can keep."""
    return replace(right, allowed={name: np.asarray(bound) * 1e-9 for name, bound in right.allowed.items()})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["repro", *map(str, arguments)], catch_exceptions=False)


# ------------------------------------------------------------------------------------------------------------ the file


@pytest.mark.parametrize(("op", "element"), [("rms_norm", "bf16"), ("softmax_backward", "f64"), ("alibi", "f32")])
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_read_gives_the_same_verdict(tmp_path: Path, op: str, element: str, strict: bool) -> None:
    """To the last digit, for the same kernel, with all that places it in memory."""
    kept, memory = one_trial(op, element), HostMemory()
    kept = too_strict(kept) if strict else kept
    names = [n for n in kept.problem.arguments if not kept.problem.arguments[n].optional]
    kept = replace(kept, patterns=dict.fromkeys(names, "gap"), shift_workspace=16, repeats=2)
    seen, failure = kept.verdict(memory)
    assert bool(failure) == strict
    found = read(write(kept, tmp_path, failure, memory, {"seed": 3}))
    again = found.trial(kept.problem.subject.others, PACKAGE, "host")
    assert again.problem.plan.sku == kept.problem.plan.sku and found.changed(again) == []
    assert again.verdict(memory) == (seen, failure)
    assert found.facts["saw"] == failure and found.facts["origin"] == {"seed": 3}


def test_how_memory_looks_is_kept(tmp_path: Path) -> None:
    kept, memory = one_trial("rms_norm", "bf16"), HostMemory()
    choice = list(checks.choices_of(kept.problem))[-1]
    how = {"choice": choice, "patterns": {"x": "gap"}, "broadcast": {"x": 0}, "shift_workspace": 32, "repeats": 7}
    kept = replace(kept, **how)  # type: ignore[arg-type]
    again = read(write(kept, tmp_path, "", memory, {})).trial(kept.problem.subject.others, PACKAGE, "host")
    assert choice and {name: getattr(again, name) for name in how} == how


NUMBERS = {
    "f32": np.array([[1.5, np.nan]], np.float32),
    "bf16": np.array([1.5, np.inf]).astype(ElementKind.BF16.row.numpy),
    "f8e4m3": np.array([[0.5], [2]]).astype(ElementKind.F8E4M3.row.numpy),
    "bool": np.array([True, False]),
    "c64": np.array([1 + 2j], np.complex64),
    "i64": np.array(2**62 + 1),
    "none": np.zeros((0, 3), np.float16),
    "extended": np.array([1 + np.finfo(np.longdouble).eps, np.inf, -np.inf, np.nan, 0], np.longdouble),
    "extended complex": np.array([1j / np.longdouble(3)], np.clongdouble),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_number_is_kept_exactly(tmp_path: Path, kind: str) -> None:
    array = NUMBERS[kind]
    kept = replace(one_trial("rms_norm"), inputs={"x": array}, exact={"y": array}, allowed={"y": np.float64(1)})
    found = read(write(kept, tmp_path, "", HostMemory(), {})).numbers
    for again in (found["inputs"]["x"], found["exact"]["y"]):
        assert (again.dtype, again.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(again.astype(np.complex128), array.astype(np.complex128))
        assert np.array_equal(again, array, equal_nan=array.dtype.kind in "fcg")


def test_a_file_is_replaced_by_its_equal_alone(tmp_path: Path) -> None:
    one, memory = one_trial("rms_norm"), HostMemory()
    first = write(one, tmp_path, "a", memory, {})
    before = first.read_bytes()
    assert write(one, tmp_path, "a", memory, {}) == first and first.read_bytes() == before
    assert write(one, tmp_path, "b", memory, {}) != first and len(list(tmp_path.iterdir())) == 2


# --------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The file of a trial that fails."""
    one, memory = too_strict(one_trial("rms_norm")), HostMemory()
    return write(one, tmp_path, one.verdict(memory)[1], memory, {})


def edited(file: Path, **changes: object) -> Path:
    """A copy with other facts."""
    found = file.with_name("edited.zip")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(found, "w") as new:
        for name in old.namelist():
            facts = {**json.loads(old.read(name)), **changes} if name.endswith(".json") else {}
            new.writestr(name, json.dumps(facts) if facts else old.read(name))
    return found


def test_the_command_fails_until_it_passes(kept: Path) -> None:
    failing = run(kept)
    assert failing.exit_code == 1 and "now: 'y' is wrong" in failing.stdout and "BEYOND" in failing.stdout
    assert "before:" not in failing.stdout and not failing.stderr
    facts = json.loads(run(kept, "--json").stdout)
    assert facts["fails"] and facts["sees"] == facts["saw"] and facts["outputs"]["y"]["worst_ratio"] > 1
    one, memory = one_trial("rms_norm"), HostMemory()
    passing = run(write(one, kept.parent, "what was seen", memory, {}))
    assert passing.exit_code == 0 and passing.stdout.endswith("before: what was seen\npasses now\n")


def test_the_gpus_failure_runs_on_the_host(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commanded.CudaDevice, "available", lambda: False)
    result = run(edited(kept, device="cuda:0"))
    assert result.exit_code == 1 and "there is none, so it runs on the host device" in result.stderr
    assert "no CUDA device to run on" in run(kept, "--device", "cuda").stderr


def test_what_changed_since_is_named(kept: Path) -> None:
    facts = read(kept).facts
    other = edited(kept, of={**facts["of"], "the kernel's text": "other", "the spec": "other"})
    assert run(other).stderr == "changed since: the spec, the kernel's text\n"


def test_what_is_no_bundle_is_an_error_in_a_line(kept: Path, tmp_path: Path) -> None:
    """Each names the file, and what is wrong with it."""
    text, torn, other = tmp_path / "text.zip", tmp_path / "torn.zip", tmp_path / "other.zip"
    text.write_text("no archive")
    torn.write_bytes(kept.read_bytes()[:-200])
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("a.txt", "")
    wrong: dict[Path, str] = {
        tmp_path / "none.zip": "no such file",
        tmp_path / "text.zip": "is no bundle",
        torn: "is no bundle",
        other: "is no bundle",
    }
    for path, said in wrong.items():
        result = run(path)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1) and f"{path}: {said}" in result.stderr
    facts = {
        "format 2": {"format": 2},
        "no op 'rms_nrom'": {"op": "rms_nrom"},
        "is of RMSNormDescriptor": {"case": {**read(kept).facts["case"], "eps": 1.0}},
    }
    for said, changes in facts.items():
        result = run(edited(kept, **changes))
        assert result.exit_code == 1 and said.partition(" 2")[0] in result.stderr and result.stderr.count("\n") == 1
    gone = run(kept, "--package", "gone")
    assert gone.exit_code == 1 and "no package 'gone'; install it or go to" in gone.stderr


# --------------------------------------------------------------------------------------------------------- who keeps it


def test_checks_offer_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong results and findings; without a folder nothing is kept."""
    memory, one = HostMemory(), too_strict(one_trial("rms_norm"))
    monkeypatch.setattr(checks, "drawn", lambda *_: one)
    with pytest.raises(AssertionError, match="'y' is wrong") as caught:
        checks.check_accuracy([one.problem], memory)
    assert "again" not in str(caught.value)
    monkeypatch.setenv(bundle.REPRO, str(tmp_path))
    with pytest.raises(AssertionError, match="again: baracuda-gen repro ") as caught:
        checks.check_accuracy([one.problem], memory)
    assert run(str(caught.value).split()[-1]).exit_code == 1

    def finding(*_: object) -> None:
        raise KernelInternal("a race")

    monkeypatch.setattr(Trial, "measure", finding)
    with pytest.raises(KernelInternal, match="a race\nagain: baracuda-gen repro "):
        checks.check_accuracy([one.problem], memory)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line in a folder with specs of one op, templates and a cache of its own."""
    (tmp_path / "specs" / "normalization").mkdir(parents=True)
    text = SPEC.read_text().replace("dtypes: [f32, f16, bf16, f64]", "dtypes: [f32]")
    (tmp_path / "specs" / "normalization" / SPEC.name).write_text(text)
    (tmp_path / "templates").mkdir()
    (tmp_path / "mine").mkdir()
    share_runtime(tmp_path / "cache")

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = "from baracuda.cli.main import main; main(prog_name='baracuda-gen')"
        around = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "BARACUDA_CACHE_DIR": str(tmp_path / "cache")}
        whole = [sys.executable, "-c", code, *arguments]
        return subprocess.run(whole, cwd=tmp_path, env=around, capture_output=True, text=True)

    return command


def generate_with(text: str, folder: Path) -> None:
    """Generate the package of the project in `folder` from a template's text."""
    (folder / "templates" / TEMPLATE.name).write_text(text)
    generate.write(Project.read(folder / "specs", [folder / "templates"]).files, folder / "mine" / "generated")


def test_a_broken_kernel_is_kept_and_seen_until_it_is_mended(
    tmp_path: Path, project: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """`test --repro`, then `repro` with the kernel broken and mended, in processes of their own."""
    text = TEMPLATE.read_text()
    assert RIGHT in text, "the defect is no longer in the text; write it anew"
    generate_with(text.replace(RIGHT, WRONG), tmp_path)
    options = ["--package", "mine.generated", "--repro", "found", "--", "-x", "-k", "test_accuracy"]
    tested = project("test", "rms_norm", *options)
    (file,) = (tmp_path / "found").iterdir()
    assert tested.returncode == 1 and f"again: baracuda-gen repro {file} --package mine.generated" in tested.stdout
    failing = project("repro", str(file), "--package", "mine.generated")
    assert failing.returncode == 1 and "now: 'y' is wrong" in failing.stdout and not failing.stderr
    (said,) = (line.removeprefix("now: ") for line in failing.stdout.splitlines() if line.startswith("now: "))
    assert said in tested.stdout
    generate_with(text, tmp_path)
    mended = project("repro", str(file), "--package", "mine.generated")
    assert mended.returncode == 0 and mended.stdout.endswith(f"before: {said}\npasses now\n")
    assert mended.stderr == "changed since: the kernel's text\n"


@pytest.mark.frontends
def test_compare_keeps_every_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the command that draws it anew comes the one that reads it."""
    pytest.importorskip("torch")
    right = Trial._compared

    def wrong(one: Trial, outputs: Any) -> Any:
        outputs["y"].flat[0] += 1
        return right(one, outputs)

    monkeypatch.setattr(Trial, "_compared", wrong)
    folder = tmp_path / "two words"
    command = ["compare", "softmax", "--only", "0", "--device", "host", "--limit", "1024", "--repro", str(folder)]
    shown = CliRunner().invoke(main, command, catch_exceptions=False)
    (file,) = folder.iterdir()
    assert shown.exit_code == 1 and f"again: baracuda-gen repro '{file}'" in shown.stdout
    assert read(file).facts["origin"]["compare"] == 0 and run(file).exit_code == 1
    monkeypatch.undo()
    assert run(file).exit_code == 0


@pytest.mark.frontends
def test_what_a_process_died_of_is_kept_and_what_cannot_be_drawn_is_not(tmp_path: Path) -> None:
    """All that is known of either is its number."""
    pytest.importorskip("torch")
    outcome = Outcome("softmax", 0, failure="the process died with -11", fatal=True)
    file = Judge(SPECS, PACKAGE, (), Settings(0, "host", 1024, 1)).keep(outcome, tmp_path)
    assert file is not None and read(file).facts["saw"] == outcome.failure
    assert Judge(SPECS, PACKAGE, (), Settings(0, "host", -1, 1)).keep(outcome, tmp_path) is None


def test_results_by_the_name_of_the_definition() -> None:
    """An output that takes over an input's name is judged by what the program calls it."""
    one = one_trial("rms_norm").problem
    assert trial(one, {}, {"y": 1, "rms": 2}, {}).exact == {"y": 1, "rms": 2}
