"""The audit of many kernels: their resources and the rules that they break."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from baracuda.checking.audit.collect import Job, Outcome, collect
from baracuda.checking.audit.facts import Facts
from baracuda.checking.audit.rules import Subject, Violation, violations
from baracuda.checking.executors import Pool
from baracuda.checking.listing.variant import Variant
from baracuda.codegen.lower.op import Op
from baracuda.codegen.spec.place import with_field
from baracuda.runtime import CompileError

from ..terminal import Row, progress
from .compile_report import show_errors

if TYPE_CHECKING:
    from baracuda.codegen.spec.load import Loaded


_SPILLS = "spills"


@dataclass(frozen=True, slots=True)
class Audited:
    """The outcome for one variant."""

    variant: Variant
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Audit:
    """All outcomes, wall time in seconds, and how many kernels were not audited."""

    audited: list[Audited]
    violations: list[Violation]
    seconds: float
    remembered: int = 0  # clean kernels of an earlier run
    listed: int = 0  # kernels that there are, where these are a sample of them

    @classmethod
    def of(
        cls, variants: Sequence[Variant], ops: Mapping[str, Op], *, within: Pool | None = None, listed: int = 0
    ) -> Audit:
        """Compile `variants`, or find them in the cache, with a progress bar, and check their contracts."""
        start = time.perf_counter()
        outcomes: dict[int, Outcome] = {}
        with progress("auditing", len(variants)) as advance:

            def done(index: int, outcome: Outcome) -> None:
                outcomes[index] = outcome
                advance()

            collect([Job(v.source, v.arch) for v in variants], on_done=done, within=within)
        audited = [Audited(variant, outcomes[index]) for index, variant in enumerate(variants)]
        broken = [v for entry in audited for v in _violations(entry, ops)]
        return cls(audited, broken, time.perf_counter() - start, listed=listed)

    @property
    def failed(self) -> list[CompileError]:
        return [a.outcome for a in self.audited if isinstance(a.outcome, CompileError)]

    def show(self, loaded: Mapping[str, Loaded]) -> None:
        """Print counts, and on stderr compile errors and one line per violation; of spills one per op."""
        click.echo(self)
        show_errors(self.failed, loaded)
        for violation in self.violations:
            if violation.rule != _SPILLS:
                click.echo(str(violation), err=True)
        for line in spill_lines(self.violations):
            click.echo(line, err=True)

    def facts(self, loaded: Mapping[str, Loaded]) -> Row:
        """The content of `show`, for JSON."""
        broken = [
            {"sku": str(s.sku), "layout": s.layout, "arch": s.arch, "rule": v.rule, "what": v.message}
            for v in self.violations
            for s in (v.subject,)
        ]
        failed = [with_field(str(error), loaded) for error in self.failed]
        counts = {"kernels": self.kernels, "listed": max(self.listed, self.kernels), "cached": self.cached}
        return {**counts, "violations": broken, "failed": failed}

    @property
    def kernels(self) -> int:
        """The number of kernels."""
        return len(self.audited) + self.remembered

    @property
    def cached(self) -> int:
        """How many came from the cache."""
        facts = [a.outcome for a in self.audited if isinstance(a.outcome, Facts)]
        return sum(not f.resources.seconds for f in facts) + self.remembered

    def __str__(self) -> str:
        sampled = f" of {self.listed}" if self.listed > self.kernels else ""
        every = "; --all audits every one" if sampled else ""
        return (
            f"{self.kernels}{sampled} kernels audited in {self.seconds:.1f} s: {self.cached} cached, "
            f"{len({id(v.subject) for v in self.violations})} against their contracts, {len(self.failed)} failed{every}"
        )


def spill_lines(violations: Iterable[Violation]) -> Iterator[str]:
    """For each op and architecture of kernels that spill too much, what to write in the spec to allow it."""
    kernels: dict[tuple[str, str], list[Subject]] = {}
    for violation in violations:
        if violation.rule == _SPILLS:
            subject = violation.subject
            kernels.setdefault((subject.sku.op, subject.sku.arch), []).append(subject)
    for (op, arch), subjects in kernels.items():
        limits: dict[str, dict[str, int]] = {}  # by layout and device from which on
        for layout, least, count in subjects[0].op.allowance(arch).spill_bytes:
            limits.setdefault(layout, {})[least] = count
        for s in subjects:
            of_layout = limits.setdefault(s.layout, {})
            device = s.arch if len(of_layout) > 1 else next(iter(of_layout), arch)
            of_layout[device] = max(of_layout.get(device, 0), s.facts.resources.spill_bytes)
        written = ", ".join(f"{layout}: {_limit(of_layout)}" for layout, of_layout in limits.items())
        most = max(s.facts.resources.spill_bytes for s in subjects)
        what = f"{len(subjects)} of its kernels spill more than allowed, up to {most} bytes"
        yield f"{op}: {what}; keep fewer values, or allow it by spill_bytes: {{{written}}} under arch, {arch}"


def _limit(by_device: Mapping[str, int]) -> str:
    if len(by_device) == 1:
        return str(*by_device.values())
    return "{" + ", ".join(f"{device}: {count}" for device, count in by_device.items()) + "}"


def _violations(entry: Audited, ops: Mapping[str, Op]) -> list[Violation]:
    if not isinstance(entry.outcome, Facts):
        return []
    variant, sku = entry.variant, entry.variant.row.sku
    return violations(Subject(ops[sku.op], sku, variant.layout, variant.arch, entry.outcome, variant.source))


def facts_row(facts: Facts) -> Row:
    """A kernel's row in tables; widths are those of the widest global loads and stores, in bytes."""
    resources = facts.resources
    return {
        "registers": resources.registers,
        "shared": resources.shared_bytes,
        "stack": resources.stack_bytes,
        "spill": resources.spill_bytes,
        "load": facts.widest_load,
        "store": facts.widest_store,
        "digest": facts.digest[:12],
    }
