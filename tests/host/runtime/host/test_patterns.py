"""Legal patterns that look like mistakes: right in every order of threads, and nothing for check mode to report."""

from __future__ import annotations

import pytest
from host.jobs import run_in_every_order
from host.odd_patterns import PATTERNS

from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.host import HostDevice

EACH = pytest.mark.parametrize("pattern", PATTERNS)


@EACH
def test_numbers(any_device, pattern):
    any_device.timeout, any_device.workers = 20, 2
    run_in_every_order(any_device, PATTERNS[pattern]())


@EACH
def test_check_mode_is_silent(any_device, pattern):
    device = HostDevice(any_device.compiler, check=True)
    device.timeout = 20
    run_in_every_order(device, PATTERNS[pattern]())


@EACH
def test_assembles(pattern):
    compile_cubin(PATTERNS[pattern]().source(), "sm_80")
