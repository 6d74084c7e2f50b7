"""Which tests run where.

Tests marked `gpu` need as many CUDA devices as they say, and are skipped where there are fewer. Tests that are marked
`frontends`, and all in folders of that name, need torch, jax or the tools of the site: they run with --frontends, and
then nothing else does. No test needs a CUDA toolkit. Tests marked `long` start first.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from costs import Costs
from hypothesis import HealthCheck, settings

from baracuda.checking.variables import SAMPLE
from baracuda.runtime.devices.cuda import CudaDevice
from baracuda.runtime.devices.driver import query

# A machine's own toolkit must neither be needed nor help.
for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
    os.environ.pop(name, None)

FRONTENDS = "frontends"
HARDWARE = "CUDA device"  # in the only reasons for a skip that --no-skips allows


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--everything", action="store_true", help="test all kernels and ops, not a sample of them")
    parser.addoption("--frontends", action="store_true", help="test what needs torch, jax or the site's tools, alone")
    parser.addoption("--costs", metavar="FILE", help="write the processor seconds of every test to a file")
    parser.addoption("--no-skips", action="store_true", help="fail where a test is skipped, but for missing hardware")


def pytest_configure(config: pytest.Config) -> None:
    # Wall time says nothing about a test on a busy machine.
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
    if config.getoption("everything"):
        os.environ.pop(SAMPLE, None)
    else:
        os.environ.setdefault(SAMPLE, "0")
    config.pluginmanager.register(Costs(config.getoption("costs")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("frontends"):
        return True if collection_path.name == FRONTENDS else None
    read = collection_path.suffix == ".py" and FRONTENDS not in collection_path.parts  # others are not even imported
    return True if read and FRONTENDS not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("frontends")
    config.hook.pytest_deselected(items=[item for item in items if _needs_frontends(item) != wanted])
    items[:] = [item for item in items if _needs_frontends(item) == wanted]
    items.sort(key=lambda item: item.get_closest_marker("long") is None)  # so that no worker is left with one alone
    devices = query("cuDeviceGetCount") if CudaDevice.available() else 0
    for item in items:
        needed = max((marker.args[0] if marker.args else 1 for marker in item.iter_markers("gpu")), default=0)
        if devices < needed:
            item.add_marker(pytest.mark.skip(reason=f"{devices} {HARDWARE}s, needs {needed}"))


def pytest_collection_finish() -> None:
    gc.freeze()  # what all tests share, the catalogue among it, which each collection of garbage would walk through


def _needs_frontends(item: pytest.Item) -> bool:
    return FRONTENDS in item.path.parts or item.get_closest_marker(FRONTENDS) is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    return _unless_skipped((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    return _unless_skipped((yield), collector.config)


def _unless_skipped(report, config: pytest.Config):  # type: ignore[no-untyped-def]
    """The report, a failure if it is of a skip that --no-skips does not allow."""
    if report.skipped and config.getoption("no_skips") and HARDWARE not in str(report.longrepr):
        report.outcome, report.longrepr = "failed", f"skipped, which --no-skips forbids: {report.longrepr}"
    return report
