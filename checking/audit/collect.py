"""The facts of many kernels: from the cache, or compiled in parallel and disassembled in batches."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from baracuda.runtime import CompileError, KernelSource
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import INCLUDE, Assembly, assemble, assert_not_frozen, cubin_key, key_parts
from baracuda.runtime.compile.cubin_store import cubin_store

from ..executors import Pool, pool
from .facts import Facts, decode, encode, facts_key, facts_of, facts_store
from .image import machine_code
from .sass import Sass, disassemble

Outcome = Facts | CompileError
# Starting nvdisasm takes 0.34 s, a kernel 0.05 s.
_BATCH = 24


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to audit, with the headers to compile it with."""

    source: KernelSource
    arch: str
    include: Path = INCLUDE


def collect(jobs: Sequence[Job], *, on_done: Callable[[int, Outcome], None], within: Pool | None = None) -> None:
    """Call `on_done(index, outcome)` in this thread for each job; equal jobs are compiled once.

    They are compiled and read `within` a pool, by default in a thread per core. Results go into both caches.
    """
    store = facts_store()
    missing: dict[bytes, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        key = cubin_key(job.source, job.arch, include=job.include)
        body = None if key in missing else store.get(facts_key(key))
        if body is None:
            missing[key].append(index)
        else:
            on_done(index, decode(body))

    with nullcontext(within) if within else pool() as chosen:
        for key, outcome in _outcomes(chosen, {key: jobs[indices[0]] for key, indices in missing.items()}):
            for index in missing[key]:
                on_done(index, outcome)


def _outcomes(within: Pool, jobs: Mapping[bytes, Job]) -> Iterator[tuple[bytes, Outcome]]:
    """Compile `jobs`, and disassemble as soon as there is a batch, so that little work is lost on interruption.

    Of a batch whose worker died every kernel fails.
    """
    submit, at_once = within.executor.submit, within.workers
    waiting = deque(sorted(jobs, key=lambda key: jobs[key].arch))
    assembled: dict[str, list[_Assembled]] = defaultdict(list)  # by architecture, to be disassembled together
    compiling: dict[Future[Assembly], bytes] = {}
    reading: dict[Future[list[Facts]], list[_Assembled]] = {}
    ready: SimpleQueue[Future[Any]] = SimpleQueue()
    while True:
        while len(compiling) + len(reading) < at_once:
            is_last = not waiting and not compiling
            ready_archs = (a for a, done in assembled.items() if done and (is_last or len(done) >= _BATCH))
            if arch := next(ready_archs, None):
                batch = assembled.pop(arch)
                reading[read := submit(_read, batch, arch)] = batch
                read.add_done_callback(ready.put)
            elif waiting:
                key = waiting.popleft()
                compilation = submit(_compile, jobs[key])
                compiling[compilation] = key
                compilation.add_done_callback(ready.put)
            else:
                break
        if not compiling and not reading:
            return
        future = ready.get()
        if future in reading:
            entries, error = reading.pop(future), future.exception()
            if isinstance(error, CompileError):
                yield from ((entry.key, error) for entry in entries)
            else:
                for entry, facts in zip(entries, future.result(), strict=True):
                    facts_store().put(facts_key(entry.key), encode(facts))
                    yield entry.key, facts
        else:
            key = compiling.pop(future)
            error = future.exception()
            if isinstance(error, CompileError):
                yield key, error
            else:
                job, assembly = jobs[key], future.result()
                cubin_store(cache_root() / "cubin").put(
                    key, assembly.cubin, key_parts(job.source, job.arch, include=job.include)
                )
                assembled[job.arch].append(_Assembled(job, key, assembly))


class _Assembled(NamedTuple):
    job: Job
    key: bytes
    assembly: Assembly


def _compile(job: Job) -> Assembly:
    assert_not_frozen(job.source, job.arch, facts_store().folder, include=job.include)
    return assemble(job.source, job.arch, include=job.include)


def _read(batch: Sequence[_Assembled], arch: str) -> list[Facts]:
    listings = disassemble([machine_code(entry.assembly.cubin.image) for entry in batch], arch)
    return [_facts(entry, sass) for entry, sass in zip(batch, listings, strict=True)]


def _facts(entry: _Assembled, sass: Sass) -> Facts:
    job = entry.job
    strict = replace(job.source, contraction=False, flush_subnormals=False)
    return facts_of(entry.assembly, sass, lambda: assemble(strict, job.arch, include=job.include))
