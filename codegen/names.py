"""Which names a spec may give: those that mean nothing yet in C++, in Python or in the code that is generated."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from .conditions import FUNCTIONS
from .program.ops import CASTS, OPS, QUERIES, REDUCTIONS
from .program.tree import Line, Reduce
from .spec import MapSpec, RowSpec

_CPP = (
    "alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t compl concept "
    "const const_cast consteval constexpr constinit decltype default delete do double dynamic_cast enum explicit "
    "export extern false float friend goto inline int long mutable namespace new noexcept not_eq nullptr operator "
    "or_eq private protected public register reinterpret_cast requires restrict short signed sizeof static "
    "static_assert static_cast struct switch template this thread_local throw true typedef typeid typename union "
    "unsigned using virtual void volatile wchar_t xor xor_eq main errno unix linux"
)
# What templates declare or call, and what stands behind `BARACUDA_` in a macro of theirs.
_KERNEL = (
    "args stage space parts tickets row col rows cols index_t acc_t acc_of home first lane block blocks column "
    "tile turn live part strip i k read write offset fold_row fold_parts last_to_finish gathered_offset "
    "column_offset warp layout host half warp_size baracuda math i64 u64 me own next shared dynamic fetch stretch "
    "count keep_packed mean_of"
)
_PLAN = (
    "self cls element dtype workspace stream arrays arguments device descriptor sku run bind select prepare "
    "explain check col_axes rt property tuple str"
)
TAKEN = frozenset(f"{_CPP} {_KERNEL} {_PLAN}".split())
_MEMBER = frozenset(f"{_CPP} {_PLAN} d s".split())
_LANGUAGE = frozenset((*OPS, *REDUCTIONS, *QUERIES, *CASTS, *FUNCTIONS))
# Types and objects of C++ and CUDA that an op's function, being found beside them, would be confused with.
_GLOBAL = re.compile(
    r"std(in|out|err)?|alloca|dim3|u(int|long|short)|(u?(char|short|int|long|longlong)|float|double)[1-4]|.*_t"
)
# A module is imported by its op's name; a folder, as an attribute of the package `generated`.
_CATEGORIES = frozenset(("import_all", "import_module"))

# What a template appends to the name of a reduction along the row, and of one down the columns.
OF_ROW_SUMS, OF_COLUMN_SUMS = ("_part", "_of_row"), ("_sum", "_parts")


def is_reserved(name: str) -> bool:
    """Whether no tensor, field, dim or line may be called `name`; dims alone may be called rows and cols."""
    return name in TAKEN or name in _LANGUAGE or keyword.iskeyword(name) or "__" in name


def is_reserved_member(name: str) -> bool:
    """As `is_reserved`, of what only becomes a member of a struct and an argument of a plan."""
    return name in _MEMBER or keyword.iskeyword(name) or "__" in name


def is_reserved_op(name: str) -> bool:
    """Whether no op may be called `name`, which becomes a C++ function and a Python module."""
    known = name in TAKEN or name in CASTS or name == "min" or keyword.iskeyword(name)
    return known or "__" in name or _GLOBAL.fullmatch(name) is not None


def is_reserved_category(name: str) -> bool:
    """Whether no category may be called `name`, which becomes a Python package."""
    return name in _CATEGORIES or keyword.iskeyword(name) or "__" in name


def derived_names(spec: RowSpec | MapSpec, lines: Iterable[Line]) -> dict[str, str]:
    """Names that the generated code makes of the spec's, and which of those each one is made of."""
    derived = {f"{spec.op}_args": spec.op}
    for dim in spec.dims:
        derived |= {f"size_{dim}": dim, f"index_{dim}": dim}
    for name, tensor in spec.arguments.items():
        of_elements = "_row", "_slice", "_pack", "_ahead", "_inside"
        suffixes = of_elements if len(tensor.dims) > 1 else ("_slice", "_next", "_at")
        derived |= {f"{name}{suffix}": name for suffix in (*suffixes, "_of")}
        derived |= {f"has_{name}": name} if tensor.optional else {}
    for line in lines:
        if isinstance(line.expr, Reduce):
            derived |= {f"{line.name}{suffix}": line.name for suffix in (*OF_ROW_SUMS, *OF_COLUMN_SUMS)}
    return derived
