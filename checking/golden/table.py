"""The recorded hashes, a line of JSON per kernel: what they say against what was computed, and how they may change.

Under the name of a kernel, which has the revision of its numerics, `on` is the problem; any other key is a device, with
the hash of the outputs that are `bit_stable_across_arch`, "-" for none, and that of the others, where it is steady.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from baracuda.runtime import InvalidProblem, KernelSku

from .hashes import STABLE, Golden

Line = dict[str, str]
Lines = dict[str, Line]  # by the kernel's name
FILE = "golden.json"
PROBLEM, NOTHING = "on", "-"


def read(specs: Path) -> Lines:
    """What is recorded beside `specs`."""
    path = specs / FILE
    try:
        lines: Lines = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except json.JSONDecodeError as error:
        raise InvalidProblem(f"{path}:{error.lineno}: {error.msg}; take the file of the last commit") from None
    return lines


def write(specs: Path, lines: Mapping[str, Line]) -> None:
    rows = [f"{json.dumps(name)}: {json.dumps(lines[name])}" for name in sorted(lines)]
    (specs / FILE).write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def of_op(lines: Mapping[str, Line], op: str) -> Lines:
    return {name: line for name, line in lines.items() if KernelSku.parse(name).op == op}


def silent(recorded: Mapping[str, Line], device: str) -> set[str]:
    """The kernels about whose bits on a device nothing is recorded: neither its own nor those of all."""
    hashes = {name: [text for key, text in line.items() if key != PROBLEM] for name, line in recorded.items()}
    alone = {name for name, texts in hashes.items() if all(text.split()[0] == NOTHING for text in texts)}
    return {name for name in alone if device not in recorded[name]}


def complaints(
    op: str, recorded: Mapping[str, Line], computed: Iterable[Golden], device: str, arch: str
) -> Iterator[str]:
    """What is wrong with an op's hashes on a device, in a line for all kernels alike; nothing if they are as recorded.

    Of kernels that are `silent`, or that `arch` does not run, nothing need be computed.
    """
    left_out = {name for name in recorded if KernelSku.parse(name).fits(arch)} | silent(recorded, device)
    by_name = {golden.sku: golden for golden in computed}
    found: dict[str, list[str]] = {}  # kernels, by what is wrong with them
    update = f"run 'baracuda-gen golden {op} --update'"
    for name in sorted({*recorded, *by_name}):
        golden, line = by_name.get(name), recorded.get(name)
        if line is None:
            found.setdefault(f"has no golden hash; {update}", []).append(name)
        elif golden is None:
            if name not in left_out:
                found.setdefault(f"has a golden hash, but is not sampled; {update}", []).append(name)
        elif line[PROBLEM] != golden.problem:
            found.setdefault(f"has a golden hash of another problem; {update}", []).append(name)
        elif changed := _changed(line, golden, device):
            found.setdefault(changed, []).append(name)
    for what, names in found.items():
        others = f" (and {len(names) - 1} others)" if len(names) > 1 else ""
        yield f"{op}: {names[0]}{others} {what}"


def updated(op: str, recorded: Mapping[str, Line], computed: Iterable[Golden], device: str, arch: str) -> Lines:
    """An op's lines with what was computed on a device, of the kernels that `arch` runs.

    Raises InvalidProblem where a kernel's bits are others than those recorded under its name.
    """
    lines = {name: line for name, line in recorded.items() if KernelSku.parse(name).fits(arch)}
    revisions = [_revision(name) for name in recorded]
    for golden in computed:
        line = recorded.get(golden.sku, {})
        if _revision(golden.sku) < max(revisions, default=0):
            raise InvalidProblem(f"{op}: 'numerics' was {max(revisions)} before and cannot be less; leave it there")
        if line.get(PROBLEM) != golden.problem:
            line = {PROBLEM: golden.problem}
        elif changed := _changed(line, golden, device):
            raise InvalidProblem(f"{op}: {golden.sku} {changed}")
        lines[golden.sku] = {**line, **_recorded(golden, device)}
    return lines


def _recorded(golden: Golden, device: str) -> Line:
    hashes = [golden.everywhere or NOTHING, *([golden.others] if golden.others and golden.steady else [])]
    return {device: " ".join(hashes)} if hashes != [NOTHING] else {}


def _changed(line: Line, golden: Golden, device: str) -> str:
    """How a kernel's bits differ from those recorded, on this device and on others, or ""."""
    of_device = {name: hashes.split() for name, hashes in line.items() if name != PROBLEM}
    own = of_device.get(device, [])
    if own[1:] not in ([], [golden.others]) or own[:1] not in ([], [golden.everywhere or NOTHING]):
        revision = _revision(golden.sku) + 1
        fix = f"raise 'numerics' to {revision} in the spec, list that in CHANGELOG.md, and run golden --update"
        return f"computes other bits on {device} than its golden hash says; {fix}"
    for other, (everywhere, *_) in of_device.items():
        if everywhere != (golden.everywhere or NOTHING):
            return f"computes other bits on {device} than on {other}; needs the same, for it is {STABLE}"
    return ""


def _revision(name: str) -> int:
    return KernelSku.parse(name).precision_guarantee.numerics
