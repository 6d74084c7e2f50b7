"""Reading, generating, listing and checking specs runs nothing of theirs, wherever a spec holds text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

MARKER = "EXECUTED"
TOUCH = f"__import__('pathlib').Path('{MARKER}').touch()"
PAYLOADS = (
    f'x""" + str({TOUCH}) + """y',
    f"x''' + str({TOUCH}) + '''y",
    f'x"; {TOUCH}; "y',
    f"{{{{ cycler.__init__.__globals__.__builtins__.eval({TOUCH!r}) }}}}",
    f"{{% set x = ().__class__.__base__.__subclasses__() %}}{TOUCH}",
    f"0 if {TOUCH} else 1",
    f"(n,)  # {TOUCH}",
    TOUCH,
    f"x\\n{TOUCH}\\n",
    f"x\n{TOUCH}\n",
)

# Runs in a process of its own: texts of a spec are replaced by payloads, and all is done to the spec that does not
# execute its kernels. Whatever is executed meanwhile comes from installed files, and is seen if it does not.
PROGRAM = r'''
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

root, payloads = Path(sys.argv[1]), json.loads(sys.argv[2])
seen, watching = [], [False]
installed = tuple(str(Path(p).resolve()) + os.sep for p in (root, sys.prefix, sys.base_prefix))
ours = tuple(str(root / part) + os.sep for part in ("checking", "cli", "codegen", "runtime", "ops", ".imports"))

def is_installed(name):
    return name.startswith("<frozen ") or str(Path(name).resolve()).startswith(installed)

def hook(event, arguments):
    if not watching[0]:
        return
    if event == "exec":
        caller, code = sys._getframe(1).f_code.co_filename, arguments[0]
        by_us = str(Path(caller)).startswith(ours)
        if by_us or not (is_installed(code.co_filename) or (code.co_filename.startswith("<") and is_installed(caller))):
            seen.append(f"exec of {code.co_filename} by {caller}")
    elif event == "import" and arguments[1] and not is_installed(arguments[1]):
        seen.append(f"import of {arguments[1]}")
    elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn"):
        seen.append(event)

sys.addaudithook(hook)

import baracuda.codegen.emit.generate as generation
from ruamel.yaml import YAML
from baracuda.cli.kernels.check import check
from baracuda.cli.make.generate import generate
from baracuda.checking.listing.variants import variants_of
from baracuda.codegen.project import Project
from baracuda.checking.problems.cases import refuse_bad_cases
from baracuda.checking.problems.subject import Subject
from baracuda.runtime import BaracudaError

yaml = YAML(typ="safe", pure=True)
generation.environments = cache(generation.environments)  # templates are compiled once

def places(node, at=()):
    """Every text of a spec, and the first key of every mapping."""
    if isinstance(node, dict):
        for turn, (key, value) in enumerate(node.items()):
            if turn == 0:
                yield (*at, key), True
            yield from places(value, (*at, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from places(value, (*at, i))
    elif isinstance(node, str):
        yield at, False

def changed(node, at, payload, key):
    if not at:
        return payload
    first, rest = at[0], at[1:]
    if isinstance(node, list):
        return [changed(v, rest, payload, key) if i == first else v for i, v in enumerate(node)]
    if key and not rest:
        return {payload if k == first else k: v for k, v in node.items()}
    return {k: changed(v, rest, payload, key) if k == first else v for k, v in node.items()}

def tried(spec, folder):
    """Everything that is done to specs but executing their kernels."""
    (folder / "op.yaml").write_text(json.dumps(spec))
    try:
        project = Project.read(folder)
        refuse_bad_cases(Subject(one, project.loaded, "evil") for one in project.loaded.values())
        return bool(variants_of(project, package="evil", archs=["sm_80"]))
    except BaracudaError as error:
        assert len(str(error)) < 20000
        return False

count = accepted = 0
folder = Path("specs"); folder.mkdir()
for path in sys.argv[3:]:
    good = yaml.load(Path(path).read_text())
    good["tests"] = {k: v for k, v in good["tests"].items() if k != "draw"} | {"cases": good["tests"]["cases"][:1]}
    good.pop("bench", None)
    watching[0] = True
    assert tried(good, folder), path
    for turn, (at, key) in enumerate(places(good)):
        count += 1
        accepted += tried(changed(good, at, payloads[turn % len(payloads)], key), folder)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        (folder / "op.yaml").write_text(json.dumps({**good, "formula": payloads[-3]}))
        out = Path("evil")
        generate(folder, out)
        check(folder, out, package="evil", archs=())
    watching[0] = False
assert "evil" not in sys.modules
print(json.dumps({"tried": count, "accepted": accepted, "seen": sorted(set(seen))}))
'''


@pytest.mark.parametrize(
    "spec", ["tests/specs/scale.yaml", "specs/shape_layout/repeat.yaml", "specs/convolution/causal_conv1d_update.yaml"]
)
def test_no_text_of_a_spec_is_executed(spec: str, tmp_path: Path) -> None:
    """A payload in each text and key, one at a time: no code of theirs runs, and no file appears."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT), json.dumps(PAYLOADS), str(ROOT / spec)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["seen"] == []
    assert found["tried"] > 30 and found["accepted"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"specs", "evil"}
