"""The rules of a kernel's contract: each yields what was seen and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from baracuda.codegen.lower.op import Op
from baracuda.runtime import KernelSku
from baracuda.runtime.device import KernelSource
from baracuda.runtime.devices.limits import STATIC_SHARED_BYTES

from .facts import Facts
from .limits import REGISTERS_PER_BLOCK, REGISTERS_PER_THREAD, THREADS_PER_BLOCK, registers_of_block
from .vectors import vectors

_THREADS = re.compile(r"^BARACUDA_SCHEDULE=.*\bTHREADS=(\d+)")


@dataclass(frozen=True, slots=True)
class Subject:
    """A compiled kernel and its contract."""

    op: Op
    sku: KernelSku
    layout: str
    arch: str
    facts: Facts
    source: KernelSource | None = None

    @property
    def threads(self) -> int:
        """Of a block: the schedule's, which for arrays that this cannot serve is another than the SKU's."""
        defines = self.source.defines if self.source else ()
        own = next((found for text in defines if (found := _THREADS.search(text))), None)
        return int(own[1]) if own else self.sku.schedule.threads


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a kernel breaks."""

    subject: Subject
    rule: str
    message: str  # values seen, values needed

    def __str__(self) -> str:
        s = self.subject
        return f"{s.sku} ({s.layout}, {s.arch}): {self.rule}: {self.message}"


def registers(s: Subject) -> Iterator[str]:
    """Registers per thread and per block."""
    used, threads = s.facts.resources.registers, s.threads
    allowed = min(s.op.allowance(s.sku.arch).registers or REGISTERS_PER_THREAD, REGISTERS_PER_THREAD)
    if used > allowed:
        yield f"{used} registers a thread, allowed are {allowed}"
    if threads > THREADS_PER_BLOCK:
        yield f"{threads} threads a block, {s.arch} has {THREADS_PER_BLOCK}"
    if (taken := registers_of_block(used, threads)) > REGISTERS_PER_BLOCK:
        yield f"{taken} registers a block, {s.arch} has {REGISTERS_PER_BLOCK}"


def shared_memory(s: Subject) -> Iterator[str]:
    """Static shared memory, at most 48 KiB."""
    used, declared = s.facts.resources.shared_bytes, s.op.allowance(s.sku.arch).shared_bytes
    allowed = STATIC_SHARED_BYTES if declared is None else min(declared, STATIC_SHARED_BYTES)
    if used > allowed:
        yield f"{used} bytes of shared memory a block, allowed are {allowed}"


def spills(s: Subject) -> Iterator[str]:
    """Spilled registers."""
    used, allowed = s.facts.resources.spill_bytes, s.op.allowance(s.sku.arch).spills(s.layout, s.arch)
    if used > allowed:
        keys = f"spill_bytes: {{{s.layout}: {used}}}"
        yield f"{used} bytes spilled, allowed are {allowed}; keep fewer values, or allow it by {keys} under arch"


def local_memory(s: Subject) -> Iterator[str]:
    """A stack that spills do not explain."""
    used, local, allowed = s.facts.resources, s.facts.sass.local, s.op.allowance(s.sku.arch).stack_bytes
    if used.stack_bytes > used.spill_bytes + allowed or (local and not used.spill_bytes + allowed):
        yield (
            f"{used.stack_bytes} bytes of stack ({_listed(local) or 'not used'}) for {used.spill_bytes} bytes spilled, "
            f"allowed are {allowed} more; an array is indexed at run time, which stack_bytes under arch allows"
        )


def flushing(s: Subject) -> Iterator[str]:
    """Subnormal results and operands flushed to zero."""
    operations = {**s.facts.ptx.flushing, **_only(s.facts.hidden, ".ftz")}
    if operations and not s.op.flush_subnormals:
        yield f"{_listed(operations)} in the PTX; precision.subnormals is keep"


def contraction(s: Subject) -> Iterator[str]:
    """Products and sums that were fused, or that the assembler may fuse."""
    operations = {**s.facts.ptx.fusable, **_only(s.facts.hidden, "fma")}
    if operations and not s.op.contraction:
        yield f"{_listed(operations)} in the PTX, which may be or were fused; precision.contraction is false"


def rounding(s: Subject) -> Iterator[str]:
    """Divisions and square roots that are not correctly rounded."""
    if s.facts.ptx.loose:
        yield f"{_listed(s.facts.ptx.loose)} in the PTX; division and square root are correctly rounded"


def products(s: Subject) -> Iterator[str]:
    """Products on tensor cores of other types than the SKU's: what they multiply was rounded to that type."""
    guarantee = s.sku.precision_guarantee
    math = str(guarantee.math_precision).removesuffix("x3")
    allowed = f"{math}.{_SUMS.get(math, guarantee.accumulator)}" if math in _MULTIPLIED else "none"
    products = {name: n for name, n in s.facts.sass.products.items() if name != allowed}
    if products:
        yield f"{_listed(products)} products on tensor cores; the SKU says {guarantee.math_precision}, so {allowed}"


_MULTIPLIED = ("f16", "bf16", "tf32", "f64", "f8", "i8")  # by tensor cores
_SUMS = {"i8": "i32"}  # whatever the accumulator is
_BULK = ("UBLKRED", "cp.reduce.")  # sums that the copy engine adds to memory


def float_atomics(s: Subject) -> Iterator[str]:
    """Float sums in arrival order; compare-and-swap is the hand-written form."""
    atomics = s.facts.sass.atomics or s.facts.ptx.atomics
    if s.op.allowance(s.sku.arch).in_turns:
        atomics = {name: n for name, n in atomics.items() if not name.startswith(_BULK)}
    promised = [name for name, rungs in s.op.promises if rungs]
    if atomics and promised:
        yield f"{_listed(atomics)}; {', '.join(promised)} promise the same bits"


def waits(s: Subject) -> Iterator[str]:
    """Waits that may give up, and are not repeated."""
    if s.facts.ptx.unread_tries:
        yield f"{s.facts.ptx.unread_tries} mbarrier.try_wait whose answer nothing reads; it may give up, so try again"


def wgmma(s: Subject) -> Iterator[str]:
    """Serialised wgmma instructions."""
    yield from s.facts.serialised


RULES: Mapping[str, Callable[[Subject], Iterator[str]]] = {
    "registers": registers,
    "shared memory": shared_memory,
    "spills": spills,
    "local memory": local_memory,
    "flushing": flushing,
    "contraction": contraction,
    "rounding": rounding,
    "products": products,
    "float atomics": float_atomics,
    "vector width": lambda s: vectors(s.op, s.sku, s.layout, s.facts),
    "waits": waits,
    "wgmma": wgmma,
}


def violations(subject: Subject) -> list[Violation]:
    """All violations of `subject`."""
    return [Violation(subject, name, message) for name, rule in RULES.items() for message in rule(subject)]


def _only(counts: Mapping[str, int], name: str) -> dict[str, int]:
    return {name: counts[name]} if name in counts else {}


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
