"""Rules of a body's table: names that meet in a kernel are distinct, and a device can launch what is constant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from baracuda.runtime import Schedule

from ...conditions.kinds import Kind, kind_of
from ...conditions.parse import ConditionError
from ...spec.checks.finding import Finding, Rule
from ...spec.types import Place
from .spec import BodySpec, ScheduleSpec

MAX_ENTRIES = 2000  # entry points of an op; the largest here has 147
MAX_RANK = 16
MAX_RESIDENT = 64  # blocks of a multiprocessor
_BUILT_IN = {  # what a schedule and a device give expressions, beside numbers
    "threads": Kind("int", 32, 1024),
    "itemsize": Kind("int", 1, 16),
    "accsize": Kind("int", 1, 16),
    "multiprocessors": Kind("int", 1, 2**16),
}


def numbers(spec: BodySpec) -> dict[str, Kind]:
    """The kinds of what schedules give expressions; a number that some do not list is 0 there."""
    kinds = dict(_BUILT_IN)
    for name in {name for row in spec.schedules for name in row.numbers}:
        values = [row.numbers.get(name, 0) for row in spec.schedules]
        kinds[name] = Kind("int", min(values), max(values))
    return kinds


def constants(spec: BodySpec) -> Iterator[Finding]:
    """No constant of `Variant` or `Schedule` is called like a macro."""
    places: dict[Place, str] = {("settings", name): name for name in spec.settings}
    places |= {("layouts", name): name.upper() for name in spec.layouts}
    places |= {("schedules", i, "numbers", n): n.upper() for i, row in enumerate(spec.schedules) for n in row.numbers}
    for place, name in places.items():
        if _MACRO.fullmatch(name):
            yield place, 0, f"{place[-1]!r} is a reserved word: {name} is a macro; choose another name"


# What compilers, the C library and our headers define in capitals: a constant called so would be replaced.
_MACRO = re.compile(
    r"(BARACUDA|CUDA|CUDART|SKU|DYN|FP|DBL|FLT|LDBL|EXIT|FD|M|MATH|MB|RENAME|SEEK|SIG)_.*|.*__.*|.*_ENDIAN|BYTE_ORDER"
    r"|U?INT\w*_(C|MAX|MIN|WIDTH)|(CHAR|FILENAME|FOPEN|LONG|PTRDIFF|RAND|SCHAR|SHRT|SIZE|SSIZE|TMP|U\w+|WCHAR|WINT)"
    r"_(BIT|MAX|MIN|WIDTH)|BUFSIZ|EDOM|EOF|ERANGE|HUGE_VAL\w*|I|INFINITY|MAXFLOAT|NAN|NDEBUG|NFDBITS|NULL|SNAN\w*"
    r"|W(CONTINUED|EXITED|EXITSTATUS|IF\w+|NOHANG|NOWAIT|STOPPED|STOPSIG|TERMSIG|UNTRACED)"
)


def entries(spec: BodySpec) -> Iterator[Finding]:
    """Every kernel of every schedule and element has a name of its own."""
    count = len(spec.kernels) * sum(len(row.dtypes) for row in spec.schedules)
    if count > MAX_ENTRIES:
        yield ("schedules",), 0, f"make {count} entry points; the most is {MAX_ENTRIES}"
        return
    first: dict[str, int] = {}
    for i, kernel in enumerate(spec.kernels):
        if first.setdefault(kernel.name, i) != i:
            yield ("kernels", i, "name"), 0, f"{kernel.name!r} is already kernel {first[kernel.name]}; rename one"
    symbols: dict[str, int] = {}
    for i, row in enumerate(spec.schedules):
        for name in sorted(_symbols(spec, row)):
            if (other := symbols.setdefault(name, i)) != i:
                text = f"differs from schedule {other} in no arch, dtype, threads or number; leave one"
                yield ("schedules", i), 0, text
                break


def _symbols(spec: BodySpec, row: ScheduleSpec) -> set[str]:
    """The ends of the names of its entry points."""
    tag = Schedule(row.threads, tuple(row.numbers.items())).tag
    return {f"{row.arch}_{dtype}_{tag}_{kernel.name}" for dtype in row.dtypes for kernel in spec.kernels}


def factors(spec: BodySpec) -> Iterator[Finding]:
    """Sums of two TF32 numbers stand for an f32, of which they keep nearly all bits."""
    for i, row in enumerate(spec.schedules):
        if row.math == "tf32x3" and (other := [dtype for dtype in row.dtypes if dtype != "f32"]):
            yield ("schedules", i, "math"), 0, f"is for f32 only, but the schedule is for {', '.join(other)} too"


def threads(spec: BodySpec) -> Iterator[Finding]:
    """The number that a kernel names is one of threads in each schedule that may launch it."""
    for i, row in enumerate(spec.schedules):
        if not 1 <= row.numbers.get("blocks_per_sm", 1) <= MAX_RESIDENT:
            place = ("schedules", i, "numbers", "blocks_per_sm")
            yield place, 0, f"must be within 1 and {MAX_RESIDENT}, got {row.numbers['blocks_per_sm']}"
        for kernel in spec.kernels:
            count = row.numbers.get(kernel.threads, 32) if isinstance(kernel.threads, str) else 32
            if count % 32 or not 32 <= count <= 1024:
                text = f"kernel {kernel.name!r} has so many threads: needs a multiple of 32 up to 1024, got {count}"
                yield ("schedules", i, "numbers", str(kernel.threads)), 0, text


def sizes(spec: BodySpec, kinds: dict[str, Kind]) -> Iterator[Finding]:
    """What counts blocks, bytes or elements is not negative whatever the problem is."""
    counts: list[tuple[Place, str]] = []
    for i, kernel in enumerate(spec.kernels):
        counts += [(("kernels", i, "grid", axis), str(blocks)) for axis, blocks in enumerate(kernel.grid)]
        counts += [(("kernels", i, "shared"), str(kernel.shared))]
    counts += [(("workspace", name, "size"), scratch.size) for name, scratch in spec.workspace.items()]
    for place, text in counts:
        try:
            most = kind_of(text, kinds).high
        except ConditionError:  # complained of already
            continue
        if most < 0:
            yield place, 0, f"{text!r} is never more than {most}; needs what is 0 or more"


RULES: tuple[Rule, ...] = (constants, entries, factors, threads)
