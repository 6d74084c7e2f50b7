"""Payloads: texts that try to escape from where they are printed, odd values, and every name in use."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

from baracuda.codegen.project import installed

MARK = "PWNED"  # in every payload: it may show in strings and comments only
_PYTHON = f'open("{MARK}", "w")'
_CODE = (
    f"__import__('os').system('touch {MARK}')",
    f'__import__("pathlib").Path("{MARK}").touch()',
    f'exec(compile(\'{_PYTHON}\', "x", "exec"))',
    f'"""\n{_PYTHON}\n"""',
    f'x""" + str({_PYTHON}) + """y',
    f"'''; {_PYTHON}; '''",
    f'"; {_PYTHON}; "',
    f"'; {_PYTHON}; '",
    f'\\"""; {_PYTHON}',
    f'\n{_PYTHON}\n',
    f"\r{_PYTHON}\r",
    f"(lambda: {_PYTHON})()",
    f"[{MARK} for {MARK} in [1]]",
    f"{{{{ {MARK} }}}}",
    f"{{% set {MARK} = 1 %}}{{{{ self.__init__.__globals__ }}}}",
    f"{{# {MARK} #}}",
    f"{{0.__class__.__mro__}} {{{MARK}!r}} %s %({MARK})s",
    f"${{{MARK}}} $({MARK}) `{MARK}`",
    f"*/ int {MARK}; /*",
    f"// {MARK} \\",
    f"// {MARK} ??/",
    f"??/\nint {MARK};",
    f"\\\nint {MARK};",
    f"\n#include <{MARK}>\n",
    f"#define {MARK} 1",
    f'R"({MARK})"',
    f'_Pragma("{MARK}")',
    f"; system(\"touch {MARK}\"); //",
    f"<script>{MARK}</script>",
    f"\"><img src=x onerror={MARK}>",
    f"[{MARK}](javascript:{MARK})",
    f"&{MARK} *{MARK}",
    f"!!python/object/apply:os.system ['touch {MARK}']",
    f"---\n{MARK}: 1",
    f"<<: *{MARK}",
    f"../../{MARK}",
    f"/tmp/{MARK}",
    f"{MARK}\0{MARK}",
    f"{MARK}\x1b[2J\x07",
    f"{MARK}\x85{_PYTHON}",
    f"{MARK}\u2028{_PYTHON}\u2029",
    f"\u202e{MARK}\u202c \u2066{MARK}\u2069",
    f"\ufeff{MARK}\u200b\u00ad",
    f"{MARK}\ud800",
    f"{MARK}\U0001f4a9\uff3f\uff3f",
    f"{MARK} " * 2000,
    "(" * 3000 + MARK + ")" * 3000,
    f"{MARK}" + "[0]" * 1500,
    "-" * 3900 + MARK,
    f"'{MARK}' * 10 ** 10",
)
# One text that leaves any place it may be printed into: a docstring, a comment, a string, a template, a page.
EVERYWHERE = (
    f'x""" + str({_PYTHON}) + """ */ int {MARK}; /* \'\'\' {{{{ {MARK} }}}} {{% {MARK} %}} <script>{MARK}</script> '
    f"[{MARK}](javascript:{MARK}) `{MARK}` ??/"
)
_EXPRESSIONS = (
    "prod((9223372036854775807,) * 3000000)",
    "len((0,) * 400000000)",
    "mask_axes(1, 2**63 - 1)",
    "9223372036854775807 * 9223372036854775807 * 9223372036854775807",
    "1 // 0",
    "1 % 0",
    "-5",
    "1.5",
    "True",
    "()",
    "((1,),)",
    "(1,)[9]",
    "min(())",
    "1 if True else (0,)",
    "x x x",
    "(n,)  # ",
    "1; 2",
    "1\n2",
    "not",
    "a.b",
    "f(x=1)",
    "[1]",
    "{1: 2}",
    "'text'",
    "0x" + "f" * 900,
    "9" * 3900,
    "1e999",
    "nan",
    "*a",
    "&a",
    "a := 1",
    "lambda: 0",
    "((1,) * 1000) * 1000",
    "bucket(1)",
    "ceil_div(1, 0)",
    "round_up(1, 0)",
    "normalize_axis(5, 0)",
    "range(10**12)",
    "sum(sum(sum(1)))",
    "_" * 200,
    "0 < " * 900 + "1",
    "1 if 1 else " * 300 + "1",
)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 31, 33, 255, 1024, 65536, 100000, 2**31, 2**63 - 1, -(2**63), 2**63, 10**40, 0.5,
    -0.0, 1.5, 1e308, 1e-320, "", " ", "1", "true", "null", "~", "no", "1e-3", ".nan", ".inf", "None", "T", "acc",
    "sm_80", "sm_90a", "f32", "rest", "strided", [], [[]], [None], {}, {"": ""}, {"a": {"a": {"a": {}}}}, [0] * 5000,
    [[[[[[]]]]]], ["x"] * 300, "2001-01-01",
)  # fmt: skip
_SUFFIXES = ("", " ", "  # ", "  # ", "  # ", "\n", "\n# ", ", ", " and ", '"', "'", "\\", "*/", "}}", "%}")


def text(rng: Random, old: Any) -> str:
    """A hostile text, alone or appended."""
    payload = rng.choice((EVERYWHERE, rng.choice(_CODE), rng.choice(_EXPRESSIONS)))
    match rng.randrange(6):
        case 0 | 1:
            return payload
        case 2 | 3 if isinstance(old, str):
            return f"{old}{rng.choice(_SUFFIXES)}{payload}"
        case 4 if isinstance(old, str):
            at = rng.randrange(len(old) + 1)
            return f"{old[:at]}{payload}{old[at:]}"
    return f"{rng.choice(_SUFFIXES)}{payload}{rng.choice(_SUFFIXES)}"


def value(rng: Random, old: Any = None) -> Any:
    """A hostile text, name or value of another type in place of `old`."""
    pick = rng.random()
    if pick < 0.45:
        return text(rng, old)
    if pick < 0.6:
        return rng.choice(all_names())
    return number(rng, old) if pick < 0.7 and isinstance(old, int | float) else deepcopy(rng.choice(_VALUES))


def number(rng: Random, old: float) -> Any:
    """Another number than `old`, which is not far away or far too large."""
    near: tuple[Callable[[], Any], ...] = (
        lambda: old + 1, lambda: old - 1, lambda: -old, lambda: old * 2, lambda: float(old),
        lambda: rng.randrange(-(2**64), 2**64), lambda: rng.choice((math.inf, -math.inf, math.nan)),
    )  # fmt: skip
    return rng.choice(near)()


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CPP = re.findall(
    r"\S+",
    """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t class compl concept const consteval
constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit export extern false float
for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
public register requires restrict return short signed sizeof static struct switch template this throw true try typedef
typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq override final import module
main errno unix linux stdin stdout stderr assert offsetof signbit isnan isinf malloc free printf memcpy index y0 y1 j0
gamma lgamma signgam environ threadidx blockidx blockdim griddim warpsize half half2 float4 int2 dim3 uint ushort
""",
)


@cache
def all_names() -> tuple[str, ...]:
    """Keywords, builtins, and every identifier of templates, device headers, generated files and the runtime."""
    names = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_CPP, "__class__", "__init__", "mro", "_", "__"}
    return tuple(sorted(names | _words("templates", "runtime", "generated")))


def legal_name(rng: Random) -> str:
    """One that has the form of a spec's names; more often of those that kernels are made of."""
    return rng.choice(_legal("kernels" if rng.random() < 0.5 else "plans" if rng.random() < 0.5 else "all"))


@cache
def _legal(which: str) -> tuple[str, ...]:
    match which:
        case "kernels":
            names = _words("templates", suffixes=(".cu.jinja",))
        case "plans":
            names = _words("templates") | {*keyword.kwlist, *_CPP}
        case _:
            names = frozenset(all_names())
    return tuple(sorted({name.lower() for name in names if _NAME.fullmatch(name.lower())}))


_SOURCES = (".jinja", ".cuh", ".h", ".py", ".pyi", ".cu")


@cache
def _words(*packages: str, suffixes: tuple[str, ...] = _SOURCES) -> frozenset[str]:
    """Every identifier in the sources of these packages, and in the device headers for that of the templates."""
    folders = [installed(f"baracuda.{name}") for name in packages]
    folders += [installed("baracuda.runtime") / "include"] if suffixes == _SOURCES else []
    paths = sorted(path for folder in folders for path in folder.rglob("*") if path.name.endswith(suffixes))
    return frozenset(word for path in paths for word in _WORD.findall(path.read_text(encoding="utf-8")))
