"""Files of measurements, one per op and architecture: `tuned/ARCH/OP.json` in the folder of specs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from baracuda.runtime import InvalidProblem, KernelSku, Measurement, SpecError, Unsupported
from baracuda.runtime.cache.publish import publish
from baracuda.runtime.compile.cubin import INCLUDE
from baracuda.runtime.compile.headers import header_digest
from baracuda.runtime.plans.tuned import MARK

from .spec import OpSpec
from .yaml_text import display_path, is_below, read_bytes, report

FOLDER = "tuned"
MAX_BYTES = 1 << 20
_ARCH = re.compile(r"sm_[0-9]{2,3}|host")
Tables = Mapping[str, tuple[Measurement, ...]]  # by architecture


def path_of(specs: Path, arch: str, op: str) -> Path:
    """The file of an op's measurements on an architecture."""
    return specs / FOLDER / arch / f"{op}.json"


def read_tables(specs: Path) -> dict[str, dict[str, tuple[Measurement, ...]]]:
    """All measurements below a folder of specs, by op and architecture; SpecError for invalid ones."""
    tables: dict[str, dict[str, tuple[Measurement, ...]]] = {}
    for path in sorted((specs / FOLDER).glob("*/*.json")):
        if not _ARCH.fullmatch(path.parent.name):
            raise SpecError(f"{display_path(path)}: its folder is no architecture; call it as in '{FOLDER}/sm_90'")
        if not is_below(path, specs):
            raise SpecError(f"{display_path(path)}: is a link that leads out of the specs; put the file itself there")
        tables.setdefault(path.stem, {})[path.parent.name] = read_table(path)
    return tables


def read_table(path: Path) -> tuple[Measurement, ...]:
    """The measurements in a file, none without a file; SpecError for invalid ones."""
    if not path.exists():
        return ()
    raw = read_bytes(path, MAX_BYTES, "table of measurements")
    try:
        rows = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, getattr(error, "lineno", 1), error) from None
    if not isinstance(rows, list):
        raise _refusal(path, 1, "needs a list")
    measurements = tuple(_measurement(row, i, path, raw) for i, row in enumerate(rows))
    first: dict[object, int] = {}
    for i, measurement in enumerate(measurements):
        if first.setdefault(measurement.key, i) != i:
            raise SpecError(f"{display_path(path)}:{_line_of(i, raw)}: measures a problem twice; remove one of them")
    return measurements


def _measurement(row: object, index: int, path: Path, raw: bytes) -> Measurement:
    try:
        measurement = Measurement.of(row)
        KernelSku.parse(measurement.sku)
    except (InvalidProblem, Unsupported) as error:
        raise _refusal(path, _line_of(index, raw), error) from None
    return measurement


def _line_of(index: int, raw: bytes) -> int:
    """The line (from 1) where an item of the JSON list begins."""
    text, decoder = raw.decode(json.detect_encoding(raw), "surrogatepass"), json.JSONDecoder()
    position = text.index("[") + 1
    for _ in range(index):
        position = text.index(",", decoder.raw_decode(text, _after_space(text, position))[1]) + 1
    return text.count("\n", 0, _after_space(text, position)) + 1


def _after_space(text: str, position: int) -> int:
    return next(i for i in range(position, len(text)) if not text[i].isspace())


def _refusal(path: Path, line: int, why: object) -> SpecError:
    place = f"{display_path(path)}:{line}"
    return report([f"{place}: holds no measurements ({why}); remove it and run 'baracuda-gen tune'"])


def write_table(path: Path, measurements: Iterable[Measurement]) -> None:
    """Replace the file atomically, or remove it if nothing is left."""
    if rows := [asdict(m) for m in measurements]:
        publish(path, json.dumps(rows, indent=1) + "\n")
    else:
        path.unlink(missing_ok=True)


def generated_text(op: str, tables: Tables) -> str:
    """The file that plans read, beside their module."""
    rows = {arch: [asdict(m) for m in measurements] for arch, measurements in tables.items()}
    return json.dumps({MARK: f"from {FOLDER}/*/{op}.json. Do not edit.", **rows}, indent=1) + "\n"


def problems_of(spec: OpSpec, tables: Tables) -> list[str]:
    """Why measurements may not decide, one line each: an op's guarantees must not depend on a table."""
    batch_extents = batch_of(spec)
    return [
        f"{FOLDER}/{arch}/{spec.op}.json: depends on {name!r}, of which {spec.op} promises to be independent"
        for arch, measurements in tables.items()
        for name in sorted({name for m in measurements for name in m.near if name in batch_extents})
    ]


def batch_of(spec: OpSpec) -> frozenset[str]:
    """The extents that no choice may depend on, because bits would, too."""
    if not promised(spec, "batch_invariant"):
        return frozenset()
    return frozenset({spec.batch_extent} if spec.batch_extent else ())


def promised(spec: OpSpec, rung: str) -> bool:
    """Whether any output has the guarantee."""
    return any(rung in rungs for rungs in spec.reproducibility.values())


def digest_of_kernels(text: str) -> str:
    """A digest of a generated `.cu` and its headers: measurements of other kernels no longer count."""
    return hashlib.sha256(text.encode() + header_digest(text, INCLUDE)).hexdigest()[:16]


def stale(op: str, tables: Tables, text: str) -> list[str]:
    """One line per architecture whose measurements are of other kernels than those in `text`."""
    digest = digest_of_kernels(text)
    counts = {arch: (sum(m.digest != digest for m in rows), len(rows)) for arch, rows in tables.items()}
    return [
        f"{FOLDER}/{arch}/{op}.json: {old} of {count} measurements are of other kernels; run 'baracuda-gen tune {op}'"
        for arch, (old, count) in counts.items()
        if old
    ]
