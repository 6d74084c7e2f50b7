"""Generated files stay small: in all, on average per op, and in columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from baracuda.cli.tools import stats


def test_generated_files_keep_their_limits() -> None:
    sizes, ops = stats.sizes(), len(stats.ops())
    assert ops >= 20
    for name, most in stats.PER_OP.items():
        assert getattr(sizes["generated"], name) / ops <= most, name
    assert sizes["in all"].columns <= stats.COLUMNS


def test_sizes_add_up() -> None:
    """Every generated file is counted, and everything that generated files rest on."""
    found = stats.sizes()
    kinds = [size for name, size in found.items() if name.startswith("generated *")]
    assert found["generated"].files - sum(size.files for size in kinds) == 1  # py.typed
    whole = [found[name].bytes for name in ("generated", "templates", "device headers", "runtime")]
    assert found["in all"].bytes == sum(whole) and min(whole) > 10_000


def test_size_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\nthree\n")
    (tmp_path / "b").write_text("é")
    assert stats.Size.of([tmp_path / "a", tmp_path / "b"]) == stats.Size(2, 3, 12, 5)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_is_printed(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "import_times", lambda modules: dict.fromkeys(modules, 1.5))
    output = CliRunner().invoke(stats.main, options).output
    if options:
        shown = json.loads(output)
        assert shown["import_ms"] == {"one plan": 1.5, "all plans": 1.5} and shown["ops"].keys() == stats.ops().keys()
    else:
        assert "device headers" in output and "flash_sdpa" in output and "import of one plan: 1.5 ms" in output


def test_imports_are_timed() -> None:
    assert stats.import_times({"nothing": "pass"})["nothing"] < 100
