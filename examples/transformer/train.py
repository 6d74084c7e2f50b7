"""Train a small transformer on this repository's pages, once with the generated ops and once with torch's own.

Both begin with the same weights and read the same text in the same order. What two roundings alone can make of a run
shows a third one: torch's ops again, from weights moved by half a unit in the last place.

    python examples/transformer/train.py [--device cuda] [--steps 200] [--compile [MODE]] [--plot picture.svg]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from model import OURS, TORCHS, Decoder, Ops, Size
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 10  # rows of the table of losses


@dataclass(frozen=True)
class Setting:
    """What is trained where: `dtype` is autocast's, or that of the weights for none."""

    size: Size
    batch: int
    dtype: Any
    rate: float

    @property
    def tokens(self) -> int:
        """In a step."""
        return self.batch * self.size.context


SETTINGS = {
    "cpu": Setting(Size(layers=2, width=64, heads=4, kv_heads=2, context=32), 4, torch.float32, 3e-3),
    "cuda": Setting(Size(layers=6, width=1024, heads=8, kv_heads=4, context=1024), 32, torch.bfloat16, 1e-3),
}


@dataclass(frozen=True)
class Run:
    """The loss of each step, and how fast the second half of the steps was."""

    losses: tuple[float, ...]
    tokens_per_s: float


def text() -> Any:
    """The pages, one behind the other, as bytes."""
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    return torch.frombuffer(bytearray(b"\n".join(page.read_bytes() for page in pages)), dtype=torch.uint8)


def train(
    setting: Setting, ops: Ops, steps: int, device: str, *, mode: str | None = None, moved: bool = False
) -> Run:
    """Train a new model; `moved` moves each weight by up to half a unit in the last place of the type, at random."""
    torch.manual_seed(0)
    model = Decoder(setting.size, ops).to(device)
    if moved:
        _move(model, torch.finfo(setting.dtype).eps / 2)
    step = _step_of(torch.compile(model, fullgraph=True, mode=mode) if mode else model, setting, steps, device)
    data = text().to(device)
    order = torch.Generator().manual_seed(1)
    losses, half, begin = [], steps // 2, 0.0
    for number in range(steps):
        if number == half:
            begin = _now(device)
        losses.append(step(_batch(data, setting, order)))
    took = _now(device) - begin
    return Run(tuple(float(loss) for loss in losses), (steps - half) * setting.tokens / took)


def _move(model: Any, unit: float) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + unit * torch.empty_like(weight).uniform_(-1, 1))


def _step_of(model: Any, setting: Setting, steps: int, device: str) -> Any:
    kind = torch.device(device).type
    optimizer = torch.optim.AdamW(model.parameters(), lr=setting.rate, betas=(0.9, 0.95))
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, setting.rate, total_steps=steps + 1, cycle_momentum=False)
    wide = setting.dtype == torch.float32

    def step(batch: Any) -> Any:
        with nullcontext() if wide else torch.autocast(kind, setting.dtype):
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1).float(), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        return loss.detach()

    return step


def _batch(data: Any, setting: Setting, order: Any) -> Any:
    """Pieces of the text, one token longer than the context."""
    length = setting.size.context + 1
    begins = torch.randint(len(data) - length, (setting.batch, 1), generator=order)
    return data[(begins + torch.arange(length)).to(data.device)].long()


def _now(device: str) -> float:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def distance(first: Run, second: Run) -> float:
    """The largest difference of two runs' losses at any step."""
    return max(abs(a - b) for a, b in zip(first.losses, second.losses, strict=True))


def report(runs: Mapping[str, Run]) -> str:
    """A table of losses, how far they are apart, and speeds."""
    steps = len(runs["torch"].losses)
    rows = sorted({*range(0, steps, -(-steps // SHOWN)), steps - 1})
    lines = ["  step " + " ".join(f"{name:>12}" for name in runs)]
    lines += [f"{row:6} " + " ".join(f"{run.losses[row]:12.5f}" for run in runs.values()) for row in rows]
    lines += [f"largest difference to torch, {name}: {distance(runs['torch'], runs[name]):.2e}" for name in runs][1:]
    return "\n".join([*lines, *(f"tokens/s, {name}: {run.tokens_per_s:,.0f}" for name, run in runs.items())])


def draw(runs: Mapping[str, Run], path: Path, title: str) -> None:
    """The curves, and how far each is from torch's, as an .svg or .png."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "transformer"  # the same runs give the same file
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    for (name, run), style in zip(runs.items(), ("C0-", "C1--", "C7:"), strict=True):
        above.plot(run.losses, style, label=name)
        if name != "torch":
            apart = [abs(a - b) for a, b in zip(run.losses, runs["torch"].losses, strict=True)]
            below.plot(apart, style, label=f"{name} - torch")
    above.set(ylabel="loss", title=title)
    below.set(xlabel="step", ylabel="difference of losses")
    for axes in (above, below):
        axes.grid(True, alpha=0.25)
        axes.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--compile", nargs="?", const="default", metavar="MODE", help="compile, as torch.compile says")
    parser.add_argument("--plot", type=Path, help="draw the losses: an .svg or .png")
    options = parser.parse_args(arguments)
    setting = SETTINGS[torch.device(options.device).type]
    title = f"{setting.size}\nbatches of {setting.batch}, {setting.dtype}"
    print(title, f"{len(text())} bytes of text", sep="\n", flush=True)
    runs = {
        name: train(setting, ops, options.steps, options.device, mode=options.compile, moved=moved)
        for name, ops, moved in (("torch", TORCHS, False), ("ours", OURS, False), ("torch, moved", TORCHS, True))
    }
    print(report(runs))
    if options.plot:
        draw(runs, options.plot, title)


if __name__ == "__main__":
    main()
