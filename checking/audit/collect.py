"""The facts of many kernels: from the cache, or compiled in parallel and disassembled in batches."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from baracuda.runtime import CompileError, KernelSource
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import INCLUDE, Assembly, assemble, assert_not_frozen, cubin_key, key_parts
from baracuda.runtime.compile.cubin_store import cubin_store

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


def collect(jobs: Sequence[Job], *, on_done: Callable[[int, Outcome], None], workers: int | None = None) -> None:
    """Call `on_done(index, outcome)` in this thread for each job; equal jobs are compiled once.

    `workers` defaults to the number of cores that this process may use. Results go into both caches.
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

    at_once = workers or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for key, outcome in _outcomes(pool, at_once, {key: jobs[indices[0]] for key, indices in missing.items()}):
                for index in missing[key]:
                    on_done(index, outcome)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _outcomes(pool: Executor, at_once: int, jobs: Mapping[bytes, Job]) -> Iterator[tuple[bytes, Outcome]]:
    """Compile `jobs`, and disassemble as soon as there is a batch, so that little work is lost on interruption."""
    waiting = deque(sorted(jobs, key=lambda key: jobs[key].arch))
    assembled: dict[str, list[_Assembled]] = defaultdict(list)  # by architecture, to be disassembled together
    compiling: dict[Future[Assembly], bytes] = {}
    reading: set[Future[list[tuple[bytes, Facts]]]] = set()
    ready: SimpleQueue[Future[Any]] = SimpleQueue()
    while True:
        while len(compiling) + len(reading) < at_once:
            is_last = not waiting and not compiling
            ready_archs = (a for a, done in assembled.items() if done and (is_last or len(done) >= _BATCH))
            if arch := next(ready_archs, None):
                batch = pool.submit(_read, assembled.pop(arch), arch)
                reading.add(batch)
                batch.add_done_callback(ready.put)
            elif waiting:
                key = waiting.popleft()
                compilation = pool.submit(_compile, jobs[key], key)
                compiling[compilation] = key
                compilation.add_done_callback(ready.put)
            else:
                break
        if not compiling and not reading:
            return
        future = ready.get()
        if future in reading:
            reading.remove(future)
            yield from future.result()
        else:
            key = compiling.pop(future)
            error = future.exception()
            if isinstance(error, CompileError):
                yield key, error
            else:
                assembled[jobs[key].arch].append(_Assembled(jobs[key], key, future.result()))


class _Assembled(NamedTuple):
    job: Job
    key: bytes
    assembly: Assembly


def _compile(job: Job, key: bytes) -> Assembly:
    cubins = cubin_store(cache_root() / "cubin")
    assert_not_frozen(job.source, job.arch, facts_store().folder, include=job.include)
    assembly = assemble(job.source, job.arch, include=job.include)
    cubins.put(key, assembly.cubin, key_parts(job.source, job.arch, include=job.include))
    return assembly


def _read(batch: Sequence[_Assembled], arch: str) -> list[tuple[bytes, Facts]]:
    listings = disassemble([machine_code(entry.assembly.cubin.image) for entry in batch], arch)
    return [(entry.key, _keep(entry, sass)) for entry, sass in zip(batch, listings, strict=True)]


def _keep(entry: _Assembled, sass: Sass) -> Facts:
    job = entry.job
    strict = replace(job.source, contraction=False, flush_subnormals=False)
    facts = facts_of(entry.assembly, sass, lambda: assemble(strict, job.arch, include=job.include))
    facts_store().put(facts_key(entry.key), encode(facts))
    return facts
