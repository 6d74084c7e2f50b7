"""The errors of this package; every message has the value seen and the value needed."""

from __future__ import annotations

_LONGEST = 16_000  # characters of a message


class BaracudaError(Exception):
    """Base of every error that this package raises on purpose. Long messages are shortened when printed."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... (of {len(text)} characters)"


class Unsupported(BaracudaError):
    """The request is well formed, but no kernel serves it (dtype, rank, architecture, layout)."""


class InvalidProblem(BaracudaError, ValueError):
    """The descriptor or an argument contradicts itself or the operation."""


class _SizeError(BaracudaError, ValueError):
    def __init__(self, message: str, *, needed: int, got: int) -> None:
        super().__init__(f"{message}: needs {needed}, got {got}")
        self.needed, self.got = needed, got

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.needed, self.got)


def _rebuild(kind: type[_SizeError], args: tuple[object, ...], needed: int, got: int) -> _SizeError:
    error = kind.__new__(kind, *args)
    error.args, error.needed, error.got = args, needed, got
    return error


class BufferTooSmall(_SizeError):
    """A view addresses elements outside its buffer; `needed` and `got` count elements."""


class WorkspaceTooSmall(_SizeError):
    """The caller's workspace is smaller than `workspace_bytes`; `needed` and `got` count bytes."""


class MisalignedOperand(BaracudaError, ValueError):
    """A pointer is not a multiple of what its element type or the kernel needs."""


class OutOfMemory(BaracudaError, MemoryError):
    """An output that a function would allocate exceeds the available memory."""


class KernelInternal(BaracudaError, RuntimeError):
    """A kernel failed while running; `code` is the device's own status."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class DriverError(BaracudaError, RuntimeError):
    """The CUDA driver, or the host device in its place, refused a call."""


class CompileError(BaracudaError, RuntimeError):
    """The compiler rejected a generated source."""


class NotCompiled(CompileError):
    """BARACUDA_FROZEN=1 forbids compiling a kernel that neither a pack nor the cache has."""


class PackError(BaracudaError, RuntimeError):
    """A pack of compiled kernels is damaged, or not signed as it must be."""


class UnsafeCache(BaracudaError, RuntimeError):
    """Others may write to the cache of compiled kernels, so it is not used."""


class SpecError(BaracudaError, ValueError):
    """A spec file is wrong; each line of the message reads ``path:line: what; what would be right``."""
