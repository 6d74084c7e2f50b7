"""Invariant: what the documentation shows works as shown: snippets run, specs validate, links and commands exist."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import refusals
from jsonschema import Draft202012Validator
from repository import ROOT, few

from baracuda.checking.listing.variants import variants_of
from baracuda.checking.variables import SAMPLE
from baracuda.checking.verify import run as verify
from baracuda.cli.kernels.audit_report import Audit
from baracuda.cli.main import main
from baracuda.codegen.emit.generate import generate, lower_all
from baracuda.codegen.program.ops import CASTS, OPS, QUERIES, REDUCTIONS
from baracuda.codegen.project import PACKAGE, Project, kernels_of
from baracuda.codegen.spec.family import families
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.schema import schema_text
from baracuda.codegen.spec.yaml_source import read_yaml
from baracuda.runtime import KernelSku

MODELS = [family.model for family in families().values()]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
README, INDEX, LANGUAGE = ROOT / "README.md", ROOT / "docs" / "README.md", ROOT / "docs" / "spec-language.md"
SUPPORT, COOKBOOK = ROOT / "docs" / "support.md", ROOT / "docs" / "cookbook.md"
_FENCE = re.compile(r"^```([a-z]*) ?([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"(?:BARACUDA|XDG)(?:_[A-Z]+)+")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the word behind it ("gpu", "project", ...) and where it begins."""

    page: Path
    line: int
    language: str
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"


def blocks(language: str, *words: str) -> list[Block]:
    """The blocks of a language, of all pages, that carry one of `words`."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match[1] == language and match[2] in words:
                found.append(Block(page, line, match[1], match[2], match[3]))
    assert found, f"no {language} block is marked {words}"
    return found


def run(code: str, folder: Path) -> None:
    """Run `code` as a script would run in `folder`."""
    paths = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def specs_of(page: Path, folder: Path) -> Path:
    """Write the complete specs that a page shows, and return the folder."""
    path = folder / "none"
    for block in [block for block in blocks("yaml", "") if block.page == page]:
        if name := re.match(r"op: (\w+)\n", block.text):
            path = folder / f"{name[1]}.yaml"
            path.write_text(block.text, encoding="utf-8")
        elif block.text.startswith("backward:\n  program:") and path.is_file():
            path.write_text(f"{path.read_text(encoding='utf-8')}\n{block.text}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("block", blocks("python", ""), ids=str)
def test_snippets_run_on_the_host_device(block: Block, tmp_path: Path) -> None:
    """A snippet needs nothing but what it imports, and its assertions hold."""
    run(block.text, tmp_path)


@pytest.mark.parametrize("block", blocks("python", "project"), ids=str)
def test_snippets_of_projects_run_on_what_their_specs_generate(block: Block, tmp_path: Path) -> None:
    """The specs beside a page, or those it shows, generate the package that its snippet imports."""
    specs = block.page.parent / "specs"
    if not specs.is_dir():
        specs = tmp_path / "specs"
        specs.mkdir()
        specs_of(block.page, specs)
    imported = re.findall(r"^(?:from|import) (\w+)\b(?!\.)", block.text, re.MULTILINE)
    (package,) = {*imported} - {"baracuda", "numpy"} - sys.stdlib_module_names
    generate(specs, tmp_path / package)
    run(block.text, tmp_path)


@pytest.mark.parametrize("block", few([b for b in blocks("yaml", "") if b.page == COOKBOOK], 2), ids=str)
def test_recipes_pass_their_tests(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec of the cookbook, taken alone, is one whose kernels compute what it says."""
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "recipe.yaml").write_text(block.text, encoding="utf-8")
    package = f"recipe_{block.line}"
    generate(specs, tmp_path / package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv(SAMPLE, "0")
    assert verify(specs, package, extra=["-k", "accuracy and (f32 or c64)"]) == 0


@pytest.mark.frontends
@pytest.mark.parametrize("block", blocks("python", "torch", "jax"), ids=str)
def test_snippets_for_a_frontend_run_on_the_host_device(block: Block, tmp_path: Path) -> None:
    """As above, with torch or jax."""
    pytest.importorskip(block.word)
    run(block.text, tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("block", blocks("python", "gpu"), ids=str)
def test_snippets_for_gpus_run_on_one(block: Block, tmp_path: Path) -> None:
    """As above, with CuPy."""
    run(block.text, tmp_path)


@pytest.mark.gpu
def test_the_readme_snippet_runs_with_cupy_as_well(tmp_path: Path) -> None:
    """As its first line says, nothing else changes."""
    (text,) = (b.text for b in blocks("python", "") if b.page == README)
    assert "import numpy as xp" in text
    run(text.replace("import numpy as xp", "import cupy as xp"), tmp_path)


def test_snippets_for_gpus_parse() -> None:
    """Where there is no GPU, at least they are Python and import what exists."""
    for block in blocks("python", "gpu"):
        for node in ast.walk(ast.parse(block.text, str(block))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("baracuda"):
                exec(ast.unparse(node), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_complete_specs_lower(page: Path, tmp_path: Path) -> None:
    """Every block that begins with `op:` is a spec that the row family can schedule."""
    folder = specs_of(page, tmp_path)
    if any(folder.iterdir()):
        assert lower_all(load_folder(folder).values())


def test_the_kernels_of_the_walkthrough_are_as_its_specs_say(tmp_path: Path) -> None:
    """`check`, of those that want the most registers, passes: rows of 16-bit numbers that a block can barely hold."""
    project = Project.read(specs_of(ROOT / "docs" / "adding-an-op.md", tmp_path))
    every = [v for v in variants_of(project, archs=["sm_90"], package="mine") if v.row.sku.element == "bf16"]
    audit = Audit.of([v for v in every if v.row.sku.tile.lanes == 1024], project.ops)
    assert len(audit.audited) >= 16 and not audit.failed
    assert not audit.violations, "\n".join(map(str, audit.violations))


def fragments() -> list[Block]:
    return [block for block in blocks("yaml", "") if not block.text.startswith("op: ")]


@pytest.mark.parametrize("block", fragments(), ids=str)
def test_parts_of_specs_are_valid_and_say_what_their_file_says(block: Block, tmp_path: Path) -> None:
    """A part has only keys of a spec with values of their types; one that names a file agrees with it."""
    path = tmp_path / "part.yaml"
    path.write_text(block.text, encoding="utf-8")
    data = read_yaml(path).data
    definitions = json.loads(schema_text())["$defs"]
    for key, value in data.items():
        known = [definitions[model.__name__]["properties"] for model in MODELS]
        schemas = [properties[key] for properties in known if key in properties]
        assert any(Draft202012Validator({**schema, "$defs": definitions}).is_valid(value) for schema in schemas), key
    if named := re.match(r"# (\S+\.yaml)", block.text):
        assert is_part(data, read_yaml(ROOT / named[1]).data)


def is_part(part: Any, whole: Any) -> bool:
    """Whether `whole` says all that `part` does, apart from line ends."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_part(part[key], whole[key]) for key in part)
    return part == whole or (isinstance(part, str) and isinstance(whole, str) and part.strip() == whole.strip())


def excerpts() -> list[Block]:
    return [*blocks("cpp", ""), *blocks("jinja", ""), *blocks("python", "excerpt")]


def _bare(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize("block", excerpts(), ids=str)
def test_excerpts_are_in_their_files(block: Block) -> None:
    """The first line names the file; the others are lines of it, in its order, whose indentation does not count.

    A line `...` stands for what is left out.
    """
    named, _, shown = block.text.partition("\n")
    text, at = _bare((ROOT / named.strip("/#{} ")).read_text(encoding="utf-8")) + "\n", 0
    for part in _bare(shown).split("\n...\n"):
        found = text.find(f"\n{part}\n", at)
        assert found >= 0, part
        at = found + len(part) + 1


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_and_kernels_that_are_named_exist(page: Path) -> None:
    """What a page quotes as a path of the repository is one, or of a spec that the page shows; a SKU is well formed."""
    text = page.read_text(encoding="utf-8")
    own = re.findall(r"^op: (\w+)$", text, re.MULTILINE)
    for path in re.findall(r"`([a-z_]+/[a-z0-9_.*/-]+\.[a-z]+)`", _FENCE.sub("", text)):
        if (ROOT / path.partition("/")[0]).is_dir() and Path(path).stem not in own:
            assert list(ROOT.glob(path)), path
    for sku in re.findall(r"\w+/\w+/(?:forward|backward)/[^\s`]+", text):
        assert str(KernelSku.parse(sku)) == sku


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link is a file, and its anchor a heading there."""
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {h.lower().replace(" ", "-").replace("`", "") for h in headings}, target


def commands() -> Iterator[tuple[str, str]]:
    """Each command line of the pages: lines of `sh` blocks, and what tables and sentences quote."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        quoted = re.findall(r"`((?:baracuda-gen|make)\b[^`]*)`", _FENCE.sub("", text))
        shown = [line for _, _, body in _FENCE.findall(text) for line in body.splitlines()]
        for line in (*quoted, *shown):
            if line.startswith(("baracuda-gen ", "make ")):
                yield page.name, line.partition("#")[0].strip()


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_commands_exist_with_the_options_shown(page: str, line: str) -> None:
    """`baracuda-gen` has the command and the command its options; `make` has the target."""
    program, *words = shlex.split(re.sub(r"[][]", " ", line))
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert next(w for w in words if "=" not in w) in targets
        return
    command = main.get_command(click.Context(main), words[0])
    assert command is not None, words[0]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    before = words[: words.index("--")] if "--" in words else words
    assert {word for word in before if word.startswith("--")} <= known


def section(page: Path, heading: str) -> str:
    """What stands below a heading of the second level."""
    _, found, rest = page.read_text(encoding="utf-8").partition(f"## {heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def test_the_readme_is_short() -> None:
    """A newcomer reads it in one go: 700 words beside its code."""
    assert len(_FENCE.sub("", README.read_text(encoding="utf-8")).split()) <= 700


def test_every_page_is_in_the_index() -> None:
    """docs/README.md leads to every page beside it, and the README to the index."""
    linked = set(_LINK.findall(INDEX.read_text(encoding="utf-8")))
    assert {path.name for path in ROOT.glob("docs/*.md")} - {INDEX.name} <= linked
    assert "docs/README.md" in _LINK.findall(README.read_text(encoding="utf-8"))


def test_every_command_is_in_the_index() -> None:
    """The table of commands is complete."""
    rows = re.findall(r"^\| `baracuda-gen ([\w-]+)`", section(INDEX, "Commands"), re.MULTILINE)
    assert sorted(rows) == sorted(main.commands)


def test_the_environment_variables_are_those_of_the_code() -> None:
    """A variable that the code names is in the table, and none else."""
    named = {
        node.value
        for folder in ("checking", "cli", "codegen", "generated", "runtime")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _VARIABLE.fullmatch(node.value)
    }
    device_code = [*(ROOT / "templates").rglob("*.cu.jinja"), *(ROOT / "runtime/include").rglob("*.cuh")]
    macros = {macro for path in device_code for macro in _VARIABLE.findall(path.read_text(encoding="utf-8"))}
    rows = re.findall(r"^\| (.*?) \|", section(INDEX, "Environment variables"), re.MULTILINE)
    assert {variable for row in rows for variable in _VARIABLE.findall(row)} == named - macros


ELEMENTS = {
    "integers": ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    "fp8": ("f8e4m3", "f8e5m2"),
    "complex": ("c64", "c128"),
}


def test_the_support_matrix_is_that_of_the_specs() -> None:
    """The table has every op of `specs`, its element types and the architectures that it has kernels for."""
    specs = [one.spec for one in load_folder(ROOT / "specs").values()]
    kernels = kernels_of(PACKAGE)
    backward = {s.gradient.of: s for s in specs if s.gradient}
    table = SUPPORT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| (yes|no) \| (.*?) \| (.*?) \|$", table, re.MULTILINE)
    listed = {op: tuple(cells) for names, *cells in rows for op in re.findall(r"`(\w+)`", names)}
    assert set(listed) == {s.op for s in specs if s.direction == "forward"}
    for spec in specs:
        if spec.direction == "forward":
            both, elements, archs = listed[spec.op]
            assert both == ("yes" if spec.op in backward else "no")
            forward, _, only = elements.partition("; backward ")
            assert spelled(forward) == set(spec.dtypes)
            assert spec.op not in backward or spelled(only or forward) == set(backward[spec.op].dtypes)
            own, _, only = archs.partition("; backward ")
            assert own.split(", ") == sorted({row.sku.arch for row in kernels if row.sku.op == spec.op})
            if spec.op in backward:
                of_backward = {row.sku.arch for row in kernels if row.sku.op == backward[spec.op].op}
                assert (only or own).split(", ") == sorted(of_backward)


def test_the_table_of_refusals_is_that_of_the_tests() -> None:
    """Each kind has some; `python tests/refusals.py` writes the page."""
    assert refusals.PAGE.read_text(encoding="utf-8") == refusals.renewed()
    assert {kind for kind, *_ in refusals.rows()} == set(refusals.KINDS)


def test_the_table_of_guarantees_is_that_of_the_specs() -> None:
    """Numerical contracts list, for every op and its backward, the outputs that lack each bit-level guarantee."""
    rungs = ("batch_invariant", "bit_stable_across_arch")
    table = section(ROOT / "docs" / "numerical-contracts.md", "Bit-level guarantees")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]*) \| ([^|]*) \|$", table, re.MULTILINE)
    listed = {op: cells for names, *cells in rows for op in re.findall(r"`(\w+)`", names)}
    specs = [loaded.spec for loaded in load_folder(ROOT / "specs").values()]
    assert {s.op for s in specs if s.direction == "forward"} <= set(listed)
    for spec in specs:
        cells = listed[spec.gradient.of if spec.gradient else spec.op]
        for output, promised in spec.reproducibility.items():
            assert {"deterministic", "bit_stable_on_same_hardware"} <= set(promised), (spec.op, output)
            for rung, cell in zip(rungs, cells, strict=True):
                assert (rung in promised) == (cell != "all" and f"`{output}`" not in cell), (spec.op, output, rung)


def spelled(elements: str) -> set[str]:
    """The element types that a cell of the support matrix names, alone or by their class."""
    return {element for word in elements.split(", ") for element in ELEMENTS.get(word, (word,))}


def keys_of(model: Any) -> Iterator[str]:
    """Every key of a spec and of what is in it."""
    schema = model.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        yield from part["properties"]


def every_key() -> list[str]:
    keys = {key for model in MODELS for key in keys_of(model)}
    return sorted({*keys, *REDUCTIONS, *QUERIES, *CASTS})


@pytest.mark.parametrize("name", every_key())
def test_the_reference_names_every_key(name: str) -> None:
    """A key or word of the language that the reference does not mention does not exist for its reader."""
    assert re.search(rf"\b{name}\b", LANGUAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("op", sorted(name for name, row in OPS.items() if not row.symbol))
def test_the_reference_names_every_function(op: str) -> None:
    """Likewise for functions of the program language."""
    assert re.search(rf"`[^`]*\b{op}\b", LANGUAGE.read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------------------------ files of the project


def test_versions_agree() -> None:
    """The package's version is that of the citation and has a dated section in the changelog."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [version]
    (date,) = re.findall(r"^date-released: (.*)$", citation, re.MULTILINE)
    assert f"## [{version}] - {date}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_tools_of_pre_commit_are_those_that_ci_locks() -> None:
    """A hook that runs another version of a linter than CI would disagree with it."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    locked = (ROOT / ".ci" / "locked" / "lint.txt").read_text(encoding="utf-8")
    pinned = re.findall(r"\b([\w-]+==[\w.]+)", hooks)
    assert pinned
    assert set(pinned) <= set(re.findall(r"^(\S+==\S+)", locked, re.MULTILINE))


def test_hosted_ci_runs_what_a_contributor_runs() -> None:
    """The workflow runs .ci/run for each CUDA major version that has an extra, and pins its actions by commit."""
    workflow = read_yaml(ROOT / ".github" / "workflows" / "ci.yml").data["jobs"]["run"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    majors = {f"cuda{row['cuda']}" for row in workflow["strategy"]["matrix"]["include"]}
    assert majors == {extra for extra in extras if extra.startswith("cuda")}
    assert ".ci/run" in [step.get("run") for step in workflow["steps"]]
    for used in (step["uses"] for step in workflow["steps"] if "uses" in step):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used), used
