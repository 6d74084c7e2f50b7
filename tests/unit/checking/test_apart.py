"""Invariant: a process that dies, hangs or is spoiled costs the task it had, and none outlives its sweep."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from baracuda.checking import gpus
from baracuda.checking.apart import Apart, Lost, Processes, retire
from baracuda.checking.executors import PROCESSES, Pool, each, pool
from baracuda.runtime import DriverError, InvalidProblem
from baracuda.runtime.devices.cuda import CudaDevice

SAID = "import os, sys; print('a last word', file=sys.stderr, flush=True); os._exit(7)"


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes(Apart((("SEEN", "yes"),), patience=20.0))
    yield made
    made.close()


def test_a_task_is_done_in_the_process_that_was_free_last(processes: Processes) -> None:
    first = processes.do((os.getpid, (), {}))
    assert first == processes.do((os.getpid, (), {})) != os.getpid()
    assert processes.do((os.getenv, ("SEEN",), {})) == "yes"
    with pytest.raises(ValueError, match="invalid literal"):
        processes.do((int, ("x",), {}))
    with pytest.raises(ModuleNotFoundError, match="gone"):
        processes.do((_Gone(), (), {}))
    assert processes.do((os.getpid, (), {})) == first


class _Gone:
    """What no process can load."""

    def __reduce__(self) -> tuple[object, ...]:
        return import_module, ("gone",)

    def __call__(self) -> None:
        return None


def test_a_process_that_dies_says_its_last_word_and_is_replaced(processes: Processes) -> None:
    first = processes.do((os.getpid, (), {}))
    with pytest.raises(Lost, match=r"^the process that had this task died with 7; it said 'a last word'$"):
        processes.do((exec, (SAID, {}), {}))
    assert processes.do((os.getpid, (), {})) != first
    processes.do((retire, (), {}))
    assert processes.do((os.getenv, ("SEEN",), {})) == "yes"


def test_a_task_that_takes_too_long_is_lost_with_what_it_has_started() -> None:
    processes = Processes(Apart(patience=20.0))
    folder = Path(str(processes.do((os.getenv, ("TMPDIR",), {}))))
    processes._apart = Apart(patience=1.0)
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_SLEEPS.format(folder=folder)!r}])"
    with pytest.raises(Lost, match="was not done after 1 s"):
        processes.do((exec, (child, {}), {}))
    for _ in range(100):
        if (folder / "pid").exists() and not _runs(int((folder / "pid").read_text() or 0)):
            break
        time.sleep(0.1)
    else:
        pytest.fail("what the process started is still there")
    processes.close()
    assert not folder.exists()
    with pytest.raises(Lost, match="the sweep was stopped"):
        processes.do((abs, (-1,), {}))


_SLEEPS = "import os, pathlib, time; pathlib.Path('{folder}/pid').write_text(str(os.getpid())); time.sleep(600)"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_sweep_ends_with_its_processes_and_goes_on_without_a_lost_one() -> None:
    with pool(PROCESSES, 2, apart=Apart()) as within:
        found = dict(each(within, os._exit, deque([3]))) | dict(each(within, abs, deque([-1, -2, -3, -4])))
        pids = {within.executor.submit(os.getpid).result() for _ in range(2)}
    assert {task: value for task, value in found.items() if task != 3} == {-1: 1, -2: 2, -3: 3, -4: 4}
    assert isinstance(found[3], Lost) and not any(map(_runs, pids))


def test_tasks_that_come_meanwhile_are_done_and_no_more_are_given_out_than_there_are_workers() -> None:
    tasks = deque([3, 1])
    given = []
    for task, value in each(Pool(ThreadPoolExecutor(1), 1), str, tasks):
        given.append((value, len(tasks)))
        if task == 3:
            tasks.appendleft(2)
    assert given == [("3", 1), ("2", 1), ("1", 0)]
    with pytest.raises(ValueError, match="invalid literal"):
        list(each(Pool(ThreadPoolExecutor(1), 1), int, deque(["x", "1"])))


def test_threads_are_no_executor_of_what_may_crash() -> None:
    says = "no executor 'threads' for this; known are processes and dask://"
    with pytest.raises(InvalidProblem, match=says), pool("threads", apart=Apart()):
        pass


# GPUs


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setattr(CudaDevice, "count", lambda: 3)


def test_each_gpu_has_a_process_that_sees_no_other(three: None) -> None:
    with pool(PROCESSES, 1, apart=Apart(), places=gpus.places("0,2")) as within:
        assert within.workers == 2
        seen = [process._variables[gpus.VISIBLE] for process in within.executor._processes._free]  # type: ignore[attr-defined]
        asked = [within.executor.submit(exec, _WAITS, {}) for _ in range(2)]
        names = {future.exception() and str(future.exception()) for future in asked}
    assert sorted(seen) == ["0", "2"] and names == {"0", "2"}


_WAITS = "import os, time; time.sleep(2); raise ValueError(os.environ['CUDA_VISIBLE_DEVICES'])"


def test_gpus_are_named_as_this_process_sees_them(three: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus.chosen("all") == ("0", "1", "2") and gpus.chosen("2,0,2") == ("2", "0")
    monkeypatch.setenv(gpus.VISIBLE, "5,GPU-3,1")
    assert gpus.chosen("all") == ("5", "GPU-3", "1") and gpus.chosen("1") == ("GPU-3",)
    assert gpus.places(None) == ()
    for text in ("3", "x", "", "-1", "0,"):
        with pytest.raises(InvalidProblem, match=rf"--gpus is all or numbers below 3, .* got '{text}'"):
            gpus.chosen(text)
    with pytest.raises(InvalidProblem, match="--gpus all is for --device cuda, not host"):
        gpus.places("all", "host")
    monkeypatch.setattr(CudaDevice, "count", lambda: 0)
    with pytest.raises(DriverError, match="no CUDA device for --gpus all"):
        gpus.places("all")


def test_a_worker_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pool(PROCESSES, 1, apart=Apart()) as within:
        within.executor.submit(print, "noise").result()
        within.executor.submit(subprocess.run, [sys.executable, "-c", "print('noise')"]).result()
    assert capfd.readouterr() == ("", "")
