"""Run work in a forked child, so that a crash, a hang or corrupted memory stays there."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn


class Died(Exception):
    """The child ended without an answer; the message says how."""


def apart(work: Callable[[], Any], seconds: float) -> Any:
    """What `work` returns, through JSON; raises Died if it crashes or takes more than `seconds`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _work(work, write)
    os.close(write)
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(child, child)  # the child does this too; whichever comes first
    try:
        answer = _all_of(read, time.monotonic() + seconds)
    finally:
        os.close(read)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with all its children
        exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if answer is None:
        raise Died(f"not finished after {seconds:g} seconds")
    if not answer:
        raise Died(f"killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exited with {exit_code}")
    return json.loads(answer)


def _work(work: Callable[[], Any], write: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        answer = json.dumps(work()).encode()
        while answer:
            answer = answer[os.write(write, answer) :]
        code = 0
    finally:
        os._exit(code)


def _all_of(read: int, deadline: float) -> bytes | None:
    """Everything until the other end is closed; None at the deadline."""
    data = b""
    while (remaining := deadline - time.monotonic()) > 0 and select.select([read], [], [], remaining)[0]:
        piece = os.read(read, 1 << 16)
        if not piece:
            return data
        data += piece
    return None
