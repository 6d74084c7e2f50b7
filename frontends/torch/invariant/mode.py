"""Turning it on and off: a block, or for good.

Kernels are registered with torch's dispatcher, so they serve all threads of the process, those of autograd too, and
nothing is paid while none are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ContextDecorator, ExitStack
from threading import RLock
from typing import Any

import torch

import baracuda.runtime as rt

from .kernels import Exact, sized
from .table import COMPOSED, KERNELS, REFUSED

_KEYS = {"cuda": "CUDA", "cpu": "CPU"}
_LOCK = RLock()


class batch_invariant(ContextDecorator):  # called like a function
    """A block, or a function, in which torch's ops compute each sequence with the same bits in every batch.

    Ours take the place of aten's kernels of products, softmax, norms, sums and attention on `device`, "cuda" or
    "cpu" (the host device, slow and meant for tests). A call that has no such kernel raises `baracuda.runtime.
    Unsupported`; with `strict=False` it runs torch's own, which may depend on the batch, and warns once for each case.
    Blocks may be nested, and hold for all threads; where several are open, one that is strict decides.
    """

    def __init__(self, *, strict: bool = True, device: str = "cuda") -> None:
        self.strict, self.device = strict, device
        _known(device)

    def _recreate_cm(self) -> batch_invariant:
        return self

    def __enter__(self) -> batch_invariant:
        _hold(self.device, self.strict)
        return self

    def __exit__(self, *_raised: object) -> None:
        _release(self.device, self.strict)


def use_batch_invariant_ops(mode: bool, *, strict: bool = True, device: str = "cuda") -> None:
    """As `batch_invariant`, for good: until it is called with False."""
    with _LOCK:
        before = _for_good.pop(_known(device), None)
        if mode:
            _hold(device, strict)
            _for_good[device] = strict
        if before is not None:
            _release(device, before)


def are_batch_invariant_ops_enabled(device: str = "cuda") -> bool:
    """Whether ours are in the place of aten's kernels on `device`."""
    return _known(device) in _installed


class _Installed:
    """The kernels of one device, while anyone holds them."""

    def __init__(self, device: str) -> None:
        self.holders: list[bool] = []  # whether each is strict
        self.warned: set[tuple[str, str]] = set()
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Warning only once for all operators|Overriding a prev")
            try:
                self._register(_KEYS[device])
            except BaseException:
                self.remove()
                raise

    def remove(self) -> None:
        self._library._destroy()

    @property
    def strict(self) -> bool:
        return any(self.holders)

    def _register(self, key: str) -> None:
        wanted = [(name, compute, key) for name, compute in (KERNELS | dict.fromkeys(REFUSED, _refused)).items()]
        wanted += [(name, compute, k) for name, compute in COMPOSED.items() for k in (key, f"Autograd{key}")]
        # All of them first: a kernel of a device takes the place of what torch composes where autograd records.
        originals = [_original(name, of) for name, _, of in wanted]
        for (name, compute, of), original in zip(wanted, originals, strict=True):
            if original is not None:
                self._replace(name, compute, of, original)

    def _replace(self, name: str, compute: Callable[..., Any], key: str, original: Any) -> None:
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                return compute(*arguments, **keywords)
            except Exact:
                pass
            except rt.InvalidProblem as error:
                result = original.call_boxed(keys, *arguments, **keywords)  # torch says in its own words what is wrong
                self._refuse(name, str(error), arguments, keywords)
                return result
            except rt.Unsupported as error:
                self._refuse(name, str(error), arguments, keywords)
            return original.call_boxed(keys, *arguments, **keywords)

        self._library.impl(name, call, key)

    def _refuse(self, name: str, reason: str, arguments: Any, keywords: Any) -> None:
        """Raise, or warn if that has been asked for."""
        tensors = [t for t in (*arguments, *keywords.values()) if isinstance(t, torch.Tensor)]
        told = f"aten::{name} of {sized(tensors)} has no batch-invariant kernel: {reason}"
        if self.strict:
            raise rt.Unsupported(f"{told}; pass strict=False to run torch's, whose bits may depend on the batch")
        if (name, reason) not in self.warned:
            self.warned.add((name, reason))
            warnings.warn(f"{told}; torch's runs, whose bits may depend on the batch", stacklevel=4)


_installed: dict[str, _Installed] = {}
_ways_around = ExitStack()  # restores what torch otherwise takes beside its ops
_for_good: dict[str, bool] = {}


def _original(name: str, key: str) -> Any:
    """Torch's kernel; None if this torch has no such op, or not on this device, or composes it of others there."""
    has, of = torch._C._dispatch_has_kernel_for_dispatch_key, f"aten::{name}"
    try:
        composed = has(of, "CompositeImplicitAutograd") and not has(of, key)
        return None if composed and name not in COMPOSED else torch.library.get_kernel(of, key)
    except RuntimeError:
        return None


def _refused(*arguments: Any, **_keywords: Any) -> Any:
    if not any(isinstance(a, torch.Tensor) and (a.is_floating_point() or a.is_complex()) for a in arguments):
        raise Exact
    raise rt.Unsupported("there is none of this op")


def _known(device: str) -> str:
    if device not in _KEYS:
        raise rt.InvalidProblem(f"device is {device!r}; needs 'cuda' or 'cpu'")
    return device


def _hold(device: str, strict: bool) -> None:
    with _LOCK:
        if device not in _installed:
            _check(device)
            installed = _Installed(device)
            if not _installed:
                _close_ways_around()
            _installed[device] = installed
        _installed[device].holders.append(strict)


def _release(device: str, strict: bool) -> None:
    with _LOCK:
        held = _installed[device]
        held.holders.remove(strict)
        if not held.holders:
            del _installed[device]
            held.remove()
            if not _installed:
                _ways_around.close()


def _close_ways_around() -> None:
    """Code of Inductor has kernels of its own; encoders of nn have one for all that they do."""
    _ways_around.enter_context(torch.compiler.set_stance("force_eager"))
    fast = torch.backends.mha
    _ways_around.callback(fast.set_fastpath_enabled, fast.get_fastpath_enabled())
    fast.set_fastpath_enabled(False)


def _check(device: str) -> None:
    if not hasattr(torch.library, "get_kernel"):
        raise rt.Unsupported(f"torch is {torch.__version__}; needs 2.9, whose dispatcher gives back what it replaces")
    if device == "cuda" and torch.version.cuda is None:
        raise rt.Unsupported("torch is built without CUDA; batch_invariant(device='cpu') runs on the host device")
