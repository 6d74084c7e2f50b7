"""Invariant: a shell completes every command and option, and what the project has names for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import project

from baracuda.cli.completion import Bash
from baracuda.cli.main import main
from baracuda.codegen.project import plan_names
from baracuda.runtime import ElementKind

VARIABLE = "_BARACUDA_GEN_COMPLETE"
EXPLAIN = ("explain", "RMSNormPlan")
OPS = sorted(project().loaded)


def completed(*words: str) -> list[str]:
    """What may stand for the last of the words."""
    shell = Bash(main, {}, "baracuda-gen", VARIABLE)
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ex",), ["explain"]),
        (("explain", "--p"), ["--package"]),
        (("explain", ""), plan_names("baracuda.generated")),
        (("why-miss", "RMSNorm"), ["RMSNormBackwardPlan", "RMSNormPlan"]),
        (("compile", ""), OPS),
        (("list", "alibi_"), ["alibi_backward"]),
        (("show", "repeat"), ["repeat", "repeat_backward"]),
        (("list", "--dtype", "f8"), ["f8e4m3", "f8e5m2"]),
        (("compile", "--arch", "sm_90"), ["sm_90", "sm_90a"]),
        ((*EXPLAIN, "--device", "h"), ["host"]),
        (("compile", "--layouts", "packed,st"), ["packed,strided"]),
        (("compile", "--layouts", "packed,p"), []),
        (("check", "--layouts", "f"), ["flat"]),
        ((*EXPLAIN, ""), ["input_shape=", "norm_axes_mask=", "eps=", "has_gamma=", "element="]),
        ((*EXPLAIN, "eps=1", "e"), ["element="]),
        ((*EXPLAIN, "has_gamma="), ["has_gamma=true", "has_gamma=false"]),
        ((*EXPLAIN, "element=f"), ["element=f32", "element=f16", "element=f64"]),
        ((*EXPLAIN, "eps="), []),
        # As bash takes words apart:
        ((*EXPLAIN, "has_gamma", "="), ["true", "false"]),
        ((*EXPLAIN, "has_gamma", "=", "t"), ["true"]),
        ((*EXPLAIN, "has_gamma", "=", "true", "e"), ["eps=", "element="]),
        (("explain", "NoPlan", ""), []),
        (("explain", "--package", "gone", ""), []),
    ],
)
def test_what_completes(words: tuple[str, ...], found: list[str]) -> None:
    assert completed(*words) == found


@pytest.mark.parametrize("given", ["--specs {}", "--specs = {}", "--specs ~", "--arch = sm_90 --specs {} softmax"])
def test_the_specs_given_count(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bash tells them, which takes `--specs=FOLDER` apart and leaves ~ as it is."""
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "mine.yaml").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ["baracuda-gen", "compile", *given.format(tmp_path).split()]
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    shell = Bash(main, {}, "baracuda-gen", VARIABLE)
    assert [item.value for item in shell.get_completions(*shell.get_completion_args())] == ["mine"]


def test_elements_are_those_of_the_plan() -> None:
    assert "element=bool" in completed("explain", "RepeatPlan", "element=")
    assert completed(*EXPLAIN, "element=b") == ["element=bf16"] and "bool" in list(ElementKind)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_leaves_no_space_behind_a_field(tmp_path: Path) -> None:
    """The script that README tells to evaluate, in bash; what a completion is outside of one, `compopt` is told by."""
    program = tmp_path / "baracuda-gen"
    program.write_text(f"#!{sys.executable}\nfrom baracuda.cli.main import main\nmain(prog_name='baracuda-gen')\n")
    program.chmod(0o755)
    script = (
        f'eval "$({VARIABLE}=bash_source baracuda-gen)"\n'
        'compopt() { echo "compopt $2"; }\n'
        "COMP_WORDS=(baracuda-gen explain RMSNormPlan $1) COMP_CWORD=3\n"
        '_baracuda_gen_completion baracuda-gen\necho "${COMPREPLY[*]}"\n'
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    around = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    for word, shown in (("ep", "compopt nospace\neps=\n"), ("--dev", "--device\n")):
        command = ["bash", "--norc", "-c", script, "bash", word]
        assert subprocess.run(command, env=around, capture_output=True, text=True, check=True).stdout == shown
