"""Invariant: a binary that breaks its contract is caught, rule by rule, and the committed kernels break none."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repository import project

from baracuda.checking.audit import collect as collect_module
from baracuda.checking.audit import limits
from baracuda.checking.audit.collect import Job, Outcome, collect
from baracuda.checking.audit.facts import Facts, decode, encode, facts_of, serialised
from baracuda.checking.audit.image import machine_code
from baracuda.checking.audit.limits import registers_of_block
from baracuda.checking.audit.rules import RULES, Subject, violations
from baracuda.checking.audit.sass import disassemble
from baracuda.checking.audit.vectors import pointers
from baracuda.checking.listing import planned
from baracuda.checking.listing.sample import ops_of_a_sample, sample
from baracuda.checking.listing.variants import rows_of, sources_of, variants_of
from baracuda.checking.mutation.mutants.inline_headers import with_headers
from baracuda.cli.kernels.audit_report import Audit
from baracuda.cli.kernels.check import every_arch
from baracuda.codegen.families.row.op import RowOp
from baracuda.codegen.lower.op import Allowance
from baracuda.runtime import CompileError, KernelSource, MathPrecision, Registered
from baracuda.runtime.compile.cubin import INCLUDE, Assembly, assemble

PROJECT = project()
ARCHS = ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
STRICT = Allowance(registers=None, shared_bytes=None, stack_bytes=0, spill_bytes=())

KERNEL = 'extern "C" __global__ void {bounds} k(float* x, int n) {{ {body} }}'
CLEAN = "x[threadIdx.x] = x[threadIdx.x] / 3.0f + sqrtf(x[n]);"
ROW_OF_96 = """float v[96];
#pragma unroll
for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
__syncthreads();
"""
DEFECTS = {
    "registers": ("", ROW_OF_96 + "#pragma unroll\nfor (int i = 0; i < 96; ++i) x[(95 - i) * n] = v[i];"),
    "shared memory": ("", "__shared__ float s[64]; s[threadIdx.x] = x[n]; __syncthreads(); x[0] = s[n];"),
    "spills": (
        "__launch_bounds__(1024)",
        ROW_OF_96 + "#pragma unroll\nfor (int i = 0; i < 96; ++i) x[(95 - i) * 1024 + threadIdx.x] = v[i];",
    ),
    "local memory": ("", "float v[64]; for (int i = 0; i < n; ++i) v[i * n % 64] = x[i]; x[n] = v[n % 64];"),
    "flushing": ("", 'asm("add.rn.ftz.f32 %0, %0, %0;" : "+f"(x[n]));'),
    "contraction": ("", 'asm("mul.f32 %0, %0, %0;" : "+f"(x[n]));'),
    "rounding": ("", "x[n] = __fdividef(x[0], x[1]);"),
    "float atomics": ("", "atomicAdd(x, 1.0f);"),
}
ATOMICS = {
    "result": "x[n] = atomicAdd(x, 1.0f);",
    "double": "atomicAdd((double*)x, 1.0);",
    "shared": "__shared__ float s; s = 0; __syncthreads(); atomicAdd(&s, x[n]); __syncthreads(); x[0] = s;",
    "half": 'asm volatile("red.global.add.noftz.f16x2 [%0], %1;" :: "l"(x), "r"(n));',
    "vector": 'asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" :: "l"(x), "f"(1.0f));',
    "swap": "atomicCAS((int*)x, n, n + 1);",
    "bulk": """__shared__ alignas(16) float s[4]; s[n & 3] = x[n]; __syncthreads();
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 16;"
                     :: "l"(x), "r"((unsigned)__cvta_generic_to_shared(s)) : "memory");""",
}

_MMA = """float a = x[n], c[4] = {}; unsigned i = __float_as_uint(a); double d = a, e[2] = {};
asm volatile("mma.sync.aligned.%s" : %s);
x[0] = c[0] + c[1] + c[2] + c[3] + float(e[0] + e[1]);"""
_FLOATS = '"+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(i)'
_HALVES = "{%0,%1,%2,%3},{%4,%4,%4,%4},{%4,%4},{%0,%1,%2,%3};"
PRODUCTS = {
    "bf16.f32": _MMA % ("m16n8k16.row.col.f32.bf16.bf16.f32 " + _HALVES, _FLOATS),
    "f16.f32": _MMA % ("m16n8k16.row.col.f32.f16.f16.f32 " + _HALVES, _FLOATS),
    "tf32.f32": _MMA % ("m16n8k8.row.col.f32.tf32.tf32.f32 " + _HALVES, _FLOATS),
    "f64.f64": _MMA % ("m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%2},{%0,%1};", '"+d"(e[0]), "+d"(e[1]) : "d"(d)'),
    "f16.f16": """unsigned c[2] = {}, i = n;
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%2,%2,%2},{%2,%2},{%0,%1};"
                     : "+r"(c[0]), "+r"(c[1]) : "r"(i)); x[0] = __uint_as_float(c[0] + c[1]);""",
}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache for this file."""
    folder = tmp_path_factory.getbasetemp() / "audit-cache"
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(folder))
    return folder


def look(source: KernelSource, arch: str = "sm_90", include: Path = INCLUDE) -> Facts:
    """The facts of a source, past every cache."""
    return look_all([source], arch, include)[0]


def look_all(sources: list[KernelSource], arch: str, include: Path = INCLUDE) -> list[Facts]:
    """The facts of some sources, disassembled in one run."""
    made = [assemble(source, arch, include=include) for source in sources]

    def strictly(source: KernelSource) -> Callable[[], Assembly]:
        strict = replace(source, contraction=False, flush_subnormals=False)
        return lambda: assemble(strict, arch, include=include)

    listings = disassemble([machine_code(m.cubin.image) for m in made], arch)
    return [facts_of(m, sass, strictly(s)) for m, sass, s in zip(made, listings, sources, strict=True)]


def written(body: str, bounds: str = "") -> KernelSource:
    return KernelSource("a.cu", KERNEL.format(bounds=bounds, body=body), "k")


def kernel(op: str, element: str = "f32", wide: bool = False) -> tuple[RowOp, Registered, KernelSource]:
    """A generated kernel of the row family, packed."""
    lowered = PROJECT.ops[op]
    assert isinstance(lowered, RowOp)
    rows = rows_of(lowered, PROJECT.files[f"{lowered.category}/{op}.cu"])
    row = next(r for r in rows if r.sku.element == element and r.sku.schedule.wide == wide)
    return lowered, row, sources_of(row, lowered)["packed"]


def broken(
    facts: Facts, op: str = "rms_norm", layout: str = "strided", arch: str = "sm_90", **allowed: Any
) -> set[str]:
    """The rules that `facts` break under a contract without allowances but those given."""
    lowered, row, _ = kernel(op)
    lowered = replace(lowered, allowances=((row.sku.arch, replace(STRICT, **allowed)),))
    return {v.rule for v in violations(Subject(lowered, row.sku, layout, arch, facts))}


def narrow(facts: Facts, op: str, element: str = "f32", wide: bool = False) -> list[str]:
    lowered, row, _ = kernel(op, element, wide)
    return list(RULES["vector width"](Subject(lowered, row.sku, "packed", "sm_90", facts)))


@pytest.mark.parametrize("arch", ARCHS)
def test_each_rule_catches_its_defect(arch: str) -> None:
    """A kernel made to break one rule breaks that one alone, on every architecture; a clean one breaks none.

    Division and square root flush and fuse inside, correctly rounded all the same; that is no violation.
    """
    allowed = {"registers": {"registers": 64}, "shared memory": {"shared_bytes": 128}}
    *defects, clean = look_all([*(written(b, bounds) for bounds, b in DEFECTS.values()), written(CLEAN)], arch)
    found = {rule: broken(f, arch=arch, **allowed.get(rule, {})) for rule, f in zip(DEFECTS, defects, strict=True)}
    assert found == {rule: {rule} for rule in DEFECTS}
    assert broken(clean, arch=arch) == set()
    assert clean.sass.fused > 0 and clean.sass.loads == {4: 2} and clean.sass.stores == {4: 1}


def test_every_kind_of_float_atomic_is_seen() -> None:
    """In PTX and in machine code; on integers they are allowed."""
    *floats, integer = look_all([*map(written, ATOMICS.values()), written("atomicAdd((unsigned*)x, 1u);")], "sm_90")
    seen = dict(zip(ATOMICS, floats, strict=True))
    assert [name for name, f in seen.items() if not (f.ptx.atomics and f.sass.atomics)] == []
    assert {name: broken(f) for name, f in seen.items()} == {name: {"float atomics"} for name in ATOMICS}
    assert broken(integer) == set()
    in_turns = {name for name, f in seen.items() if not broken(f, in_turns=True)}
    assert in_turns == {name for name in ATOMICS if "bulk" in name}


@pytest.mark.parametrize("arch", ARCHS)
def test_products_are_of_the_precision_that_the_sku_says(arch: str) -> None:
    seen = dict(zip(PRODUCTS, look_all([*map(written, PRODUCTS.values())], arch), strict=True))
    assert {kind: set(facts.sass.products) for kind, facts in seen.items()} == {kind: {kind} for kind in PRODUCTS}
    lowered, row, _ = kernel("rms_norm")
    fitting = {"bf16": "bf16.f32", "f16": "f16.f32", "tf32x3": "tf32.f32", "f32": None}
    for math, wanted in fitting.items():
        precision = replace(row.sku.precision_guarantee, math_precision=MathPrecision(math))
        subject = Subject(lowered, replace(row.sku, precision_guarantee=precision), "strided", arch, seen["f64.f64"])
        broken_by = {k for k, facts in seen.items() if list(RULES["products"](replace(subject, facts=facts)))}
        assert broken_by == PRODUCTS.keys() - {wanted}, math
    assert list(RULES["products"](subject)) == ["1 f64.f64 products on tensor cores; the SKU says f32, so none"]


def test_atomics_are_free_where_nothing_is_promised() -> None:
    """An op that promises no bits may add in any order."""
    op, row, _ = kernel("rms_norm")
    loose = replace(op, promises=(("y", ()),))
    facts = look(written("atomicAdd(x, 1.0f);"))
    assert not violations(Subject(loose, row.sku, "strided", "sm_90", facts))


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_a_generated_kernel_with_the_wrong_flag_is_caught(arch: str) -> None:
    """Functions bring multiply-adds of their own, with and without the flag; one more is told apart."""
    for op in ("rms_norm_backward", "softmax"):
        right = kernel(op)[2]
        wrong = [replace(right, contraction=True), replace(right, flush_subnormals=True)]
        kept, fused, flushed = look_all([right, *wrong], arch)
        assert broken(kept, op, arch=arch) == set()
        assert broken(fused, op, arch=arch) == {"contraction"}
        assert broken(flushed, op, arch=arch) == {"flushing"}


def test_contraction_that_leaves_no_trace_is_caught() -> None:
    """Where everything was fused or flushed, the same source compiled strictly tells; written-out fma is allowed."""
    sources = [
        replace(written("x[n] = x[0] * x[1] + x[2];"), contraction=True),
        replace(written("x[n] = exp2f(x[0]);"), flush_subnormals=True),
        written("x[n] = fmaf(x[0], x[1], x[2]);"),
    ]
    fused, flushed, allowed = look_all(sources, "sm_90")
    assert fused.hidden == {"fma": 1} and broken(fused) == {"contraction"}
    assert flushed.hidden == {".ftz": 1} and broken(flushed) == {"flushing"}
    assert allowed.ptx.fused == 1 and broken(allowed) == set()


def test_allowances_are_used_up_to_the_last_byte() -> None:
    """What a spec allows passes, and a byte less does not."""
    spilling = look(written(*reversed(DEFECTS["spills"])))
    size = spilling.resources.spill_bytes
    assert broken(spilling, spill_bytes=(("strided", "sm_80", size),)) == set()
    assert broken(spilling, spill_bytes=(("strided", "sm_80", size - 1),)) == {"spills"}
    assert broken(spilling, layout="gathered", spill_bytes=(("strided", "sm_80", size),)) == {"spills"}
    later = ("strided", "sm_120", size)
    assert broken(spilling, spill_bytes=(later,)) == {"spills"}
    assert broken(spilling, spill_bytes=(later, ("strided", "sm_80", size - 1))) == {"spills"}
    assert broken(spilling, spill_bytes=(("strided", "sm_80", 1), ("strided", "sm_89", size))) == set()
    stacked = look(written(DEFECTS["local memory"][1]))
    assert broken(stacked, stack_bytes=stacked.resources.stack_bytes) == set()
    assert broken(stacked, stack_bytes=stacked.resources.stack_bytes - 1) == {"local memory"}


def test_a_block_has_no_more_registers_than_a_multiprocessor() -> None:
    """Registers are given to whole warps in multiples of 256."""
    assert registers_of_block(168, 384) == 64512 and registers_of_block(169, 384) == 67584
    op, row, source = kernel("rms_norm")
    facts = look(source)
    large = replace(row.sku, schedule=replace(row.sku.schedule, lanes=1024, rows=1))
    held = replace(facts, resources=replace(facts.resources, registers=72))
    assert [v.message for v in violations(Subject(op, large, "strided", "sm_90", held))] == [
        "73728 registers a block, sm_90 has 65536"
    ]


def edited(tmp_path: Path, name: str, old: str, new: str) -> Path:
    """The include folder with one text replaced in one header."""
    folder = tmp_path / "include"
    shutil.copytree(INCLUDE, folder)
    header = folder / "baracuda" / name
    text = header.read_text()
    assert old in text
    header.write_text(text.replace(old, new))
    return folder


@pytest.mark.parametrize(("element", "wide"), [("f32", False), ("bf16", False), ("bf16", True), ("f64", False)])
def test_a_pack_without_its_alignment_is_caught(tmp_path: Path, element: str, wide: bool) -> None:
    """Reads fall apart into words, and the message says whose."""
    _, row, source = kernel("rms_norm_backward", element, wide)
    alignment = re.search(r"alignas\(N \* .*?: 16\)", (INCLUDE / "baracuda/pack.cuh").read_text())
    assert alignment is not None
    include = edited(tmp_path, "pack.cuh", alignment[0], "alignas(sizeof(T) < 4 ? 4 : sizeof(T))")
    found = narrow(look(source, include=include), "rms_norm_backward", element, wide)
    size = max(4, row.sku.element.row.bytes)
    # What a held row has of its tensors goes to shared memory in moves of its own.
    for name in ("dy", "x", "gamma") if wide else ("gamma",):
        assert any(f"{name!r} is read in moves of" in line and f" x {size} bytes" in line for line in found)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (
            "pack[k].load(row + col + k * chunk_stride)",
            "for (int i = 0; i < N; ++i) pack[k].lane[i] = row[col + k * chunk_stride + i]",
            "read",
        ),
        ("pack.store(row + col)", "for (int i = 0; i < N; ++i) row[col + i] = pack.lane[i]", "written"),
    ],
)
def test_element_by_element_is_caught(tmp_path: Path, old: str, new: str, what: str) -> None:
    """A header that forgot packs reads or writes narrower than the schedule says."""
    source = kernel("softmax", "bf16")[2]
    found = narrow(look(source, include=edited(tmp_path, "row/row.cuh", old, new)), "softmax", "bf16")
    assert any(f" is {what} in moves of " in line for line in found)


def test_moves_that_the_assembler_took_apart_are_caught() -> None:
    """The machine code has the last word on width."""
    facts = look(kernel("softmax")[2])
    lost = replace(facts, sass=replace(facts.sass, loads={4: 16}))
    assert "0 moves of 16 bytes are read in the machine code, needed are 2" in narrow(lost, "softmax")
    assert not any("machine code" in line for line in narrow(facts, "softmax"))


@pytest.mark.parametrize(
    ("widths", "shown"),
    [({16: 4, 4: 1}, "1 x 4 bytes and 4 x 16 bytes"), ({16: 1}, "1 x 16 bytes"), ({}, "nothing"), ({16: 2}, "")],
)
def test_each_move_is_wide_and_each_pack_has_one(widths: dict[int, int], shown: str) -> None:
    """One narrow move beside all that are needed is a violation, and so is one wide move too few."""
    op, _, source = kernel("softmax")
    facts = look(source)
    seen = replace(facts, ptx=replace(facts.ptx, loads={pointers(op)["x"]: widths}))
    expected = f"'x' is read in moves of {shown}, needed are 2 or more, all of 16 bytes"
    assert [line for line in narrow(seen, "softmax") if "'x'" in line] == [expected] * bool(shown)


def test_pointers_are_where_the_kernel_has_them() -> None:
    """Every tensor's memory is used through the word of the parameter that is its pointer."""
    ops = [op for op in PROJECT.ops.values() if isinstance(op, RowOp)]
    for op, facts in zip(ops, look_all([kernel(op.name)[2] for op in ops], "sm_90"), strict=True):
        assert set(pointers(op).values()) <= {*facts.ptx.loads, *facts.ptx.stores}


def test_tables_of_a_function_are_nobodys_tensor() -> None:
    """Constants that sin and cos look up are no access to arguments, nor is an access by their own stack."""
    facts = look(KernelSource("a.cu", 'extern "C" __global__ void k(double* x) { x[1] = sin(x[0]); }', "k"))
    assert set(facts.ptx.loads) == {0} and facts.ptx.stores == {0: {8: 1}}
    assert facts.resources.stack_bytes > 0 and broken(facts) == {"local memory"}


def test_serialised_wgmma_is_caught() -> None:
    """By what the assembler says of a kernel that reads an accumulator too early."""
    text = """extern "C" __global__ void k(float* x, unsigned long long d) {
        float a[4] = {x[0], x[1], x[2], x[3]};
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int i = 0; i < 2; ++i) {
            asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                         "{%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0; }"
                         : "+f"(a[0]), "+f"(a[1]), "+f"(a[2]), "+f"(a[3]) : "l"(d));
            READ
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        for (int i = 0; i < 4; ++i) x[threadIdx.x * 4 + i] = a[i];
    }"""
    early = look(KernelSource("a.cu", text.replace("READ", "x[i] = a[1];"), "k"), "sm_90a")
    assert broken(early, arch="sm_90a") == {"products", "wgmma"}
    late = look(KernelSource("a.cu", text.replace("READ", ""), "k"), "sm_90a")
    assert broken(late, arch="sm_90a") == {"products"} and set(late.sass.products) == {"f16.f32"}
    assert (
        len(
            serialised(
                "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
                "serialized due to X in the function 'k'\nptxas info    : Used 30 registers\n"
            )
        )
        == 1
    )


@pytest.mark.parametrize(
    ("rest", "rules"),
    [("@!done bra again;", set()), ("", {"waits"}), ("selp.u32 %0, 1, 0, done;", set())],
)
def test_waits_that_try_once_are_caught(rest: str, rules: set[str]) -> None:
    """`try_wait` may return before the phase has ended; an answer that C++ gets is looked at there."""
    text = f"""extern "C" __global__ void k(int* x, unsigned address) {{
        int done = 0;
        asm volatile("{{\\n.reg .pred done;\\nagain:\\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], 0;\\n{rest}\\n}}\\n"
                     : "+r"(done) : "r"(address) : "memory");
        x[0] = done;
    }}"""
    facts = look(KernelSource("a.cu", text, "k"), "sm_90")
    assert broken(facts, arch="sm_90") == rules


def test_facts_are_computed_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Equal jobs compile once, a second audit not at all, and both say the same."""
    shutil.rmtree(cache / "audit", ignore_errors=True)
    compiled: list[str] = []
    real = collect_module.assemble

    def counted(source: KernelSource, arch: str, *, include: Path = INCLUDE) -> object:
        compiled.append(arch)
        return real(source, arch, include=include)

    monkeypatch.setattr(collect_module, "assemble", counted)
    jobs = [Job(written(CLEAN), arch) for arch in ("sm_90", "sm_80", "sm_90")]
    wrong = Job(written("nonsense"), "sm_90")
    first, second = gathered([*jobs, wrong]), gathered(jobs)
    assert sorted(compiled) == ["sm_80", "sm_90", "sm_90"]
    assert isinstance(first[3], CompileError)
    assert [f.digest for f in second] == [f.digest for f in first[:3]] and first[0] != first[1]
    assert decode(encode(second[0])) == second[0] == second[2]
    monkeypatch.setenv("BARACUDA_FROZEN", "1")
    assert gathered(jobs) == second
    assert isinstance(gathered([Job(written("x[n] = 1;"), "sm_90")])[0], CompileError)


def gathered(jobs: list[Job]) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    collect(jobs, on_done=outcomes.__setitem__)
    return [outcomes[index] for index in range(len(jobs))]


def test_digest_is_of_what_is_executed() -> None:
    """A comment changes no digest, a constant changes both."""
    plain, commented, other = (look(written(body)) for body in (CLEAN, f"/* said */ {CLEAN}", CLEAN.replace("3", "5")))
    assert (plain.digest, plain.ptx.digest) == (commented.digest, commented.ptx.digest)
    assert plain.digest != other.digest and plain.ptx.digest != other.ptx.digest


def test_the_architectures_are_those_of_specs() -> None:
    """Every architecture that a spec may name is audited; those with a letter come with the plain ones."""
    assert limits.ARCHS == ARCHS
    assert every_arch() == tuple(arch for arch in ARCHS if not arch.endswith("a"))


def test_committed_kernels_keep_their_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For sm_90, one or two of each op's, which differ as much as possible; `baracuda-gen check` audits more."""
    monkeypatch.setattr(planned, "_TRIES", 0)  # random cases, which serve SKUs that no case of the spec does
    sampled = sample(variants_of(PROJECT, ops_of_a_sample(PROJECT.ops, 30), archs=["sm_90"]), of_all=30)
    audit = Audit.of(sampled, PROJECT.ops)
    assert len(sampled) == 30 == len({id(v) for v in sampled})
    assert len({v.row.sku.op for v in sampled}) == min(30, len(PROJECT.ops))
    assert not audit.failed and len(audit.audited) == len(sampled)
    assert not audit.violations, "\n".join(map(str, audit.violations))


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (r"__launch_bounds__\([^)]*, BLOCKS_PER_SM\)", "__launch_bounds__(256, 6)", "spills"),
        (r"S::parts\(args\)\[(.*?)\] = (.*?);", r"atomicAdd(&S::parts(args)[\1], \2);", "float atomics"),
        (r"(packs<ElementInput>\(e\.elements\)\[e\.k\], )e\.i\)", r"\1int((e.i + e.row) % 8))", "local memory"),
    ],
)
def test_an_edited_generated_kernel_is_caught(old: str, new: str, rule: str) -> None:
    """Edits to the text of a real kernel, headers included, show in the audit of its binary."""
    source = kernel("rms_norm_backward", "bf16")[2]
    unchanged = with_headers(source.text, source.path)
    text = re.sub(old, new, unchanged)
    assert text != unchanged
    assert rule in broken(look(replace(source, text=text)), "rms_norm_backward")
