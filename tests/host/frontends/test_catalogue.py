"""Invariant: the example catalogue's specs, on at most 25 lines each, give what torch's formulas do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from repository import ROOT

CATALOGUE = ROOT / "examples" / "catalogue"
COMMAND = "from baracuda.cli.main import main; main()"


def test_ops_written_from_the_docs_are_those_of_torch(tmp_path: Path) -> None:
    """Three of them; all with `make test-all`."""
    folder = tmp_path / "catalogue"
    shutil.copytree(CATALOGUE, folder, ignore=shutil.ignore_patterns("catalogue", "__pycache__", ".*"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    generate, test = ("-c", COMMAND, "generate", "--out", "catalogue"), ("-m", "pytest", "-p", "no:cacheprovider")
    for command in (generate, test):
        done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_spec_has_more_than_25_lines() -> None:
    """Without the one that names the schema for editors."""
    lines = {path.stem: path.read_text().splitlines()[1:] for path in sorted((CATALOGUE / "specs").glob("*.yaml"))}
    assert len(lines) >= 30
    assert {op: len(of) for op, of in lines.items() if len(of) > 25} == {}
    assert all(len(line) <= 120 for of in lines.values() for line in of)
