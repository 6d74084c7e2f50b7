"""Invariant: a sweep gives the same in every executor, and a worker that dies costs the task it had."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from baracuda.checking import executors
from baracuda.checking.apart import Apart, Lost
from baracuda.checking.audit.collect import Job, Outcome, collect
from baracuda.checking.audit.facts import Facts
from baracuda.checking.executors import Pool, each, pool
from baracuda.cli.main import main
from baracuda.cli.reading import list_kernels
from baracuda.cli.speedup import show_speedup
from baracuda.runtime import CompileError, DriverError, InvalidProblem, KernelSource, Unsupported
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import compile_many
from baracuda.runtime.device import Cubin

TEXT = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = NUMBER; }'
SOURCES = [KernelSource(f"{n}.cu", TEXT.replace("NUMBER", str(n)), "k") for n in (1, 2, 3)]
BAD = KernelSource("bad.cu", "nonsense", "bad")


class KilledWorker(Exception):
    """What Dask raises, by its name."""


class Client:
    """What is used of `distributed.Client`."""

    threads, other = 2, ""

    def __init__(self, address: str, timeout: float) -> None:
        if address != "tcp://here:1":
            raise OSError("nobody there")

    def nthreads(self) -> dict[str, int]:
        return {"a": self.threads} if self.threads else {}

    def run(self, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        return {"a": (function(*args) or "") + self.other}

    def get_executor(self) -> Executor:
        return ThreadPoolExecutor(2)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    module: Any = ModuleType("distributed")
    module.Client = Client
    monkeypatch.setitem(sys.modules, "distributed", module)
    return Client


@contextmanager
def cluster() -> Iterator[str]:
    """A cluster of Dask on this machine."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as local:
        yield local.scheduler_address.replace("tcp://", "dask://")


@pytest.fixture(params=["threads", "processes", "fake", *(["dask"] if find_spec("distributed") else [])])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "dask":
        with cluster() as address:
            yield address
        return
    if request.param == "fake":
        request.getfixturevalue("fake")
    yield "dask://here:1" if request.param == "fake" else request.param


def test_all_executors_compute_and_raise(where: str) -> None:
    with pool(where, 2) as within:
        assert within.workers == 2
        futures = [within.executor.submit(divmod, n, 3) for n in range(8)]
        wrong = within.executor.submit(int, "x")
        assert [future.result() for future in futures] == [divmod(n, 3) for n in range(8)]
        with pytest.raises(ValueError, match="invalid literal"):
            wrong.result()


@pytest.mark.parametrize("where", ["processes", "fake", *(["dask"] if find_spec("distributed") else [])], indirect=True)
def test_a_task_apart_costs_no_worker(where: str) -> None:
    """It is in a process that the worker owns, which has variables of its own and goes with the sweep."""
    with pool(where, 2, apart=Apart((("SEEN", "yes"),), 30.0), alike=str) as within:
        tasks = deque(["__import__('os')._exit(7)", *["__import__('os').environ['SEEN']"] * 3])
        found = [value for _, value in each(within, eval, tasks)]
        pids = {within.executor.submit(os.getpid).result() for _ in range(4)}
    assert [type(value) for value in found].count(Lost) == 1 and found.count("yes") == 3
    assert os.getpid() not in pids and len(pids) <= 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids) and not executors._sweeps


def test_a_worker_that_dask_lost_costs_its_task(fake: type[Client]) -> None:
    def die() -> None:
        raise KilledWorker("k of a, 4 attempts")

    with pool("dask://here:1") as within:
        lost, other = within.executor.submit(die), within.executor.submit(abs, -1)
        assert other.result() == 1
        with pytest.raises(Lost, match="4 attempts"):
            lost.result()


def test_what_is_no_executor_is_said(fake: type[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    for where, error, says in (
        ("dusk", InvalidProblem, "no executor 'dusk' for this; known are threads, processes and dask://HOST:PORT"),
        ("dask://there:1", DriverError, "no Dask scheduler answers at there:1: nobody there; start 'dask scheduler'"),
    ):
        with pytest.raises(error, match=says), pool(where):
            pass
    monkeypatch.setattr(fake, "threads", 0)
    with pytest.raises(DriverError, match="has no workers; start 'dask worker here:1'"), pool("dask://here:1"):
        pass
    monkeypatch.setattr(fake, "threads", 2)
    monkeypatch.setattr(fake, "other", ", patched")
    with pytest.raises(DriverError, match=r"worker a has sources \w+ .*, patched; needs"), pool("dask://here:1"):
        pass
    monkeypatch.setattr(fake, "other", "")
    with pytest.raises(DriverError, match="worker a does 2 tasks at once; needs 1"), pool("dask://here:1", alone=True):
        pass
    says = "those of dask://here:1 have their own"
    with pytest.raises(InvalidProblem, match=says), pool("dask://here:1", places=[{}]):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(Unsupported, match=r"pip install 'baracuda-gen\[dask\]'"), pool("dask://here:1"):
        pass


class Losing(ThreadPoolExecutor):
    """Loses the worker of one task."""

    def __init__(self, lost: int) -> None:
        super().__init__(1)
        self.left = lost

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        return super().submit(lose) if self.left == 0 else super().submit(fn, *args, **kwargs)


def lose() -> None:
    raise Lost("the process that had this task died with -11")


def compiled(executor: Executor) -> list[Cubin | CompileError]:
    outcomes: dict[int, Cubin | CompileError] = {}
    jobs = [(source, "sm_80") for source in (*SOURCES, BAD)]
    compile_many(jobs, on_done=outcomes.__setitem__, executor=executor)
    return [outcomes[index] for index in range(len(jobs))]


def collected(within: Pool) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    jobs = [Job(source, "sm_80") for source in (*SOURCES, BAD)]
    collect(jobs, on_done=outcomes.__setitem__, within=within)
    return [outcomes[index] for index in range(len(jobs))]


@pytest.mark.parametrize("sweep", [lambda p: compiled(p.executor), collected])
def test_sweeps_go_on_without_a_lost_worker(
    sweep: Callable[[Pool], list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    first = sweep(Pool(Losing(2), 1))
    kinds = [type(outcome) for outcome in first]
    assert kinds[1] is Lost and kinds[3] is CompileError and kinds[0] is kinds[2] is not Lost
    again = Losing(0)
    second = sweep(Pool(again, 1))
    assert again.left > -4  # what was done is found
    assert type(second[1]) is kinds[0]


def test_a_lost_batch_of_listings_costs_its_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    first = collected(Pool(Losing(5), 4))
    assert [type(outcome) for outcome in first] == [Lost, Lost, Lost, CompileError]
    assert all(isinstance(outcome, Facts) for outcome in collected(Pool(Losing(0), 4))[:3])


def test_results_come_into_this_cache(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever cache the workers have; and with them all is as in threads."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "theirs"))
    with pool(where, 2) as within:
        within.executor.submit(abs, -1).result()  # starts it
        monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "ours"))
        outcomes, facts = compiled(within.executor), collected(within)
    images = [outcome.image for outcome in outcomes if isinstance(outcome, Cubin)]
    with pool() as within:
        cached = [outcome for outcome in compiled(within.executor) if isinstance(outcome, Cubin)]
        assert digests(collected(within)) == digests(facts)
    assert [cubin.image for cubin in cached] == images and len(images) == 3
    assert not any(cubin.resources.seconds for cubin in cached)


def digests(facts: list[Outcome]) -> list[str]:
    return [of.digest for of in facts if isinstance(of, Facts)]


def test_commands_take_an_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    command = ["compile", "ema", "--arch", "sm_80", "--layouts", "dense", "--executor", "processes", "--json"]
    for cached in (0, 8):
        shown = CliRunner().invoke(main, command)
        report = json.loads(shown.stdout)
        assert (report["kernels"], report["cached"], report["failed"]) == (8, cached, 0)
    shown = CliRunner().invoke(main, ["check", "ema", "--executor", "dusk"])
    assert shown.exit_code == 1 and "no executor 'dusk'" in shown.stderr


def test_a_speedup_is_of_two_sweeps_with_empty_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    roots: list[Path] = []

    def sweep(within: Pool) -> None:
        roots.append(cache_root())
        assert not list(cache_root().iterdir())
        for future in [within.executor.submit(time.sleep, 0.2) for _ in range(4)]:
            future.result()

    show_speedup(sweep, "threads", 4, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [(run["workers"], run["tasks"], len(run["task_seconds"])) for run in shown["runs"]] == [(1, 4, 4), (4, 4, 4)]
    assert shown["speedup"] > 1.5 and all(0.2 <= run["median"] <= run["longest"] for run in shown["runs"])
    assert len({tmp_path, *roots}) == 3 and cache_root() == tmp_path and not any(root.exists() for root in roots)
    show_speedup(sweep, "threads", 2, as_json=False)
    assert "2 workers are" in capsys.readouterr().out
    with pytest.raises(InvalidProblem, match="--speedup is of this machine"):
        show_speedup(sweep, "dask://here:1", 2, as_json=False)
    opened: list[tuple[int, Sequence[Mapping[str, str]]]] = []

    def on_gpus(where: str, count: int, *, places: Sequence[Mapping[str, str]]) -> AbstractContextManager[Pool]:
        opened.append((count, places))
        return pool(where, max(1, len(places)))

    gpus = ({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"})
    show_speedup(sweep, "threads", 1, places=gpus, opened=on_gpus, as_json=False)
    assert opened == [(1, gpus[:1]), (1, gpus)] and "2 workers are" in capsys.readouterr().out
    with pytest.raises(InvalidProblem, match="--speedup is of several GPUs beside one; --gpus names 1"):
        show_speedup(sweep, "threads", 1, places=gpus[:1], as_json=False)


@pytest.mark.parametrize("command", ["compile", "check"])
def test_commands_show_their_speedup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(f"baracuda.cli.kernels.{command}.list_kernels", lambda *a, **k: list_kernels(*a, **k)[:2])
    options = ["--arch", "sm_80", "--layouts", "dense", "--speedup", "--jobs", "2", "--json"]
    shown = CliRunner().invoke(main, [command, "ema", *options])
    assert shown.exit_code == 0, shown.output
    assert [run["workers"] for run in json.loads(shown.stdout)["runs"]] == [1, 2]


def test_a_speedup_of_tune_is_of_gpus() -> None:
    shown = CliRunner().invoke(main, ["tune", "softmax", "--speedup"])
    assert shown.exit_code == 1 and "--speedup is of several GPUs beside one; pass --gpus" in shown.stderr
