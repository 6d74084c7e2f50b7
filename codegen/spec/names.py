"""Which names a spec may use, and their names in generated kernels.

Names of a spec cannot collide with those of the generator, its headers or CUDA: `in_kernel` ends each with an
underscore, as no other identifier does. Derived names, such as `x_slice` of `x`, end with one of `PARTS`, as no
unqualified identifier in templates does.
"""

from __future__ import annotations

import keyword
from functools import cache

from baracuda.runtime.plans.formula import FUNCTIONS

from ..program.ops import CASTS, QUERIES, REDUCTIONS
from ..program.syntax import FUNCTIONS as CALLED
from ..program.syntax import INFINITY
from ..text import Name
from .family import families

# Keywords, and what compilers and the C library define as macros.
_CPP = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype "
    "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int "
    "long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq assert errno linux main unix"
)
# What schedules of hand-written kernels offer beside their own numbers.
SCHEDULE_NAMES = ("threads", "itemsize", "accsize", "multiprocessors")
# Arguments of plans and functions beside the spec's own.
_INTERFACE = frozenset({"self", "stream", "workspace", "element", "rt"})  # `rt` is the runtime in plans
OF_OPS = frozenset(("functions", "rt"))  # what stands beside ops in `baracuda.ops`, and in its stub
LANGUAGE = frozenset((*CALLED, *REDUCTIONS, *QUERIES, *CASTS, INFINITY))
KEYWORDS = frozenset(_CPP.split()) | frozenset(keyword.kwlist)

# What follows a spec's name in a kernel, and what it is then.
_PARTS = "axes index pack parts read reduced size slice sum tensor type"
PARTS = frozenset(_PARTS.split())


@cache
def interface() -> frozenset[str]:
    """Arguments of plans and functions beside the spec's own, and what descriptors have beside their fields."""
    members = (name for family in families().values() for name in dir(family.descriptor) if not name.startswith("_"))
    return _INTERFACE.union(members)


def in_kernel(name: str) -> Name:
    """The name in a kernel of a tensor's element, a field, a line of a program, or an op."""
    return Name(f"{name}_")


def is_keyword(name: str) -> bool:
    """Whether `name` is forbidden everywhere."""
    return name in KEYWORDS or "__" in name


def is_reserved(name: str) -> bool:
    """Whether `name` is forbidden for fields, dims and tensors."""
    return is_keyword(name) or name in interface() or name in FUNCTIONS


def is_reserved_in_programs(name: str) -> bool:
    """As `is_reserved`, also for lines of a program, whose words have a meaning."""
    return is_reserved(name) or name in LANGUAGE


def is_reserved_number(name: str) -> bool:
    """Whether `name` is forbidden for numbers of schedules and terms, which occur in expressions."""
    return is_keyword(name) or name in FUNCTIONS


def is_reserved_op(name: str) -> bool:
    """Whether `name` is forbidden for ops, which become Python modules and functions of `baracuda.ops`."""
    return is_keyword(name) or name in OF_OPS


def is_reserved_category(name: str) -> bool:
    """Whether `name` is forbidden for categories, which become packages in the generated one."""
    return is_keyword(name) or name == "import_all"
