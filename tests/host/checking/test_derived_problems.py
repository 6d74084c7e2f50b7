"""Invariants: problems stand on both sides of what a spec compares, and any two features meet in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from repository import ROOT, SPECS

from baracuda.checking.problems.cases import fills_packs, problems, random_problems, second_choice, skus
from baracuda.checking.problems.edges import edge_problems
from baracuda.checking.problems.numbers import cancelling
from baracuda.checking.problems.pairs import paired_problems
from baracuda.checking.problems.subject import Subject
from baracuda.checking.problems.sums import in_turns
from baracuda.checking.problems.turns import with_turns
from baracuda.checking.problems.windows import windowed_problems
from baracuda.checking.trials.memory import LONE, HostMemory, laid_out
from baracuda.checking.variables import SAMPLE
from baracuda.checking.verify import checks, defaults, invariance, launches, placements, selections, table
from baracuda.codegen.spec.load import Loaded, load_folder
from baracuda.runtime import ElementKind, KernelSku

LOADED = load_folder(ROOT / "specs")


def _kernel(op: str, symbol: str) -> tuple[Subject, KernelSku]:
    subject = Subject(LOADED[op], LOADED, "baracuda.generated")
    return subject, next(sku for sku in skus(subject) if sku.symbol == f"{op}_{symbol}")


def test_a_second_choice_serves_other_batches_too() -> None:
    """Bits are promised between kernels that selection takes, not between them and one that a caller insists on."""
    schedule = "t384_block_q128_block_k96_stages2_query_stages1_query_registers0_passes0_persistent1"
    subject, sku = _kernel("flash_sdpa", f"sm_90a_f16_{schedule}")
    case = {"batch_size": 2, "num_heads": 1, "query_len": 1, "key_len": 600, "d_k": 8, "d_v": 8, "scale": 1.0}
    problem = second_choice(subject, {**case, "num_kv_heads": 1}, sku)
    assert problem is not None
    assert problem.with_batch(1).plan.sku == sku


EDGES: dict[tuple[str, str], dict[str, set[int]]] = {
    ("flash_sdpa", "bf16_t128_block_q16_block_k16_stages2_splits128_blocks_per_sm3"): {
        "key_len": {512, 513},  # `few` needs as many
        "batch_size": {3, 4},  # below, another schedule serves
        "window_left": {-1, 0, 1},
        "d_k": {31, 32, 33, 63, 64, 65},
    },
    ("flash_sdpa", "bf16_t128_block_q128_block_k64_stages2"): {"query_len": {127, 128, 129}, "key_len": {511}},
    ("causal_conv1d", "f32_t128_lanes4_owned32_time8_steps2_batch2"): {"seq_len": {63, 64}, "channels": {31, 32, 33}},
    ("causal_conv1d_update", "f16_t128_blocks_per_sm12"): {"seq_len": {0, 1, 2}, "state_len": {7, 8, 9}},
}


@pytest.mark.parametrize("op", ["alibi_backward", "repeat_backward"])
def test_sums_are_held_to_their_compensation(op: str) -> None:
    subject = Subject(LOADED[op], LOADED, "baracuda.generated")
    for sku in (sku for sku in skus(subject) if sku.element in ("f32", "f64")):
        assert checks.check_compensation(in_turns(subject, sku, problems(subject, sku)), HostMemory()), sku


def test_windows_end_within_tiles() -> None:
    for op, symbol in (name for name in EDGES if name[0] == "flash_sdpa"):
        subject, sku = _kernel(op, symbol)
        found = list(windowed_problems(subject, sku, problems(subject, sku)))
        values = [(problem.values["window_left"], problem.values["window_right"]) for problem in found]
        several = [problem.values["query_len"] > 128 < problem.values["key_len"] for problem in found]
        counts = (0, 4) if "splits" in symbol else (4, 2)
        assert [several.count(True), several.count(False)] == [*counts], "with the second window also one long extent"
        assert [min(pair) for pair in values] == [-1] * len(found), "one side is open"
        for problem, window in zip(found, map(max, values), strict=True):
            long = {field: problem.values[field] for field in ("query_len", "key_len") if problem.values[field] > 128}
            assert problem.plan.sku == sku and 0 < window < max(long.values()) and window % 16


@pytest.mark.parametrize(("op", "symbol"), EDGES)
def test_edges_are_reached(op: str, symbol: str) -> None:
    subject, sku = _kernel(op, symbol)
    bases = problems(subject, sku)
    derived = list(edge_problems(subject, sku, bases))
    assert all(problem.plan.sku == sku for problem in derived)
    for field, expected in EDGES[op, symbol].items():
        assert expected <= {problem.values[field] for problem in (*bases, *derived)}, field
    extents = [problem.values[field] for problem in derived for field in EDGES[op, symbol]]
    assert max(extents) < 1 << 14  # an empty array of an immense extent has a reference that is not


def test_a_tile_of_rows_is_filled_exactly_and_not() -> None:
    subject, sku = _kernel("rms_norm", "bf16_row8x16x4")
    derived = list(edge_problems(subject, sku, problems(subject, sku)))
    columns = sku.tile.columns(2)
    every = (*problems(subject, sku), *derived)
    assert {columns - 1, columns} <= {problem.values["input_shape"][-1] for problem in every}
    assert {sku.tile.rows - 1, sku.tile.rows, sku.tile.rows + 1} <= {p.values["input_shape"][0] for p in derived}


def _levels(values: Mapping[str, Any], pattern: str) -> dict[str, Any]:
    signed = "scale", "softcap", "window_left", "window_right"
    signs = {name: (values[name] > 0) - (values[name] < 0) for name in signed}
    flags = {name: values[name] for name in ("is_causal", "bottom_right", "has_mask", "has_alibi_slopes")}
    return {
        **signs,
        **flags,
        "shared heads": values["num_kv_heads"] < values["num_heads"],
        "packs of queries": values["d_k"] % 8 == 0,
        "arrays": pattern,
    }


@pytest.mark.parametrize("symbol", ["f32_t128_block_q128_block_k32_stages1", "bf16_t256_block_q128_block_k64_stages1"])
def test_any_two_features_of_attention_meet(symbol: str) -> None:
    """Each value of each with each of any other: a sign of the scale with a window, shared heads with ALiBi."""
    subject, sku = _kernel("flash_sdpa", symbol)
    derived = list(paired_problems(subject, sku, problems(subject, sku)))
    found = [_levels(problem.values, patterns["q"]) for problem, patterns in derived]
    occurring = {name: {levels[name] for levels in found} for name in found[0]}
    assert occurring["scale"] == {-1, 0, 1} and len(occurring["arrays"]) == 3
    assert all(len(levels) > 1 for levels in occurring.values())
    for (a, left), (b, right) in product(occurring.items(), repeat=2):
        met = {(levels[a], levels[b]) for levels in found}
        assert a == b or met == {*product(left, right)}, f"{a} and {b}"
    assert len(derived) < 40


def test_states_meet_sequences_and_the_same_is_drawn_again() -> None:
    subject, sku = _kernel("causal_conv1d", "f32_t128_lanes4_owned32_time8_steps2_batch2")
    once, again = ([*paired_problems(subject, sku, problems(subject, sku))] for _ in range(2))
    assert [problem.descriptor for problem, _ in once] == [problem.descriptor for problem, _ in again]
    names = "has_initial_states", "has_final_states", "has_cu_seqlens"
    met = {tuple(problem.values[name] for name in names) for problem, _ in once}
    assert {pair[:2] for pair in met} == {pair[1:] for pair in met} == {*product([False, True], repeat=2)}


def test_a_sampled_run_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, sku = _kernel("flash_sdpa", "bf16_t128_block_q128_block_k64_stages2")
    monkeypatch.setenv(SAMPLE, "0")
    derived = edge_problems(subject, sku, problems(subject, sku))
    few = list(table.some("edges", derived, lambda problem: problem))
    assert 1 < len(few) <= table.TABLE["edges"].problems  # type: ignore[operator]
    assert len({tuple(problem.plan.sources()) for problem in few}) == 1


def test_an_array_of_one_axis_has_no_rows_that_are_packs() -> None:
    """Neither a gap nor a stride of 0 between rows can be tried on it."""
    subject, sku = _kernel("repeat_backward", "f32_t256_packs4_blocks1056")
    packs = [tuple(problem.values["input_shape"]) for problem in problems(subject, sku) if fills_packs(problem, 4)]
    assert (6, 32) in packs and (3,) not in packs and (5, 1) not in packs


def test_inputs_lie_otherwise_than_all_outputs() -> None:
    """Outputs in order of memory are written in packs, whatever steps inputs have."""
    subject, sku = _kernel("swiglu_backward", "f32_t256_packs4_blocks1056")
    problem = problems(subject, sku)[0]
    outputs = set(problem.written)
    layouts = [{name: how == "contiguous" for name, how in each.items()} for each in placements._layouts(problem)]
    assert {name: name in outputs for name in problem.arguments} in layouts and len(outputs) > 1


def test_inputs_are_drawn_in_their_stored_type() -> None:
    """A gain in f32 beside halves has bits that halves have not, so a kernel that rounds it is seen."""
    subject, sku = _kernel("rms_norm", "bf16_row8x16x4")
    problem = problems(subject, sku)[0]
    gamma = problem.draw(choice={"gamma": ElementKind.F32})["gamma"]
    assert gamma.dtype == np.float32 and (gamma != gamma.astype(ml_dtypes.bfloat16).astype(np.float32)).any()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_a_sum_in_halves_loses_what_cancels(kind: type) -> None:
    rows = cancelling(np.random.default_rng(0), (16, 64)).astype(kind)
    exact, narrow = rows.astype(np.float64).sum(1), np.zeros(16, kind)
    for column in rows.T:
        narrow = (narrow + column).astype(kind)
    lost = abs(narrow.astype(np.float64) - exact) > 8 * np.finfo(np.float16).eps * abs(exact)
    assert lost.sum() > 12
    assert np.allclose(rows.astype(np.float32).cumsum(1)[:, -1], exact, rtol=1e-3, atol=1e-3)


def test_a_changed_default_is_objected_to(tmp_path: Path) -> None:
    loaded = LOADED["fp8_quantize"]
    spec = loaded.spec
    defaults.check_defaults(_subject(loaded), tmp_path)  # nothing to compare with
    (tmp_path / "fp8_quantize.yaml").write_text((ROOT / "specs/quantization/fp8_quantize.yaml").read_text())
    defaults.main(str(tmp_path))
    defaults.check_defaults(_subject(loaded), tmp_path)
    field = spec.descriptor["quantize_axis"].model_copy(update={"default": 0})
    changed = spec.model_copy(update={"descriptor": {**spec.descriptor, "quantize_axis": field}})
    with pytest.raises(AssertionError, match="quantize_axis=-1, the spec 0"):
        defaults.check_defaults(_subject(replace(loaded, spec=changed)), tmp_path)


def test_a_value_that_is_no_longer_refused_is_objected_to() -> None:
    loaded = LOADED["layer_norm"]
    lenient = [r.model_copy(update={"that": "isfinite(eps)"}) if "eps" in r.that else r for r in loaded.spec.require]
    changed = loaded.spec.model_copy(update={"require": lenient})
    with pytest.raises(AssertionError, match=r"eps refused=-inf -1\.0 -1e-09 inf nan \(.*\), the spec -inf inf nan \("):
        defaults.check_defaults(_subject(replace(loaded, spec=changed)), ROOT / "specs")


def test_a_guarantee_that_is_dropped_or_another_error_is_objected_to() -> None:
    loaded = LOADED["softmax"]
    weaker = loaded.spec.model_copy(update={"reproducibility": {"y": ["deterministic"]}})
    with pytest.raises(AssertionError, match=r"y promises=deterministic bit_stable.*, the spec deterministic;"):
        defaults.check_defaults(_subject(replace(loaded, spec=weaker)), ROOT / "specs")
    other = {"InvalidProblem": "Unsupported", "Unsupported": "InvalidProblem"}
    swapped = [r.model_copy(update={"raises": other[r.raises]}) for r in loaded.spec.require]
    changed = loaded.spec.model_copy(update={"require": swapped})
    with pytest.raises(AssertionError, match=r"refused=.*\(InvalidProblem\).*, the spec .*\(Unsupported\)"):
        defaults.check_defaults(_subject(replace(loaded, spec=changed)), SPECS)


def test_a_dropped_alias_or_another_launch_is_objected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = LOADED["softmax_backward"]
    dx = loaded.spec.outputs["dx"].model_copy(update={"may_alias": ("dy",)})
    changed = loaded.spec.model_copy(update={"outputs": {"dx": dx}})
    with pytest.raises(AssertionError, match=r"dx in place of=dy y, the spec dy;"):
        defaults.check_defaults(_subject(replace(loaded, spec=changed)), SPECS)
    subject = _subject(LOADED["sdpa"])
    defaults.check_defaults(subject, SPECS)
    monkeypatch.setattr(launches, "_ARCHS", ("sm_70",))
    with pytest.raises(AssertionError, match=r"launches\.json has f.. case .*: fused 4, .*, the spec .*; Unsupported;"):
        defaults.check_defaults(subject, SPECS)


def test_a_case_that_nothing_serves_is_objected_to() -> None:
    loaded = LOADED["flash_sdpa"]
    selections.check_served(_subject(loaded))
    wide = [{**loaded.spec.tests.cases[0], "d_k": 300}]
    tests = loaded.spec.tests.model_copy(update={"cases": wide})
    changed = loaded.spec.model_copy(update={"tests": tests})
    with pytest.raises(AssertionError, match=r"flash_sdpa: the case .*'d_k': 300.* is refused in f32: FlashSdpaPlan: "):
        selections.check_served(_subject(replace(loaded, spec=changed)))


def _subject(loaded: Loaded) -> Subject:
    return Subject(loaded, LOADED, "baracuda.generated")


def test_a_tensor_alone_keeps_what_its_pattern_does_not_change() -> None:
    """A shift leaves strides, an odd pitch the base; a gap along the first axis leaves every other stride."""
    laid = {pattern: laid_out(pattern, (2, 3, 8), 4, "any") for pattern in LONE}
    assert laid == {"shifted": ((24, 8, 1), 1), "pitch": ((27, 9, 1), 0), "outer": ((25, 8, 1), 0)}
    assert laid_out("outer", (2, 3, 8), 4, "inner") == ((25, 8, 1), 0)
    assert laid_out("pitch", (2, 3, 8), 4, "contiguous") == ((24, 8, 1), 0)


@pytest.mark.parametrize(
    "symbol",
    [
        "sm_90a_f16_t384_block_q128_block_k128_stages2_query_stages1_query_registers1_passes1_persistent1",
        "sm_90a_f16_t384_block_q128_block_k96_stages2_query_stages1_query_registers0_passes1_persistent1",
    ],
)
def test_every_extent_is_several_tiles(symbol: str) -> None:
    """Of kernels, too, that the spec's own cases do not choose, or choose for another element type only."""
    subject, sku = _kernel("flash_sdpa", symbol)
    problem = with_turns(subject, sku, problems(subject, sku))
    assert problem.plan.sku == sku and problem.size < 1 << 19
    assert min(problem.values["query_len"], problem.values["key_len"]) > 2 * 128
    assert problem.values["batch_size"] * problem.values["num_heads"] > 1


@pytest.mark.parametrize("op", ["rms_norm", "softmax_backward"])
def test_two_clusters_take_several_rows(op: str) -> None:
    subject = Subject(LOADED[op], LOADED, "baracuda.generated")
    clusters = [sku for sku in skus(subject) if sku.tile.cluster > 1]
    assert clusters
    for sku in clusters:
        problem = with_turns(subject, sku, problems(subject, sku))
        assert (problem.plan.sku.tile.blocks, problem.plan.sku.symbol, problem.batch) == (2, sku.symbol, 5)


def test_bits_that_another_architecture_does_not_give_are_objected_to() -> None:
    """A tile of clusters adds in another order than the tile that portable GPUs select, and so may not promise."""
    subject = _subject(LOADED["rms_norm"])
    sku = next(s for s in skus(subject, "host") if s.arch == "sm_90" and s.element is ElementKind.F32)
    assert not sku.precision_guarantee.bit_stable_across_arch
    problem = max((p for p in problems(subject, sku) if p.size < 1 << 16), key=lambda p: p.size)
    with pytest.raises(AssertionError, match="'y' has other bits with rms_norm_f32"):
        invariance.check_architectures(problem, ["sm_80"], HostMemory())


def test_random_rows_reach_clusters() -> None:
    """Tiles that selection takes on the host device only where their architecture is asked for are drawn, too."""
    subject = Subject(LOADED["rms_norm"], LOADED, "baracuda.generated")
    clusters = [sku for sku in skus(subject) if sku.tile.cluster > 1]
    assert clusters
    for sku in clusters:
        drawn = random_problems(subject, sku, 2, seed=1, limit=1 << 20)
        assert drawn and all(problem.plan.sku == sku for problem in drawn)
