"""`repro`: rerun a saved failure."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from baracuda.checking.repro.bundle import Bundle, read
from baracuda.checking.repro.replay import Replay, replay
from baracuda.runtime import DriverError
from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.values import one_line, shown

from ..terminal import show_json, show_table, working


def repro(file: Path, specs: Path, package: str, device: str | None, as_json: bool) -> bool:
    """Run the problem in `file`, on the device where it failed if there is one; true if it passes.

    Plans come from `package`; the file never decides what is imported. Differences since then are reported on stderr.
    """
    bundle = read(file)
    if (failed := bundle.facts["package"]) != package:
        click.echo(f"it failed in package {shown(failed)} and runs in {package!r}; --package chooses another", err=True)
    where = _device(device or bundle.facts["device"].partition(":")[0], chosen=device is not None)
    with working("running"):
        now = replay(bundle, specs, package, where)
    if now.changed:
        click.echo(f"changed since: {', '.join(one_line(name, 80) for name in now.changed)}", err=True)
    if as_json:
        outputs = {name: asdict(accuracy) for name, accuracy in now.outputs.items()}
        facts = {"device": where, "kernel": now.kernel, "changed": now.changed, "outputs": outputs}
        show_json({**facts, "saw": bundle.facts["saw"], "sees": now.failure, "fails": bool(now.failure)})
    else:
        _show(bundle, where, now)
    return not now.failure


def _device(wanted: str, *, chosen: bool) -> str:
    if wanted != "cuda" or CudaDevice.available():
        return wanted
    if chosen:
        raise DriverError("no CUDA device to run on; use the host device")
    click.echo("it failed on a GPU; there is none, so it runs on the host device", err=True)
    return "host"


def _show(bundle: Bundle, device: str, now: Replay) -> None:
    click.echo(f"{bundle.facts['descriptor']}\n{now.kernel} on {device}\n")
    if now.outputs:
        verdicts = {name: "within" if a.worst_ratio <= 1 else "BEYOND" for name, a in now.outputs.items()}
        show_table(
            [
                {"output": n, "largest error": a.max_error, "error / bound": a.worst_ratio, "verdict": verdicts[n]}
                for n, a in now.outputs.items()
            ]
        )
        click.echo()
    if now.failure != (saw := bundle.facts["saw"]):
        click.echo(f"before: {one_line(saw, 2000)}")
    click.echo(f"now: {now.failure}" if now.failure else "passes now")
