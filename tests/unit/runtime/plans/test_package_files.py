"""Files of packages: read from folders and from archives."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from baracuda.runtime.plans.package_files import text_of


@pytest.mark.parametrize("kind", ["folder", "archive", "folder without a module"])
def test_a_file_is_read_wherever_its_package_is(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"held_{kind.replace(' ', '_')}"
    files = {f"{name}/kernel.cu": "// µ\n"} | ({} if kind.endswith("module") else {f"{name}/__init__.py": ""})
    if kind == "archive":
        with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
    for path, text in files.items() if kind != "archive" else ():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "packages.zip" if kind == "archive" else tmp_path)
    assert text_of(name, "kernel.cu") == "// µ\n"
