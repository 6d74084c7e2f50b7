"""The GPUs of this machine that a sweep uses: a process each, which sees no other."""

from __future__ import annotations

import os

from baracuda.runtime import DriverError, InvalidProblem
from baracuda.runtime.devices.cuda import CudaDevice

VISIBLE = "CUDA_VISIBLE_DEVICES"
ALL = "all"


def chosen(text: str) -> tuple[str, ...]:
    """The GPUs that "all" or numbers such as "0,2" name, as the driver is told of them; numbers are those seen here."""
    names = visible()
    if not names:
        raise DriverError(f"no CUDA device for --gpus {text}")
    if text == ALL:
        return names
    for number in (numbers := text.split(",")):
        if not number.isdecimal() or int(number) >= len(names):
            raise InvalidProblem(f"--gpus is {ALL} or numbers below {len(names)}, parted by commas; got {text!r}")
    return tuple(dict.fromkeys(names[int(number)] for number in numbers))


def visible() -> tuple[str, ...]:
    """The GPUs that this process sees, in order."""
    told = os.environ.get(VISIBLE)
    found = CudaDevice.count()
    return tuple(told.split(",")[:found]) if told is not None else tuple(map(str, range(found)))


def places(text: str | None, device: str = "cuda") -> tuple[dict[str, str], ...]:
    """Environment variables of processes with one GPU each; none unless GPUs are asked for."""
    if text is None:
        return ()
    if device != "cuda":
        raise InvalidProblem(f"--gpus {text} is for --device cuda, not {device}")
    return tuple({VISIBLE: name} for name in chosen(text))
