"""Inline PTX becomes calls of C++ functions."""

from __future__ import annotations

import pytest

from baracuda.runtime.errors import CompileError
from baracuda.runtime.host.inline_ptx import with_functions

READ = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));': (
        "{ ::baracuda_ptx::cvt_f32_f16(reinterpret_cast<float&>(f), (unsigned short)(x.bits)); }"
    ),
    'asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(a(b, c)) : "memory");': (
        "{ ::baracuda_ptx::bar_sync((unsigned)(id), (unsigned)(a(b, c))); }"
    ),
    'asm("ld.shared.v2.f32 {%0, %1}, [%2];" : "=" "f"(t[0]), "=f"(t[1]) : "r"(at));': (
        "{ ::baracuda_ptx::ld_shared_v2_f32(::baracuda_ptx::registers(&reinterpret_cast<float&>(t[0]), "
        "&reinterpret_cast<float&>(t[1])), (unsigned)(at)); }"
    ),
    'asm("mma.sync.aligned.m8n8k4." "f64 {%0}, 1;" :: "d"(a));': (
        "{ ::baracuda_ptx::mma_sync_aligned_f64<8, 8, 4>(::baracuda_ptx::registers("
        "::baracuda_ptx::place<double>(a)), 1); }"
    ),
    'asm("setmaxnreg.inc.u32 %0;" ::"n"(N < 3 ? 1 : 2));': "{ ::baracuda_ptx::setmaxnreg_inc_u32((N < 3 ? 1 : 2)); }",
    'asm("mov.u32 %0, %%laneid;" : "=r"(l));': (
        "{ ::baracuda_ptx::mov_u32(reinterpret_cast<unsigned&>(l), unsigned(::baracuda_host::lane())); }"
    ),
    'asm volatile("{\\n.reg .pred w;\\nelect.sync _|w, %1;\\nselp.u32 %0, 1, 0, w;\\n}\\n" : "=r"(w) : "r"(m));': (
        "{ bool ptx_w = false;  ::baracuda_ptx::elect_sync(ptx_w, (unsigned)(m)); "
        "::baracuda_ptx::selp_u32(reinterpret_cast<unsigned&>(w), 1, 0, ptx_w); }"
    ),
    'asm("{.reg .pred d;\\nagain_%=:\\nwait d, [%0];\\n@!d bra again_%=;}" ::"r"(b));': (
        "{ bool ptx_d = false;  again_0: ::baracuda_ptx::wait(ptx_d, (unsigned)(b)); if (!ptx_d) goto again_0; }"
    ),
    'asm volatile("" : "+r"(word));': "{  }",
    "int basm(int); plasma(1);": "int basm(int); plasma(1);",
}


@pytest.mark.parametrize("text", READ)
def test_calls(text):
    assert with_functions(text) == READ[text]


def test_lines_stay_where_they_are():
    text = 'a;\nasm("wait.all;"\n    :::\n    "memory");\nb;'
    assert with_functions(text).split("\n")[4] == "b;"


@pytest.mark.parametrize(
    ("text", "message"),
    {
        'asm("x %0;" : "=q"(a));': "asm operand '\"=q\"(a)': needs a constraint of r, l, h, f, d or n",
        'asm("mov.u32 %0, %%clock;" : "=r"(a));': "the host device has no such special register",
        'asm("x %1;" ::"r"(a));': "inline PTX '%1': there is no operand %1",
        'asm("x;"': "asm without a closing parenthesis",
    }.items(),
)
def test_refusals(text, message):
    with pytest.raises(CompileError, match=message.replace("(", r"\(").replace(")", r"\)")):
        with_functions(text)
