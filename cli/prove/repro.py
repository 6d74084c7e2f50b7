"""`repro`: rerun a saved failure."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from baracuda.checking.repro.bundle import Bundle, read
from baracuda.checking.repro.replay import Replay, replay
from baracuda.runtime import DriverError
from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.values import one_line, short_repr

from ..terminal import show_json, show_table, working


def repro(file: Path, specs: Path, package: str, device: str | None, as_json: bool) -> bool:
    """Run the problem in `file`, on the device where it failed if there is one; true if it passes.

    Plans come from `package`; the file never decides what is imported. Differences since then are reported on stderr.
    """
    bundle = read(file)
    if (origin := bundle.facts["package"]) != package:
        hint = f"runs in {package!r}; --package chooses another"
        click.echo(f"it failed in package {short_repr(origin)} and {hint}", err=True)
    target = _device(device or bundle.facts["device"].partition(":")[0], chosen=device is not None)
    with working("running"):
        replayed = replay(bundle, specs, package, target)
    if replayed.changed:
        click.echo(f"changed since: {', '.join(one_line(name, 80) for name in replayed.changed)}", err=True)
    if as_json:
        outputs = {name: asdict(accuracy) for name, accuracy in replayed.outputs.items()}
        facts = {"device": target, "kernel": replayed.kernel, "changed": replayed.changed, "outputs": outputs}
        show_json({**facts, "saw": bundle.facts["saw"], "sees": replayed.failure, "fails": bool(replayed.failure)})
    else:
        _show(bundle, target, replayed)
    return not replayed.failure


def _device(device: str, *, chosen: bool) -> str:
    if device != "cuda" or CudaDevice.available():
        return device
    if chosen:
        raise DriverError("no CUDA device to run on; use the host device")
    click.echo("it failed on a GPU; there is none, so it runs on the host device", err=True)
    return "host"


def _show(bundle: Bundle, device: str, replayed: Replay) -> None:
    click.echo(f"{bundle.facts['descriptor']}\n{replayed.kernel} on {device}\n")
    if replayed.outputs:
        verdicts = {name: "within" if a.worst_ratio <= 1 else "BEYOND" for name, a in replayed.outputs.items()}
        show_table(
            [
                {"output": n, "largest error": a.max_error, "error / bound": a.worst_ratio, "verdict": verdicts[n]}
                for n, a in replayed.outputs.items()
            ]
        )
        click.echo()
    if replayed.failure != (saw := bundle.facts["saw"]):
        click.echo(f"before: {one_line(saw, 2000)}")
    click.echo(f"now: {replayed.failure}" if replayed.failure else "passes now")
