"""Generating is exact: the same bytes every time, nothing written without need, nothing of anybody else's touched."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import time
import tokenize
from pathlib import Path

import pytest
from repository import LONG, ROOT, SAMPLES

from baracuda.codegen.emit.generate import MARK, compare, generate, lower_all, texts, write
from baracuda.codegen.spec.load import load_folder, load_spec
from baracuda.runtime import SpecError

SPECS, GENERATED = ROOT / "specs", ROOT / "generated"


def of(folder: Path) -> dict[str, str]:
    return texts(lower_all(load_folder(folder).values()))


def tree(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file below `folder` with its content, its time and its inode."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(folder).as_posix(): (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino) for p in files}


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A copy of the sample specs, to change."""
    return Path(shutil.copytree(SAMPLES, tmp_path / "specs"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_the_repository_holds_what_its_specs_generate() -> None:
    """`generated/` is what generating now gives: nobody edited it, and nobody forgot to."""
    changes = compare(of(SPECS), GENERATED)
    assert (changes.written, changes.removed) == ((), ())


def test_generating_twice_writes_nothing(samples: Path, out: Path) -> None:
    """The second time every file keeps its bytes, its time and its inode."""
    first = generate(samples, out)
    assert first.written == tuple(sorted(of(samples))) and first.any
    before = tree(out)
    again = generate(samples, out)
    assert (again.written, again.removed, again.any) == ((), (), False)
    assert again.unchanged == first.written
    assert tree(out) == before


def test_the_bytes_depend_on_the_specs_alone(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the output folder nor the working directory, the order of files or their names' spelling shows."""
    generate(samples, tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    generate(Path("specs"), Path("deep") / "er" / "two")
    monkeypatch.chdir(samples)
    generate(Path("."), tmp_path / "three")
    found = [{k: v[0] for k, v in tree(tmp_path / name).items()} for name in ("one", "deep/er/two", "three")]
    assert found[0] == found[1] == found[2]
    assert not any(str(tmp_path).encode() in text for text in found[0].values())
    assert all(
        text.endswith(b"\n") and b"\r" not in text and not re.search(rb"[ \t]\n", text) for text in found[0].values()
    )


def test_only_what_changed_is_written(samples: Path, out: Path) -> None:
    """A new word in one op's text touches that op's two files, and the functions' documentation."""
    generate(samples, out)
    before = tree(out)
    spec = samples / "scale.yaml"
    spec.write_text(spec.read_text().replace("Rows divided by", "Rows, each divided by"))
    touched = ("_functions.pyi", "sample/scale.cu", "sample/scale.py")
    assert generate(samples, out, dry_run=True).written == touched
    assert tree(out) == before
    assert generate(samples, out).written == touched
    after = tree(out)
    assert {k for k in after if after[k] != before[k]} == set(touched)


def test_orphans_go_and_a_users_files_stay(samples: Path, out: Path) -> None:
    """Generated files of a spec that is gone are removed, with their folders; what anybody else put there is kept."""
    text = (samples / "scale.yaml").read_text().replace("op: scale", "op: other")
    text = text.replace("category: sample", "category: gone").replace("plan: ScalePlan", "plan: OtherPlan")
    (samples / "other.yaml").write_text(text)
    generate(samples, out)
    own = {
        "notes.txt": f"{MARK} wrote the files beside this\n",
        "tool.py": f'"""Looks for files that say {MARK} from x. Do not edit."""\nMARK = "{MARK}"\n',
        "sample/mine.cu": "// mine\n",
        "sample/mine.py": "",
        "sample/latin.py": "# caf\udce9\n",
        "theirs/deep/mine.py": "x = 1\n",
    }
    for name, text in own.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(text.encode(errors="surrogateescape"))
    (samples / "other.yaml").unlink()
    assert generate(samples, out).removed == ("gone/__init__.py", "gone/other.cu", "gone/other.py")
    assert not (out / "gone").exists()
    for name, text in own.items():
        assert (out / name).read_bytes() == text.encode(errors="surrogateescape"), name


def test_a_folder_with_a_users_file_outlives_its_op(samples: Path, out: Path) -> None:
    """Removing orphans never removes a folder that holds something else, nor caches outside of emptied folders."""
    generate(samples, out)
    (out / "sample" / "mine.txt").write_text("mine")
    (out / "sample" / "__pycache__").mkdir()
    (out / "sample" / "__pycache__" / "scale.cpython-311.pyc").write_bytes(b"x")
    assert len(write({}, out).removed) == 9
    assert sorted(p.name for p in out.rglob("*") if p.is_file()) == ["mine.txt", "scale.cpython-311.pyc"]


@pytest.mark.parametrize(
    "text", [b"mine = 1\n", b"\xff\xfe\x00", b"'''@generated by hand'''\n", f"# like {MARK}\n".encode()]
)
def test_a_users_file_is_never_overwritten(samples: Path, out: Path, text: bytes) -> None:
    """Where a generated file would go lies somebody's own: that is said, and nothing at all is written."""
    (out / "sample").mkdir(parents=True)
    mine = out / "sample" / "scale.py"
    mine.write_bytes(text)
    for dry in (True, False):
        with pytest.raises(SpecError) as caught:
            generate(samples, out, dry_run=dry)
        assert str(caught.value) == f"{mine}: was not generated, so it is not overwritten; move it away"
    assert list(tree(out)) == ["sample/scale.py"]
    assert mine.read_bytes() == text


def test_a_folder_or_a_dangling_link_in_the_way_is_refused(samples: Path, out: Path) -> None:
    """Only a generated file is replaced, whatever else has its name."""
    way = out / "sample" / "scale.cu"
    way.mkdir(parents=True)
    with pytest.raises(SpecError, match="was not generated"):
        generate(samples, out)
    way.rmdir()
    way.symlink_to(out / "nowhere")
    with pytest.raises(SpecError, match="was not generated"):
        generate(samples, out)
    assert way.is_symlink()


def test_two_writers_of_one_file_are_refused(samples: Path) -> None:
    """One path, one op: a second text for it is an error and not the last one's luck."""
    ops = lower_all(load_folder(samples).values())
    with pytest.raises(SpecError, match=r"sample/scale\.cu: written by two specs; rename one of the ops"):
        texts([*ops, ops[0]])


def test_two_specs_of_one_op_or_one_plan_are_refused(samples: Path) -> None:
    """The same op twice in a folder names both files."""
    twin = samples / "twin" / "scale.yaml"
    twin.parent.mkdir()
    twin.write_text((samples / "scale.yaml").read_text())
    with pytest.raises(SpecError) as caught:
        load_folder(samples)
    assert re.fullmatch(
        r".*twin/scale\.yaml:1: op 'scale' is already in .*specs/scale\.yaml; rename one", str(caught.value)
    )
    twin.write_text(twin.read_text().replace("op: scale", "op: twin"))
    with pytest.raises(
        SpecError, match=r"twin/scale\.yaml:5: plan 'ScalePlan' is already in .*specs/scale\.yaml; rename one"
    ):
        load_folder(samples)


def test_a_plan_of_one_architecture_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = (LONG / "causal_conv1d_update.yaml").read_text()
    (path := tmp_path / "causal_conv1d_update.yaml").write_text(
        f"{text}pinned: {{CausalConv1dUpdatePlan: {{arch: sm_80, doc: the same}}}}\n"
    )
    with pytest.raises(SpecError, match="'CausalConv1dUpdatePlan' is the op's own plan"):
        load_spec(path)


def test_a_failing_write_leaves_old_or_new_and_no_litter(
    samples: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the disk gives up, every file is whole: as it was, or as it should be; a second run repairs the rest."""
    generate(samples, out)
    before = tree(out)
    for name in ("scale.yaml", "scale_backward.yaml"):
        spec = samples / name
        spec.write_text(spec.read_text().replace("(2000)", "(2001)"))
    new, real, calls = of(samples), os.replace, 0

    def fails_the_second_time(source: str, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "no space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails_the_second_time)
    with pytest.raises(OSError, match="no space left"):
        generate(samples, out)
    monkeypatch.undo()
    after = tree(out)
    assert after.keys() == before.keys()
    changed = [k for k in after if after[k][0] != before[k][0]]
    assert len(changed) == 1
    assert all(after[k][0] == new[k].encode() for k in changed)
    assert len(generate(samples, out).written) == 1
    assert {k: v[0].decode() for k, v in tree(out).items()} == new


def test_nothing_is_seen_half_written(samples: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the moment a file gets its name, all of its bytes are on disk."""
    files, real, seen = of(samples), os.replace, set[str]()

    def complete(source: str, target: Path) -> None:
        name = Path(target).relative_to(out).as_posix()
        assert Path(source).read_text(encoding="utf-8") == files[name]
        seen.add(name)
        real(source, target)

    monkeypatch.setattr(os, "replace", complete)
    write(files, out)
    assert seen == set(files)


TWO_PACKAGES = """
import importlib, sys
import numpy as np
x = np.ones((3, 4), np.float32)
for name in sys.argv[1:]:
    plans = importlib.import_module(name)
    plan = plans.ScalePlan.select(plans.ScaleDescriptor(shape=(3, 4), axis=1, has_gain=False, element="f32"))
    y, total = np.empty_like(x), np.empty((3, 1), np.float32)
    plan.run(x=x, y=y, total=total)
    print(plan.sku.category, total[0, 0])
"""


@pytest.mark.parametrize("order", [("one", "other"), ("other", "one")])
def test_packages_with_an_op_of_one_name_have_kernels_of_their_own(tmp_path: Path, order: tuple[str, str]) -> None:
    """Whichever is imported first."""
    text = (SAMPLES / "scale.yaml").read_text(encoding="utf-8")
    for name, total in (("one", "sum(x, cols)"), ("other", "max(x, cols)")):
        folder = tmp_path / f"specs_{name}"
        folder.mkdir()
        changed = text.replace("category: sample", f"category: {name}").replace("sum(x, cols)", total)
        (folder / "scale.yaml").write_text(changed, encoding="utf-8")
        generate(folder, tmp_path / name)
    paths = os.pathsep.join([str(ROOT / ".imports"), str(tmp_path)])
    command = [sys.executable, "-c", TWO_PACKAGES, *order]
    said = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    totals = {"one": "4.0", "other": "1.0"}
    assert said.stdout.splitlines() == [f"{name} {totals[name]}" for name in order]


def test_one_bad_spec_writes_nothing(samples: Path, out: Path) -> None:
    """A folder is generated whole or not at all."""
    generate(samples, out)
    before = tree(out)
    (samples / "scale.yaml").write_text((samples / "scale.yaml").read_text().replace("x / total", "x / totl"))
    (samples / "scale_backward.yaml").write_text(
        (samples / "scale_backward.yaml").read_text().replace("(2000)", "(2001)")
    )
    with pytest.raises(SpecError, match="totl"):
        generate(samples, out)
    assert tree(out) == before


def test_a_folder_that_is_not_there_is_no_empty_project(tmp_path: Path, samples: Path, out: Path) -> None:
    """A misspelt folder must not read as "all specs are gone"."""
    generate(samples, out)
    before = tree(out)
    with pytest.raises(SpecError, match="no such folder of specs"):
        generate(tmp_path / "spces", out)
    assert tree(out) == before


def test_rms_norm_generates_in_under_a_second(tmp_path: Path) -> None:
    """Both directions, all element types, held and wide rows: text is cheap, so that it is generated often."""
    specs = tmp_path / "specs"
    (specs / "normalization").mkdir(parents=True)
    shutil.copy(SPECS / "normalization" / "rms_norm.yaml", specs / "normalization")
    generate(specs, tmp_path / "warm")
    started = time.process_time()
    changes = generate(specs, tmp_path / "out")
    assert time.process_time() - started < 1
    assert len(changes.written) == 9
    text = (tmp_path / "out" / "normalization" / "rms_norm_backward.cu").read_text()
    assert text.count("/kernel.cuh>") == 1 and text.partition("// @lines")[0].endswith("/kernel.cuh>\n")


def test_no_op_is_known_to_the_generator() -> None:
    """An op is one spec: its name, its plan's and its tensors' peculiar ones occur in no module and in no template."""
    loaded = load_folder(SPECS)
    names = {n for one in loaded.values() for n in (one.spec.op, one.spec.plan)}
    words = re.compile(rf"\b({'|'.join(sorted(names))})\b")
    paths = [*(ROOT / "codegen").rglob("*.py"), *(ROOT / "templates").rglob("*.jinja")]
    found = {p.relative_to(ROOT).as_posix(): words.findall(_code(p)) for p in sorted(paths)}
    assert {name: of for name, of in found.items() if of and not name.startswith(KNOW_AN_OP)} == {}


# Definitions of ops that no program gives, torch's own, and the commands that show the library off on an op of it.
KNOW_AN_OP = (
    "checking/oracles/references/",
    "checking/compare/torch_",
    "cli/commands/demo.py",
    *(f"cli/demo/{name}.py" for name in ("activations", "demo", "verdict", "rms_norm")),
)


def _code(path: Path) -> str:
    """A template as it is; a module without its comments."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return " ".join(token.string for token in tokens if token.type != tokenize.COMMENT)
