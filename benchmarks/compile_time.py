"""Compilation times: cold, cached, packed, and with other compilers.

First compilations are measured in fresh processes with empty caches.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from baracuda.checking.listing.variant import Variant
from baracuda.checking.listing.variants import variants_of
from baracuda.codegen.project import Project, specs_folder
from baracuda.runtime.compile.cubin import INCLUDE, assemble, compile_cubin
from baracuda.runtime.devices.cuda import CudaDevice

from .first_times import Row, row

ARCHS = ("sm_80", "sm_90")
HEAVY = ("flash_",)  # how the names of ops begin that are counted apart
# What `first_times.calls` computes.
_CALLED = (
    "RMSNormPlan input_shape=512,4096 norm_axes_mask=2 eps=1e-06 has_gamma=true element=f32",
    "SoftmaxPlan input_shape=512,4096 softmax_axis=-1 element=f32",
)
_CACHES = ("BARACUDA_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")


def rows() -> list[Row]:
    """One row of milliseconds per route, or a row with the reason it is unavailable."""
    light, heavy = samples()
    variant = next(v for v in light if (v.row.sku.op, v.arch) == ("rms_norm", ARCHS[-1]))
    table = [*child("nvrtc"), *again(variant), *compiled("light SKU", light), *compiled("flash SKU", heavy)]
    table += [*warm(light[0]), *nvcc(light[0])]
    if CudaDevice.available():
        return [*table, *loaded(light[0]), *first_calls(), *child("triton"), *child("torch.compile")]
    return [*table, *first_calls(), row("module load, Triton, torch.compile", None, "no CUDA device")]


def samples() -> tuple[list[Variant], list[Variant]]:
    """One kernel of each op for each architecture, the first of its plans; those of heavy ops apart."""
    project = Project.read(specs_folder(None))
    first: dict[tuple[str, str], Variant] = {}
    for variant in variants_of(project, archs=ARCHS):
        first.setdefault((variant.row.sku.op, variant.arch), variant)
    heavy = [v for (op, _), v in first.items() if op.startswith(HEAVY)]
    return [v for v in first.values() if v not in heavy], heavy


def compiled(label: str, variants: Sequence[Variant], repeats: int = 3) -> list[Row]:
    """NVRTC alone, without cache: median and worst kernel, each the best of several runs."""
    assemble(variants[0].source, variants[0].arch)  # loads the library
    times = {v: min(_ms(partial(assemble, v.source, v.arch)) for _ in range(repeats)) for v in variants}
    worst = max(times, key=lambda v: times[v])
    return [
        row(f"{label}, cold, median of {len(times)}", median(times.values())),
        row(f"{label}, cold, worst", times[worst], f"{worst.row.sku} for {worst.arch}"),
    ]


def again(variant: Variant, repeats: int = 30) -> list[Row]:
    """NVRTC alone, one kernel repeatedly: median and worst time."""
    assemble(variant.source, variant.arch)  # loads the library
    times = [_ms(partial(assemble, variant.source, variant.arch)) for _ in range(repeats)]
    label, note = f"{variant.row.sku.op}, cold", f"{variant.row.sku} for {variant.arch}"
    return [row(f"{label}, median of {repeats}", median(times), note), row(f"{label}, worst", max(times), note)]


def warm(variant: Variant, repeats: int = 50) -> list[Row]:
    """A cached kernel: making its key, reading and checking it."""
    with tempfile.TemporaryDirectory() as folder:
        ask = partial(compile_cubin, variant.source, variant.arch, folder=Path(folder))
        ask()
        return [row("warm, read from disk and checked", median(_ms(ask) for _ in range(repeats)))]


def loaded(variant: Variant) -> list[Row]:
    """As `warm`, plus loading the module into an existing context."""
    CudaDevice(0).load(variant.source)
    devices = [CudaDevice(0) for _ in range(5)]  # each loads it anew
    return [row("warm, and loaded", median(_ms(partial(device.load, variant.source)) for device in devices))]


def nvcc(variant: Variant) -> list[Row]:
    """The toolkit's compiler on the same source, if installed."""
    label, source = "nvcc of a light SKU", variant.source
    if not (program := shutil.which("nvcc")):
        return [row(label, None, "no nvcc on the PATH")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cu"
        path.write_text(source.text)
        flags = ["-cubin", "-std=c++17", f"-arch={variant.arch}", f"-I{INCLUDE}", *(f"-D{d}" for d in source.defines)]
        command = [program, *flags, "-o", os.devnull, str(path)]
        start = time.perf_counter()
        completed = subprocess.run(command, capture_output=True, text=True)
        ms = (time.perf_counter() - start) * 1e3
    return [row(label, None, _last(completed.stderr)) if completed.returncode else row(label, ms)]


def first_calls() -> list[Row]:
    """First calls whose kernels are in a pack; on the host device, in the cache of a process before."""
    with tempfile.TemporaryDirectory() as folder:
        if not CudaDevice.available():
            child("calls", BARACUDA_CACHE_DIR=folder)
            return [{**r, "note": "host device"} for r in child("calls", BARACUDA_CACHE_DIR=folder)]
        pack = [sys.executable, "-c", "from baracuda.cli.main import main; main()", "pack", "--out", f"{folder}/pack"]
        problems = [word for problem in _CALLED for word in ("--problem", problem)]
        packed = subprocess.run([*pack, *problems, "--arch", CudaDevice(0).arch], capture_output=True, text=True)
        if packed.returncode:
            return [row("first calls from a pack", None, _last(packed.stderr))]
        return [{**r, "note": "from a pack"} for r in child("calls", BARACUDA_PACKS=f"{folder}/pack")]


def child(label: str, **given: str) -> list[Row]:
    """The rows that a fresh process measures with empty caches, or with `given` in its environment."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {name: f"{folder}/{name}" for name in _CACHES} | given
        command = [sys.executable, "-m", "baracuda.benchmarks.first_times", label]
        completed = subprocess.run(command, capture_output=True, text=True, env=env)
    if completed.returncode:
        return [row(label, None, _last(completed.stderr))]
    measured: list[Row] = json.loads(completed.stdout.splitlines()[-1])
    return measured


def _ms(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _last(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "no message")
