"""Invariant: editors and type checkers see every keyword of plans, descriptors and functions, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

import baracuda.generated
import baracuda.ops
import baracuda.runtime as rt
from baracuda.codegen.emit.generate import generate
from baracuda.ops.signature import plans_of

STUB = ROOT / "generated" / "_functions.pyi"
PLANS = {plan.OP: plan for plan in plans_of(baracuda.generated)}
METHODS = ("run", "run_unchecked", "bind", "can_implement")
STUBS = {f.name: f for f in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(f, ast.FunctionDef)}
_STRIDES = {"any": "any strides", "inner": "any strides, the last 1", "contiguous": "contiguous strides"}


def checked(tmp_path: Path, text: str) -> dict[int, list[str]]:
    """What `mypy --strict` says of each line of a program, for which all below `installed` is installed."""
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--no-error-summary", "--hide-error-context"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / ".imports"), "PYTHONPATH": str(tmp_path / "installed"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    said: dict[int, list[str]] = {}
    for _, line, told in (m.groups() for m in re.finditer(r"^(.*?):(\d+): (.*)$", done.stdout, re.MULTILINE)):
        said.setdefault(int(line), []).append(told)
    return said


def test_a_type_checker_sees_plans_and_functions(tmp_path: Path) -> None:
    program = {
        "import numpy as np": "",
        "import baracuda.ops as ops": "",
        "from baracuda.generated import RMSNormDescriptor, RMSNormPlan": "",
        "x = np.ones((2, 4), np.float32)": "",
        "d = RMSNormDescriptor(input_shape=(2, 4), norm_axes_mask=2, eps=1e-6, has_gamma=False, element='f32')": "",
        "plan = RMSNormPlan.select(d)": "",
        "reveal_type(plan)": '"baracuda.generated.normalization.rms_norm.RMSNormPlan"',
        "reveal_type(plan.bind(x=x, y=x, rms=x))": '"baracuda.runtime.plans.prepared.BoundLaunch"',
        "reveal_type(plan.can_implement(x=x, y=x, rms=x))": '"baracuda.runtime.plans.selection.Verdict"',
        "plan.run(x=x, y=x, rms=x, workspace=None, stream=0)": "",
        "y, rms = ops.rms_norm(x, eps=1e-5, rms_dtype='f32')": "",
        "ops.rms_norm(x).rms": "",
        "ops.repeat(x, repeats=[2, 1])": "",
        "from baracuda.generated import RMSNormPlam": 'maybe "RMSNormPlan"?',
        "ops.rmsnorm(x)": 'Module has no attribute "rmsnorm"',
        "ops.rms_norm(x).scale": 'has no attribute "scale"',
        "ops.repeat(x)": 'Missing named argument "repeats"',
        "plan.run(x=x, y=x)": 'Missing named argument "rms" for "run"',
        "RMSNormPlan.select(3)": 'incompatible type "int"; expected "RMSNormDescriptor"',
        "RMSNormDescriptor(input_shape=2, norm_axes_mask=2, eps=1, has_gamma=True, element='f32')": '"int"; expected',
    }
    said = checked(tmp_path, "\n".join(program))
    for number, (line, wanted) in enumerate(program.items(), 1):
        told = "; ".join(said.pop(number, []))
        assert wanted in told if wanted else not told, (line, told)
    assert not said


def test_a_type_checker_sees_an_installed_package_of_ones_own(tmp_path: Path) -> None:
    generate(ROOT / "tests" / "specs", tmp_path / "installed" / "mine")
    said = checked(tmp_path, "from mine import ScalePlan\nScalePlan.select(3)\nreveal_type(ScalePlan.run)")
    assert 'expected "ScaleDescriptor"' in said[2][0] and "workspace: " in said[3][0]
    assert [*said] == [2, 3]


def test_a_wrong_keyword_of_any_op_is_an_error(tmp_path: Path) -> None:
    calls = [call for op, plan in PLANS.items() for call in calls_of(op, plan)]
    lines = ["from typing import Any", "import baracuda.ops as ops", "import baracuda.generated as generated", "a: Any"]
    said = checked(tmp_path, "\n".join([*lines, *calls]))
    for number, call in enumerate(calls, len(lines) + 1):
        assert any('Unexpected keyword argument "misspelt"' in told for told in said.get(number, [])), call


def calls_of(op: str, plan: type[rt.Plan[Any]]) -> list[str]:
    """A call of everything that an op is called by, with one keyword too many."""
    arrays = "".join(f"{name}=a, " for name in plan.ARGUMENTS)
    methods = [f"generated.{plan.__name__}.{name}(a, {arrays}misspelt=a)" for name in METHODS]
    return [*methods, f"generated.{plan.DESCRIPTOR.__name__}(element=a, misspelt=a)", f"ops.{op}(a, misspelt=a)"]


@pytest.mark.parametrize("op", PLANS)
def test_a_function_is_called_as_its_stub_says(op: str) -> None:
    """By the same names, in the same order, of which the same may be left out."""
    stub, shown = STUBS[op].args, inspect.signature(getattr(baracuda.ops, op))
    assert stub.vararg is None and stub.kwarg is None and not stub.posonlyargs
    left_out = [False] * (len(stub.args) - len(stub.defaults)) + [True] * len(stub.defaults)
    wanted = [(a.arg, "POSITIONAL_OR_KEYWORD", d) for a, d in zip(stub.args, left_out, strict=True)]
    wanted += [(a.arg, "KEYWORD_ONLY", d is not None) for a, d in zip(stub.kwonlyargs, stub.kw_defaults, strict=True)]
    assert [(p.name, p.kind.name, p.default is not p.empty) for p in shown.parameters.values()] == wanted
    function = getattr(baracuda.ops, op)
    assert {name for name, _, _ in wanted} == {*function._keywords, "stream"}


def test_the_stub_has_every_function() -> None:
    assert [*STUBS] == sorted(PLANS)


@pytest.mark.parametrize("op", PLANS)
def test_documentation_says_what_each_argument_is(op: str) -> None:
    """Shape, types, strides, aliases and when it is present, on every method and function; stubs refer to these."""
    plan = PLANS[op]
    docs = {name: inspect.getdoc(getattr(plan, name)) or "" for name in METHODS}
    stub = ast.get_docstring(STUBS[op]) or ""
    assert f"`{plan.__name__}.run`" in stub and f"`{plan.DESCRIPTOR.__name__}`" in stub
    assert (inspect.getdoc(getattr(baracuda.ops, op)) or "").endswith(docs["run"])
    for where, doc in docs.items():
        entries = dict(re.findall(r"^(\w+)(?: \(\w+\))?: (.*(?:\n    .*)*)", doc, re.MULTILINE))
        assert "stream" in entries
        for argument in plan.ARGUMENTS.values():
            told = " ".join(entries[argument.name].split())
            held, strides = " or ".join(argument.dtypes), _STRIDES[argument.layout]
            shaped = rf"; [(\[].*[)\]] of {held}, {strides}"
            of_list = rf"; a list of arrays of {held} without gaps, \[cell\] in all"
            assert re.search(of_list if argument.over == "list" else shaped, told), (where, told)
            assert all(other in told.partition("may be the memory of ")[2] for other in argument.may_alias), told
            assert f"({argument.role})" in doc and argument.optional in told
    assert all(name in docs["run"] for name in ("InvalidProblem", "BufferTooSmall", "workspace_bytes"))


@pytest.mark.parametrize("op", PLANS)
def test_no_signature_has_a_hole(op: str) -> None:
    plan = PLANS[op]
    shown = [inspect.signature(getattr(plan, name)) for name in (*METHODS, "select", "explain")]
    for signature in (*shown, inspect.signature(plan.DESCRIPTOR), inspect.signature(getattr(baracuda.ops, op))):
        assert not {p.kind for p in signature.parameters.values()} & {inspect.Parameter.VAR_KEYWORD}
    fields = inspect.getdoc(plan.DESCRIPTOR) or ""
    assert all(re.search(rf"^{name}: ", fields, re.MULTILINE) for name in inspect.signature(plan.DESCRIPTOR).parameters)
