"""A pack is read only as it was written: whatever was changed since is refused in a line."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from baracuda.runtime.errors import PackError
from baracuda.runtime.packs.layout import (
    CODE,
    FORMAT,
    KERNELS,
    MANIFEST,
    code_name,
    digest_of,
    lines_name,
    manifest_text,
)
from baracuda.runtime.packs.pack import Pack

CODES = {"a" * 64: (b"\x7fELF code", "sm_90"), "b" * 64: (b".version 8.8\0", "compute_90")}
LINES = lines_name("a")
FACTS = {"format": FORMAT, "architectures": ["compute_90", "sm_90"], "headers": {"baracuda/a.cuh": "0"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / CODE).mkdir()
    (tmp_path / KERNELS).mkdir()
    for key, (code, arch) in CODES.items():
        facts = {"key": key, "code": digest_of(code), "bytes": len(code), "arch": arch, "kernel": f"k_{arch}"}
        (tmp_path / lines_name(key)).write_text(json.dumps(facts) + "\n")
        (tmp_path / code_name(digest_of(code), arch)).write_bytes(zlib.compress(code))
    facts = {**FACTS, KERNELS: {name: digest_of((tmp_path / name).read_bytes()) for name in map(lines_name, CODES)}}
    (tmp_path / MANIFEST).write_text(manifest_text(facts))
    return tmp_path


def test_a_kernel_is_found_by_its_key(folder: Path) -> None:
    pack = Pack(folder)
    for key, (code, arch) in CODES.items():
        kernel = pack.get(key)
        assert kernel is not None and (kernel.code, kernel.facts["arch"]) == (code, arch)
    assert pack.get("c" * 64) is None and pack.get("") is None
    assert (len(pack), list(pack), pack.archs) == (2, list(CODES), {"sm_90", "compute_90"})
    assert [facts["arch"] for facts in pack.named("k_sm_90")] == ["sm_90"]


def changed(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (MANIFEST, changed('"0"', '"1"'), "manifest.json was changed after it was packed"),
        (MANIFEST, changed('"sm_90"', '"sm_80"'), "manifest.json was changed after it was packed"),
        (MANIFEST, changed(f'"format": {FORMAT}', '"format": 99'), f"is of format 99, this version reads {FORMAT}"),
        (MANIFEST, changed('"digest"', '"digested"'), "manifest.json cannot be read"),
        (MANIFEST, lambda text: text[: len(text) // 2], "manifest.json cannot be read"),
        (MANIFEST, lambda text: "", "manifest.json cannot be read"),
        (MANIFEST, lambda text: "[]", "manifest.json cannot be read"),
        (MANIFEST, lambda text: "[" * 100_000, "manifest.json cannot be read"),
        (LINES, changed("k_sm_90", "k_sm_80"), f"{LINES} is not what manifest.json says"),
        (LINES, lambda text: "", f"{LINES} is not what manifest.json says"),
    ],
)
def test_what_was_changed_is_refused(folder: Path, file: str, change: Callable[[str], str], message: str) -> None:
    """Each change to a text is an error that names the pack, what is wrong and what to do."""
    (folder / file).write_text(change((folder / file).read_text()))
    with pytest.raises(PackError, match=re.escape(f"pack {folder}: {message}") + "[^\n]*; .*again"):
        Pack(folder).get("a" * 64)


@pytest.mark.parametrize("file", [MANIFEST, LINES, code_name(digest_of(b"\x7fELF code"), "sm_90")])
def test_what_is_missing_is_refused(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(PackError, match=re.escape(f"pack {folder}: {file} cannot be read (No such file")):
        Pack(folder).get("a" * 64)


def test_each_byte_of_code_counts(folder: Path) -> None:
    """A flipped bit, a byte too many or too few are refused; other kernels of the pack stay."""
    code = CODES["a" * 64][0]
    file = folder / code_name(digest_of(code), "sm_90")
    others = [code[:-1], code + b"\0", code[:4] + bytes([code[4] ^ 1]) + code[5:], b"", code + bytes(1 << 24)]
    stored = file.read_bytes()
    damaged = [stored[:-1], stored + b"\0", stored[:8], b"", code, b"\0" * len(stored)]
    for content in (*map(zlib.compress, others), *damaged):
        file.write_bytes(content)
        with pytest.raises(PackError, match=r"cubin\.zlib is not what kernels/a.jsonl says"):
            Pack(folder).get("a" * 64)
        assert Pack(folder).get("b" * 64)
