"""`golden`: compute hashes of what kernels compute, and compare them with those recorded or record them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from baracuda.checking.golden import proof, table
from baracuda.checking.golden.hashes import fitting, golden_of
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import memory_of
from baracuda.checking.trials.ready import bind, in_threads
from baracuda.codegen.project import plans_of, refuse_none, refuse_ungenerated, refuse_unknown
from baracuda.codegen.spec.load import load_folder
from baracuda.runtime import DriverError, InvalidProblem, get_device
from baracuda.runtime.compile.cubin import nvrtc_version
from baracuda.runtime.devices.cuda import CudaDevice

from ..terminal import progress, show_json


def golden(ops: Sequence[str], specs: Path, package: str, device: str, update: bool, as_json: bool) -> bool:
    """Compare, or with `update` record; true if all is as recorded, or now is."""
    if device == "cuda" and not CudaDevice.available():
        raise DriverError("no CUDA device to compute on; use the host device")
    plans_of(package)
    loaded = load_folder(specs)
    refuse_none(loaded, specs)
    refuse_unknown(ops, loaded)
    chosen = [*dict.fromkeys(ops or loaded)]
    refuse_ungenerated(chosen, loaded, package)
    memory, (arch, column) = memory_of(device), column_of(device)
    recorded, wrong = table.read(specs), []
    lines = {} if update and not ops else {**recorded}
    problems = {}
    with progress("problems", len(chosen)) as step:
        for op in chosen:
            but = () if update else table.silent(table.of_op(recorded, op), column)
            problems[op] = fitting(Subject(loaded[op], loaded, package), arch, but)
            step()
    every = [problem for of_op in problems.values() for problem in of_op]
    with progress("kernels", len(every)) as step:
        in_threads((partial(bind, problem, memory) for problem in every), step)
    with progress("golden hashes", len(chosen)) as step:
        for op in chosen:
            before, computed = table.of_op(recorded, op), golden_of(problems[op], memory)
            if update:
                try:
                    after = table.updated(op, before, computed, column, arch)
                except InvalidProblem as error:
                    wrong.append(str(error))
                    after = before
                lines = {name: line for name, line in lines.items() if name not in before} | after
            else:
                wrong += table.complaints(op, before, computed, column, arch)
            step()
    if update and lines != recorded:
        table.write(specs, lines)
    if update and not ops and not wrong and column == "host":
        proof.record(specs, package)
    if as_json:
        show_json({"device": column, "ops": len(chosen), "wrong": wrong})
        return not wrong
    for line in wrong:
        click.echo(line)
    click.echo(f"{len(chosen)} ops on {column}, {len(wrong)} wrong")
    return not wrong


def column_of(device: str) -> tuple[str, str]:
    """The architecture of a device, and what its hashes are recorded under."""
    if device == "host":
        return device, device
    arch = get_device("cuda:0").arch
    return arch, f"{arch} {nvrtc_version()}"
