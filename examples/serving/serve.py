"""Serve a Llama with torch's kernels and with batch-invariant ones: speed, and whether a text's scores stay the same.

Random weights and texts. Where `batch_invariant_ops` of Thinking Machines is installed, its kernels are timed, too.

    python examples/serving/serve.py [--device cuda] [--batches 1 8 32] [--prompt 512] [--new 64] [--layers N]
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from model import Cache, Llama, Size

import baracuda.frontends.torch as bt

SIZES = {
    "cpu": (Size(layers=2, width=32, heads=4, kv_heads=2, neurons=64, words=96), torch.float32),
    "cuda": (Size(layers=32, width=4096, heads=32, kv_heads=8, neurons=14336, words=128256), torch.bfloat16),
}


@dataclass(frozen=True)
class Served:
    """Of one batch: words that each text goes on with, scores after the last one, and seconds."""

    words: Any
    scores: Any
    read_s: float
    write_s: float


def ways(device: str) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Blocks in which the model is run, by name."""
    found: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "torch": nullcontext,
        "baracuda": lambda: bt.batch_invariant(device=device),
    }
    if device == "cuda" and importlib.util.find_spec("batch_invariant_ops"):
        from batch_invariant_ops import set_batch_invariant_mode

        found["batch_invariant_ops"] = set_batch_invariant_mode
    return found


@torch.inference_mode()
def serve(model: Llama, texts: Any, new: int) -> Served:
    """Read all texts at once, then write `new` words to each, the likeliest ones."""
    batch, length = texts.shape
    caches = [Cache(model.size, batch, length + new, model.scores.weight) for _ in model.layers]
    begin = _now(texts)
    scores = model(texts, caches, 0)
    words = [scores.argmax(-1, keepdim=True)]
    middle = _now(texts)
    for place in range(length, length + new - 1):
        scores = model(words[-1], caches, place)
        words.append(scores.argmax(-1, keepdim=True))
    return Served(torch.cat(words, 1), scores, middle - begin, _now(texts) - middle)


def changed(model: Llama, texts: Any, new: int, block: Callable[[], AbstractContextManager[Any]]) -> int:
    """How many texts have other scores in the batch than alone."""
    with block():
        together = serve(model, texts, new)
        alone = [serve(model, text[None], new) for text in texts]
    return sum(not torch.equal(one.scores[0], all_) for one, all_ in zip(alone, together.scores, strict=True))


def _now(texts: Any) -> float:
    if texts.is_cuda:
        torch.cuda.synchronize(texts.device)
    return time.perf_counter()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=SIZES, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(arguments)
    size, dtype = SIZES[given.device]
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(given.device):
            model = Llama(replace(size, layers=given.layers or size.layers)).eval()
            texts = torch.randint(size.words, (max(given.batches), given.prompt))
    finally:
        torch.set_default_dtype(torch.float32)
    name = torch.cuda.get_device_name() if given.device == "cuda" else "the host device"
    print(f"{name}, torch {torch.__version__}, {len(model.layers)} layers, {dtype}")
    for batch in given.batches:
        for way, block in ways(given.device).items():
            with block():
                runs = [serve(model, texts[:batch], given.new) for _ in range(1 + given.repeats)][1:]
            read = batch * given.prompt / min(run.read_s for run in runs)
            write = batch * (given.new - 1) / min(run.write_s for run in runs)
            print(f"batch {batch:3d}  {way:20s} prompt {read:10.0f} tokens/s   new words {write:9.1f} tokens/s")
    count = min(8, max(given.batches))
    for way, block in ways(given.device).items():
        print(f"{way}: {changed(model, texts[:count], given.new, block)} of {count} texts have other scores in a batch")


if __name__ == "__main__":
    main()
