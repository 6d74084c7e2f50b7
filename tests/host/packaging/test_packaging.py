"""Invariant: all of `baracuda.*` installs and nothing else, and kernels run without the generator."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from repository import ROOT

FOLDERS = (
    *("benchmarks", "checking", "cli", "codegen", "frontends"),
    *("generated", "ops", "runtime", "specs", "templates"),
)
IGNORED = shutil.ignore_patterns("__pycache__", ".*")

BUILD = """
from setuptools import build_meta
print(getattr(build_meta, "build_" + {kind!r})({target!r}))
"""


def build(kind: str, source: Path, target: Path) -> Path:
    """Build an sdist or a wheel of the folder `source` into `target`, without pip and without a network."""
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-P", "-c", BUILD.format(kind=kind, target=str(target))],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked; built from the sdist, so that the sdist has to be complete as well."""
    scratch = tmp_path_factory.mktemp("build")
    source = scratch / "source"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=IGNORED)
    for path in ROOT.iterdir():
        if path.suffix in (".toml", ".md") or path.name == "LICENSE":
            shutil.copy(path, source)
    shutil.unpack_archive(build("sdist", source, scratch / "sdist"), scratch, filter="data")
    (unpacked,) = scratch.glob("baracuda_gen-*")
    with zipfile.ZipFile(build("wheel", unpacked, scratch / "wheel")) as archive:
        archive.extractall(scratch / "site")
    return scratch / "site"


def files_below(folder: Path) -> set[str]:
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {p.as_posix() for p in found if not any(part.startswith((".", "__pycache__")) for part in p.parts)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_wheel_holds_every_file_of_each_folder(wheel: Path, folder: str) -> None:
    assert files_below(wheel / "baracuda" / folder) == files_below(ROOT / folder)


def test_the_wheel_adds_one_name_and_shares_it(wheel: Path) -> None:
    (metadata,) = wheel.glob("*.dist-info")
    assert {path.name for path in wheel.iterdir()} == {"baracuda", metadata.name}
    # No __init__.py: other distributions may add to the namespace.
    assert {path.name for path in (wheel / "baracuda").iterdir()} == set(FOLDERS)
    assert "Apache License" in (metadata / "licenses" / "LICENSE").read_text()


def python(wheel: Path, code: str) -> str:
    """Run `code` where only the unpacked wheel and the installed dependencies can be imported."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r})\n{code}"],
        cwd=wheel.parent,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_need_neither_the_generator_nor_its_dependencies(wheel: Path) -> None:
    loaded = python(wheel, "import baracuda.runtime, baracuda.generated; print(*sys.modules)").split()
    assert "baracuda.runtime" in loaded
    assert {"jinja2", "pydantic", "ruamel.yaml", "click", "rich", "baracuda.codegen"}.isdisjoint(loaded)


def test_the_folders_do_not_import_by_their_own_names(wheel: Path) -> None:
    spec = "__import__('importlib.util').util.find_spec"
    assert python(wheel, f"print([n for n in {FOLDERS!r} if {spec}(n)])").strip() == "[]"


def imported(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text()))
    names = [
        name
        for node in tree
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    ]
    return {name.split(".")[0] for name in names} | {".".join(name.split(".")[:2]) for name in names}


# What each folder must not import: itself by a second name, and what builds on it.
FORBIDDEN = {
    "runtime": {f"baracuda.{folder}" for folder in FOLDERS},
    "generated": {f"baracuda.{folder}" for folder in FOLDERS} - {"baracuda.runtime"},
    "checking": {"baracuda.checking"},
    "cli": {"baracuda.cli"},
    "codegen": {"baracuda.codegen"},
    "benchmarks": {"baracuda.benchmarks"},
    "ops": {f"baracuda.{folder}" for folder in FOLDERS} - {"baracuda.generated", "baracuda.runtime"},
    "frontends": {f"baracuda.{folder}" for folder in FOLDERS}
    - {"baracuda.generated", "baracuda.ops", "baracuda.runtime"},
}


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_go_one_way(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert modules
    wrong = {str(p): bad for p in modules if (bad := imported(p) & (FORBIDDEN[folder] | set(FOLDERS)))}
    assert not wrong
