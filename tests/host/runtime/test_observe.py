"""What users see of the runtime: log records by level, a status line while kernels compile, NVTX ranges on request."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from repository import share_runtime

from baracuda.checking.audit.image import code_digest
from baracuda.cli.terminal import working
from baracuda.generated import FlashSdpaDescriptor, FlashSdpaPlan, RMSNormBackwardDescriptor, RMSNormBackwardPlan
from baracuda.runtime import observe
from baracuda.runtime.compile.cubin import assemble, compile_cubin, cubin_key
from baracuda.runtime.device import KernelSource
from baracuda.runtime.errors import CompileError
from baracuda.runtime.host import HostDevice

SOURCE = KernelSource("a.cu", 'extern "C" __global__ void axpy(float* x) { x[threadIdx.x] *= 2; }', "axpy")
BROKEN = KernelSource("a.cu", "nonsense", "axpy")

_RUNS = """
import numpy as np
from baracuda.generated import SoftmaxDescriptor, SoftmaxPlan
x, y = np.ones((2, 8), np.float32), np.empty((2, 8), np.float32)
plan = SoftmaxPlan.select(SoftmaxDescriptor(input_shape=x.shape, softmax_axis=-1, element="f32"))
for _ in range(2):
    plan.run(x=x, y=y)
"""


def stderr_of(script: str, cache: Path, **environment: str) -> list[str]:
    around = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "BARACUDA_CACHE_DIR": str(cache)} | environment
    done = subprocess.run([sys.executable, "-c", script], env=around, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_levels_of_the_log(tmp_path: Path) -> None:
    """Nothing by default; what is compiled at info; what is selected and loaded, and from where, at debug."""
    share_runtime(tmp_path)
    (compiled,) = stderr_of(_RUNS, tmp_path, BARACUDA_LOG="info")
    assert compiled.startswith("baracuda INFO: compiled softmax_f32_")
    assert " for the host device in " in compiled and compiled.endswith(" s")
    assert stderr_of(_RUNS, tmp_path, BARACUDA_LOG="Info") == stderr_of(_RUNS, tmp_path) == []  # it is in the cache
    lines = stderr_of(_RUNS, tmp_path, BARACUDA_LOG="debug")
    assert [line.split()[2] for line in lines] == ["SoftmaxPlan:", "SoftmaxPlan:", "loaded"]
    assert "selected softmax" in lines[1] and "SoftmaxDescriptor(input_shape=(2, 8)" in lines[1]
    (warning,) = stderr_of("import baracuda.runtime", tmp_path, BARACUDA_LOG="loud")
    assert warning == "BARACUDA_LOG is 'loud'; needs one of debug, info, warning, error"


def test_refused_candidates_are_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """At debug, each with its reason; a selection that is remembered says nothing again."""
    monkeypatch.setattr(FlashSdpaPlan, "_selected", {})
    caplog.set_level(logging.DEBUG, "baracuda")
    sizes = {"batch_size": 1, "num_heads": 2, "query_len": 9, "key_len": 60, "d_k": 12, "d_v": 8}
    plan = FlashSdpaPlan.select(FlashSdpaDescriptor(**sizes, is_causal=False, scale=1.0, element="f16"))
    refused = [text for text in caplog.messages if text.startswith("FlashSdpaPlan: refused attention/flash_sdpa")]
    assert len(set(refused)) == len(refused) > 1 and all(": needs " in text for text in refused)
    assert caplog.messages[-1] == f"FlashSdpaPlan: selected {plan.sku} for {plan.descriptor}"
    caplog.clear()
    FlashSdpaPlan.select(plan.descriptor)
    assert not caplog.messages


def test_compiling_for_a_gpu_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """With what it occupies, once; later the cache is named."""
    caplog.set_level(logging.DEBUG, "baracuda")
    cubin = compile_cubin(SOURCE, "sm_90", folder=tmp_path)
    (record,) = caplog.records
    assert record.levelno == logging.INFO and record.name == "baracuda"
    assert record.message.startswith("compiled axpy for sm_90 in ")
    assert record.message.endswith(f" s: {cubin.resources.registers} registers, 0 bytes spilled")
    compile_cubin(SOURCE, "sm_90", folder=tmp_path)
    assert caplog.messages[1:] == ["axpy for sm_90 is in the cache"]


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> Iterator[io.StringIO]:
    """A terminal as stderr; what is written to it."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            return 2

    screen = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        patch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((columns, 24)))
        patch.delenv("BARACUDA_PROGRESS", raising=False)
        patch.setenv("TERM", "xterm")
        yield screen


def test_status_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It names the kernel, on every device, and is erased at the end, whatever comes of it; the cache shows none."""
    share_runtime(tmp_path)
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    for name, work in {
        "the host device": lambda: HostDevice().load(SOURCE),
        "sm_90": lambda: compile_cubin(SOURCE, "sm_90"),
    }.items():
        with terminal(monkeypatch) as screen:
            work()
            shown = screen.getvalue()
            work()
            assert shown == screen.getvalue() == f"\r\x1b[2Kbaracuda: compiling axpy for {name}\r\x1b[2K"
    with terminal(monkeypatch) as screen, pytest.raises(CompileError):
        compile_cubin(BROKEN, "sm_90")
    assert screen.getvalue().endswith("\x1b[2K")


def test_status_line_of_several_threads_and_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=40) as screen, observe.compiling("first", "sm_90"):
        with observe.compiling("second", "sm_90"):
            pass
        with observe.compiling("third_of_a_long_name", "sm_90"):
            pass
    lines = screen.getvalue().split("\r\x1b[2K")[1:]
    assert lines[0] == lines[2] == "baracuda: compiling first for sm_90"
    assert lines[1] == lines[3] == "baracuda: compiling first for sm_90 and 1 more"[:39]
    assert lines[4:] == ["baracuda: compiling first for sm_90", ""]


def test_status_line_of_a_terminal_that_does_not_know_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=0) as screen, observe.compiling("axpy", "sm_90"):
        pass
    assert screen.getvalue().startswith("\r\x1b[2Kbaracuda: compiling axpy for sm_90\r")


def test_no_status_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe, where it is not wanted, and beside the progress that commands show."""
    with observe.compiling("axpy", "sm_90"):
        pass
    assert capsys.readouterr().err == ""
    for name, value in (("BARACUDA_PROGRESS", "0"), ("TERM", "dumb")):
        with terminal(monkeypatch) as screen:
            monkeypatch.setenv(name, value)
            with observe.compiling("axpy", "sm_90"):
                pass
            assert screen.getvalue() == ""
            monkeypatch.delenv(name)
    with terminal(monkeypatch) as screen:
        with working("at something"), observe.compiling("axpy", "sm_90"):
            pass
        assert "at something" in screen.getvalue() and "axpy" not in screen.getvalue()
    monkeypatch.setattr(sys, "stderr", None)
    with observe.compiling("axpy", "sm_90"):
        pass


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the package nvtx would be asked for: each range at its beginning, and "end"."""
    seen: list[str] = []

    class Annotation:
        def __init__(self, message: str, domain: str) -> None:
            self.text = f"{domain}: {message}"

        def __enter__(self) -> None:
            seen.append(self.text)

        def __exit__(self, *_: object) -> None:
            seen.append("end")

    monkeypatch.setitem(sys.modules, "nvtx", types.SimpleNamespace(annotate=Annotation))
    monkeypatch.setenv("BARACUDA_NVTX", "1")
    observe._nvtx.cache_clear()
    yield seen
    observe._nvtx.cache_clear()


def test_nvtx_ranges(ranges: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A range for each compilation, and one for all the kernels of a call, by each of the ways to call."""
    compile_cubin(SOURCE, "sm_90", folder=tmp_path)
    assert ranges == ["baracuda: compile axpy for sm_90", "end"]
    monkeypatch.setattr(RMSNormBackwardPlan, "_selected", {})
    dy = np.ones((64, 8), np.float32)
    arrays = {"dy": dy, "x": dy, "gamma": dy[0], "rms": dy[:, :1], "dx": dy.copy(), "dgamma": dy[0].copy()}
    problem = RMSNormBackwardDescriptor(input_shape=dy.shape, norm_axes_mask=2, has_gamma=True, element="f32")
    plan = RMSNormBackwardPlan.select(problem)
    arrays["workspace"] = np.empty(plan.workspace_bytes, np.uint8)
    plan.prepare("host")
    ranges.clear()
    plan.run(**arrays)
    (first, last) = ranges
    assert first.startswith("baracuda: RMSNormBackwardPlan: rms_norm_backward_f32_") and last == "end"
    plan.run(**arrays)  # is remembered
    plan.run_unchecked(**arrays)
    plan.bind(**arrays)()
    assert ranges == [first, last] * 4


def test_nvtx_ranges_cost_nothing_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch is then what it was: the same function."""
    observe._nvtx.cache_clear()
    monkeypatch.delenv("BARACUDA_NVTX", raising=False)
    assert observe.in_nvtx_range("name", print) is print
    observe._nvtx.cache_clear()


def test_nvtx_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, and launches go on."""
    observe._nvtx.cache_clear()
    monkeypatch.setenv("BARACUDA_NVTX", "1")
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert observe.in_nvtx_range("name", print) is print is observe.in_nvtx_range("name", print)
    assert caplog.messages == ["BARACUDA_NVTX=1 needs the package nvtx, which is not installed; there are no ranges"]
    observe._nvtx.cache_clear()


def test_line_information_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine code, with the lines that it comes from, under a key of its own."""
    plain, key = assemble(SOURCE, "sm_90").cubin, cubin_key(SOURCE, "sm_90")
    monkeypatch.setenv("BARACUDA_LINEINFO", "1")
    lined = assemble(SOURCE, "sm_90").cubin
    assert b".debug_line" in lined.image and b".debug_line" not in plain.image
    assert code_digest(lined.image) == code_digest(plain.image) and cubin_key(SOURCE, "sm_90") != key
