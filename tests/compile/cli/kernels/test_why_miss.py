"""Invariant: whatever makes the key of a cached kernel is on record, and `why-miss` names what has changed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from baracuda.cli.kernels.why_miss import changes, lookup
from baracuda.cli.main import main
from baracuda.runtime.compile import cubin as cubin_module
from baracuda.runtime.compile import provenance as key_records
from baracuda.runtime.compile.cubin import compile_cubin, cubin_key, key_parts
from baracuda.runtime.compile.cubin_store import CubinStore
from baracuda.runtime.compile.provenance import MAKER, KeyRecords
from baracuda.runtime.device import Cubin, KernelSource, Resources
from baracuda.runtime.errors import CompileError

TEXT = '#include <baracuda/a.cuh>\nextern "C" __global__ void k(float* x) { *x = A; }\n'
SOURCE = KernelSource("map/k.cu", TEXT, "k", defines=("A=1", "BARACUDA_LAYOUT=PACKED"))
COMMAND = ["why-miss", "RMSNormPlan", "input_shape=2,64", "norm_axes_mask=2", "eps=1e-6", "has_gamma=false"]
COMMAND += ["element=f32", "--device"]


@pytest.fixture
def include(tmp_path: Path) -> Path:
    """A folder of one header."""
    header = tmp_path / "include" / "baracuda" / "a.cuh"
    header.parent.mkdir(parents=True)
    header.write_text("// 1\n")
    return tmp_path / "include"


@pytest.fixture
def store(tmp_path: Path, include: Path, monkeypatch: pytest.MonkeyPatch) -> CubinStore:
    """A store with an entry and a record of SOURCE for sm_90."""
    for function in (cubin_key, key_parts):
        monkeypatch.setitem(function.__kwdefaults__, "include", include)
    made = CubinStore(tmp_path / "cubin")
    put(made, SOURCE)
    return made


def put(store: CubinStore, source: KernelSource, arch: str = "sm_90") -> None:
    image = Cubin(b"image", Resources(1, 0, 0, 0, 0.0))
    store.put(cubin_key(source, arch), image, key_parts(source, arch))


def why(store: CubinStore, source: KernelSource = SOURCE, arch: str = "sm_90") -> str:
    """What is said of a miss, "hit" of a hit."""
    found = lookup(store, "packed", source, arch)
    return "hit" if found.hit else found.why


def older_nvrtc(patch: pytest.MonkeyPatch, _: Path) -> None:
    from cuda.core.utils import _program_cache

    patch.setattr(_program_cache._keys, "_nvrtc_version", lambda: (12, 1))
    patch.setattr(cubin_module, "nvrtc_version", lambda: "12.1")


def edited_header(_: pytest.MonkeyPatch, include: Path) -> None:
    (include / "baracuda" / "a.cuh").write_text("// 2\n")


def more_headers(_: pytest.MonkeyPatch, include: Path) -> None:
    (include / "baracuda" / "a.cuh").write_text('#include "b.cuh"\n')
    (include / "baracuda" / "b.cuh").write_text("")


def other_build(patch: pytest.MonkeyPatch, _: Path) -> None:
    patch.setattr(cubin_module, "_nvrtc_size", lambda: "7")


def other_format(patch: pytest.MonkeyPatch, _: Path) -> None:
    patch.setattr(cubin_module, "_SCHEMA", "2")


SURROUNDINGS: dict[str, Callable[[pytest.MonkeyPatch, Path], None]] = {
    "NVRTC {nvrtc} -> 12.1": older_nvrtc,
    "NVRTC build {build} -> 7": other_build,
    "header baracuda/a.cuh changed": edited_header,
    "header baracuda/a.cuh changed, header baracuda/b.cuh is new": more_headers,
    "entry format {schema} -> 2": other_format,
}
SOURCES = {
    "text changed": replace(SOURCE, text=TEXT + "//"),
    "file map/k.cu -> k.cu": replace(SOURCE, path="k.cu"),
    "option --fmad false -> true": replace(SOURCE, contraction=True),
    "option --ftz false -> true": replace(SOURCE, flush_subnormals=True),
    "never compiled; nearest: constant A 1 -> 2": replace(SOURCE, defines=("A=2", SOURCE.defines[1])),
    "never compiled; nearest: LAYOUT PACKED -> DENSE": replace(SOURCE, defines=("A=1", "BARACUDA_LAYOUT=DENSE")),
    "never compiled; nearest: constant B is new": replace(SOURCE, defines=(*SOURCE.defines, "B")),
    "never compiled; nearest: architecture sm_90 -> sm_90a": replace(SOURCE, arch="sm_90a"),
    "never compiled": replace(SOURCE, symbol="other"),
}


@pytest.mark.parametrize("said", SURROUNDINGS)
def test_what_changed_around_a_kernel_is_named(
    store: CubinStore, include: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """Each changes the key, and nothing else is blamed."""
    known = {"nvrtc": cubin_module.nvrtc_version(), "build": cubin_module._nvrtc_size(), "schema": cubin_module._SCHEMA}
    before, parts = cubin_key(SOURCE, "sm_90"), key_parts(SOURCE, "sm_90")
    assert why(store) == "hit"
    SURROUNDINGS[said](monkeypatch, include)
    assert cubin_key(SOURCE, "sm_90") != before and key_parts(SOURCE, "sm_90") != parts
    assert why(store) == said.format(**known)


@pytest.mark.parametrize("said", SOURCES)
def test_what_changed_in_a_kernel_is_named(store: CubinStore, said: str) -> None:
    """Each changes the key, and nothing else is blamed; another variant of the same text was never compiled."""
    source, arch = SOURCES[said], SOURCES[said].arch or "sm_90"
    assert cubin_key(source, arch) != cubin_key(SOURCE, "sm_90")
    assert why(store, source) == said


def test_the_nearest_is_the_same_variant(store: CubinStore) -> None:
    """An old text of this variant is nearer than the new text of another one."""
    edited = replace(SOURCE, text=TEXT + "//")
    put(store, replace(edited, defines=("A=2",)))
    put(store, edited, "sm_80")
    assert why(store, edited) == "text changed"


def test_many_changes_are_counted() -> None:
    old, new = {f"header {i}": "a" for i in range(6)}, {f"header {i}": "b" for i in range(6)}
    assert len(changes({**old, MAKER: "1"}, {**new, MAKER: "2"})) == 6
    assert changes({MAKER: "1"}, {MAKER: "2"}) == {MAKER: ("1", "2")}


def test_entries_without_a_record_are_told_apart(store: CubinStore) -> None:
    """A kernel that an older version may have compiled is not called never compiled; a hit needs no record."""
    record = store.records.folder / cubin_key(SOURCE, "sm_90").hex()
    record.write_bytes(b"{torn")
    assert why(store) == "hit"
    edited = replace(SOURCE, text=TEXT + "//")
    record.unlink()
    assert why(store, edited) == "no record of this kernel; 1 of 1 entries have none"


def test_what_was_lost_is_told_apart(store: CubinStore) -> None:
    """The record outlives an entry that was evicted."""
    (entry,) = (path for path in (store.folder / "entries").rglob("*") if path.is_file())
    entry.unlink()
    assert why(store) == "compiled before; the entry is gone or damaged"


def test_whoever_compiles_keeps_a_record_and_who_finds_looks_at_none(
    tmp_path: Path, include: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cubin"
    compile_cubin(SOURCE, "sm_90", folder=folder, include=include)
    (record,) = (folder / "records").iterdir()
    assert record.name == cubin_key(SOURCE, "sm_90", include=include).hex()
    assert KeyRecords(folder / "records").get(bytes.fromhex(record.name)) == key_parts(SOURCE, "sm_90", include=include)

    def refuse(*_: object) -> None:
        raise AssertionError("looked at a record")

    for name in ("put", "get", "newest_first"):
        monkeypatch.setattr(KeyRecords, name, refuse)
    monkeypatch.setattr(cubin_module, "key_parts", refuse)
    compile_cubin(SOURCE, "sm_90", folder=folder, include=include)


def test_records_are_whole_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers beside writers see all of a record or none; the oldest go."""
    records, parts = KeyRecords(tmp_path / "records"), {"kernel": "k" * 9999}

    def write(turn: int) -> None:
        KeyRecords(records.folder).put(bytes([turn % 8] * 32), parts)

    with ThreadPoolExecutor(8) as pool:
        writing = pool.map(write, range(200))
        assert all(found == parts for _ in range(50) for found in records.newest_first())
        list(writing)
    assert [*records.newest_first()] == [parts] * len(records) == [parts] * 8
    now = time.time()
    for turn in range(8):
        os.utime(records.folder / bytes([turn] * 32).hex(), (now - 60 + turn, now - 60 + turn))
    monkeypatch.setattr(key_records, "_MOST", 4)
    monkeypatch.setattr(key_records, "_KEPT", 3)
    KeyRecords(records.folder).put(bytes([8] * 32), parts)
    assert {path.name for path in records.folder.iterdir()} == {bytes([turn] * 32).hex() for turn in (5, 6, 7, 8)}


def test_unusable_folder_costs_no_record_more_than_the_entry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    records = KeyRecords(tmp_path / "file" / "records")
    records.put(b"key", {})
    assert records.get(b"key") is None and len(records) == 0


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`why-miss` for an architecture, with a cache of its own."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    return lambda *more: CliRunner().invoke(main, [*COMMAND, *more], catch_exceptions=False)


def test_the_command(run: Callable[..., Result], tmp_path: Path) -> None:
    """A line for each kernel; exit 0 when the cache has them all."""
    cold = run("sm_90")
    assert cold.exit_code == 1 and "0 of 5 in packs or the cache" in cold.stdout
    assert str(tmp_path / "cubin") in cold.stdout
    missed: list[dict[str, Any]] = json.loads(run("sm_90", "--json").stdout)
    assert {(one["arch"], one["hit"], one["why"]) for one in missed} == {("sm_90", False, "never compiled")}
    assert {one["layout"] for one in missed} == {"packed", "dense", "strided", "gathered"}
    from baracuda.generated import RMSNormDescriptor, RMSNormPlan

    fields = {"norm_axes_mask": 2, "eps": 1e-6, "has_gamma": False}
    plan = RMSNormPlan.select(RMSNormDescriptor(input_shape=(2, 64), **fields, element="f32"))
    for _, _, source in plan.variants():
        compile_cubin(source, "sm_90")
    warm = run("sm_90")
    assert warm.exit_code == 0 and "0 to be compiled" in warm.stdout and " miss" not in warm.stdout
    assert "nearest: architecture sm_90 -> sm_80" in run("sm_80").stdout


def test_requests_that_cannot_be_met(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the host device has a cache of its own; name an architecture" in run("host").stderr
    assert "no device 'sm_x'" in run("sm_x").stderr
    assert "no kernel for RMSNormDescriptor" in run("sm_75").stderr

    def missing() -> None:
        raise CompileError("no NVRTC to compile with")

    monkeypatch.setattr(cubin_module, "_nvrtc_size", missing)
    assert run("sm_90").stderr == "no NVRTC to compile with\n"
