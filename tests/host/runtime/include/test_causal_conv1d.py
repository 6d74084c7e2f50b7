"""Causal convolutions of causal_conv1d*.cuh against NumPy in float64, with every access checked."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from repository import KERNELS

from baracuda.runtime.device import KernelSource, WatchedArray
from baracuda.runtime.host import HostDevice

KERNEL = KERNELS / "causal_conv1d.cu"
BF16 = ml_dtypes.bfloat16
NAMES = {BF16: "bf16", np.float16: "f16", np.float32: "float", np.float64: "double"}
# threads, lanes, channels of a block, tiles of a thread, tiles read ahead; by layout: rows, columns, any strides
SCHEDULES = {0: (64, 4, 2, 4, 2), 1: (64, 4, 16, 2, 3), 2: (32, 8, 1, 1, 2)}


def tile_steps(case) -> int:
    """Time steps of a tile: short ones where the packs of rows and the steps before a tile allow it."""
    return 4 if case.width <= 5 and (case.layout == 1 or np.dtype(case.kind).itemsize >= 4) else 8


def sigmoid(p):
    return np.exp(np.minimum(p, 0)) / (1 + np.exp(-abs(p)))


def reference(case) -> SimpleNamespace:
    """Everything the ops compute, and the sums of absolute values that error bounds are made of."""
    x, dy = case.x.astype(np.float64), case.dy.astype(np.float64)
    w, halo = case.weight.astype(np.float64), case.width - 1
    bias = case.bias.astype(np.float64) if case.has_bias else np.zeros(case.channels)
    out = SimpleNamespace(y=np.zeros(x.shape), dx=np.zeros(x.shape), large_x=np.zeros(x.shape))
    states = (case.sequences, case.channels, halo)
    out.final, out.dinitial, out.large_initial = np.zeros(states), np.zeros(states), np.zeros(states)
    out.dw, out.db, out.large_w, out.large_b = np.zeros(w.shape), np.zeros(bias.shape), np.zeros(w.shape), 1e-30
    for n in range(case.sequences):
        if case.cu_seqlens is None:
            where = (n, slice(None), slice(0, case.length))
        else:
            where = (0, slice(None), slice(int(case.cu_seqlens[n]), int(case.cu_seqlens[n + 1])))
        length = x[where].shape[-1]
        before = case.initial[n].astype(np.float64) if case.states else np.zeros((case.channels, halo))
        wide = np.concatenate([before, x[where]], axis=1)
        taps = [wide[:, k : k + length] for k in range(case.width)]
        pre = bias[:, None] + sum(w[:, k, None] * taps[k] for k in range(case.width))
        s = sigmoid(pre)
        out.y[where] = pre * s if case.silu else pre
        slope = s + pre * s * (1 - s) if case.silu else 1.0
        size = abs(bias)[:, None] + sum(abs(w[:, k, None] * taps[k]) for k in range(case.width))
        g, large = dy[where] * slope, abs(dy[where]) * (2 + size)
        dwide, dlarge = np.zeros(wide.shape), np.zeros(wide.shape)
        for k in range(case.width):
            dwide[:, k : k + length] += w[:, k, None] * g
            dlarge[:, k : k + length] += abs(w[:, k, None]) * large
            out.dw[:, k] += (taps[k] * g).sum(axis=1)
            out.large_w[:, k] += (abs(taps[k]) * large).sum(axis=1)
        out.db += g.sum(axis=1)
        out.large_b = out.large_b + large.sum(axis=1)
        out.final[n] = wide[:, length:]
        if case.states:
            dwide[:, length:] += case.dfinal[n].astype(np.float64)
            dlarge[:, length:] += abs(case.dfinal[n].astype(np.float64))
        out.dinitial[n], out.large_initial[n] = dwide[:, :halo], dlarge[:, :halo]
        out.dx[where], out.large_x[where] = dwide[:, halo:], dlarge[:, halo:]
    out.large_y = 2 * abs(out.y) + abs(bias)[:, None] + abs(w).sum(axis=1)[:, None] * (abs(x).max(initial=0) + 1)
    return out


def problem(
    shape, width=4, kind=np.float32, stored=None, layout=0, silu=True, bias=True, states=False, lengths=None, seed=0
):
    random = np.random.default_rng(seed)
    batch, channels, length = shape
    case = SimpleNamespace(batch=batch, channels=channels, length=length, width=width, kind=kind, layout=layout)
    case.stored, case.silu, case.has_bias, case.states = stored or kind, silu, bias, states
    case.cu_seqlens = None if lengths is None else np.cumsum([0, *lengths]).astype(np.int32)
    case.sequences = batch if lengths is None else len(lengths)
    assert lengths is None or (batch == 1 and sum(lengths) == length)
    state = (case.sequences, channels, width - 1)
    draw = lambda *size: random.standard_normal(size)  # noqa: E731
    case.x, case.dy = draw(*shape).astype(kind), draw(*shape).astype(kind)
    case.weight, case.bias = draw(channels, width).astype(case.stored), draw(channels).astype(case.stored)
    case.initial, case.dfinal = draw(*state).astype(kind), draw(*state).astype(kind)
    return case


class Launcher:
    """Arrays in the layout of the case, and launches with all of them in check mode."""

    def __init__(self, case) -> None:
        self.case, self.device, self.arrays = case, HostDevice(check=True), {}

    def tensor(self, name, role, values, *, spread=False):
        """A copy of `values`; with `spread` in the layout of the case, rows and pixels padded to 16 bytes."""
        values = np.asarray(values)
        layout = self.case.layout if spread else 0
        if not spread:
            array = view = self.device.empty(values.shape, values.dtype, align_end=values.nbytes % 16 == 0)
        else:
            order = {0: (0, 1, 2), 1: (0, 2, 1), 2: (2, 0, 1)}[layout]
            b, c, t = (values.shape[axis] for axis in order)
            pitch = -(-t * values.itemsize // 16) * 16 // values.itemsize if layout < 2 else t + 1
            array = self.device.empty((b, c, pitch), values.dtype, align_end=b * c * pitch * values.itemsize % 16 == 0)
            view = array[:, :, :t].transpose([order.index(axis) for axis in range(3)])
        if role in ("in", "inout"):
            view[...] = values
        self.arrays[name] = (view, role)
        return view

    def words(self, name, rank):
        if name not in self.arrays:
            return [0] * (rank + 1)
        view = self.arrays[name][0]
        return [view.ctypes.data, *(step // view.itemsize for step in view.strides)]

    def launch(self, symbol, grid, words, used, held=0):
        case = self.case
        block, lanes, owned, tiles, ahead = SCHEDULES[case.layout]
        settings = {
            **{symbol.upper(): 1, "ELEMENT": NAMES[case.kind], "STORED": NAMES[case.stored], "OFFSET": "int"},
            **{"TAPS": case.width, "USE_SILU": int(case.silu), "BIAS": int(case.has_bias), "STATES": int(case.states)},
            **{"VARLEN": int(case.cu_seqlens is not None), "LAYOUT": case.layout, "BLOCK": block},
            **{"ACROSS": lanes, "OWNED_CHANNELS": owned, "TILES": tiles, "AHEAD": ahead},
            **{"STEPS_OF_TILE": tile_steps(case), "STATE_STEPS": held},
        }
        defines = tuple(f"{name}={value}" for name, value in settings.items())
        kernel = self.device.load(KernelSource("kernels/causal_conv1d.cu", KERNEL.read_text(), symbol, defines))
        watched = [
            WatchedArray(
                name, role, view.ctypes.data, view.shape, tuple(s // view.itemsize for s in view.strides), view.itemsize
            )
            for name, (view, role) in self.arrays.items()
            if name in used and view.size
        ]
        args = (ctypes.c_int64 * len(words))(*words)
        with self.device.watch(watched):
            kernel.launch((grid, 1, 1), block, ctypes.addressof(args), ctypes.sizeof(args), 0)

    def geometry(self):
        """Blocks of main, and how many partial sums a channel has."""
        case = self.case
        block, lanes, owned, tiles, _ = SCHEDULES[case.layout]
        columns = case.layout == 1
        run = tile_steps(case) * tiles * (1 if columns else lanes)
        runs = block // lanes // (1 if columns else owned)
        parts = -(-case.batch * -(-case.length // run) // runs)
        return max(1, -(-case.channels // owned) * parts), parts

    def inputs(self, *names):
        case = self.case
        have = {"x": case.x, "dy": case.dy, "weight": case.weight, "initial_states": case.initial}
        have["dfinal_states"] = case.dfinal
        for name in names:
            self.tensor(name, "in", have[name], spread=name in ("x", "dy"))
        if case.has_bias:
            self.tensor("bias", "in", case.bias)
        if case.cu_seqlens is not None:
            self.tensor("cu_seqlens", "in", case.cu_seqlens)

    @property
    def scalars(self):
        case = self.case
        return [case.batch, case.channels, case.length, case.width, case.sequences, int(case.silu)]

    def run(self, ranks, symbol, grid, extra=(), without=()):
        words = [word for name, rank in ranks.items() for word in self.words(name, rank)]
        self.launch(symbol, grid, [*words, *self.scalars, *extra], {*ranks, "partials"} - {*without})

    def forward(self):
        case = self.case
        self.inputs("x", "weight", *(["initial_states"] if case.states else []))
        y = self.tensor("y", "out", np.zeros(case.x.shape, case.kind), spread=True)
        final = self.tensor("final_states", "out", case.initial * 0) if case.states else None
        ranks = {"x": 3, "weight": 2, "bias": 1, "initial_states": 3, "cu_seqlens": 1, "y": 3, "final_states": 3}
        self.run(ranks, "forward", self.geometry()[0])
        return y, final

    def backward(self):
        case = self.case
        self.inputs("x", "weight", "dy", *(["initial_states", "dfinal_states"] if case.states else []))
        made = {"dx": (case.x, True), "dw": (case.weight, False)}
        made |= {"db": (case.bias, False)} if case.has_bias else {}
        made |= {"dinitial_states": (case.initial, False)} if case.states else {}
        made = {n: self.tensor(n, "out", np.zeros_like(v), spread=s) for n, (v, s) in made.items()}
        ranks = {"x": 3, "weight": 2, "bias": 1, "dy": 3, "initial_states": 3, "dfinal_states": 3, "cu_seqlens": 1}
        ranks |= {"dx": 3, "dw": 2, "db": 1, "dinitial_states": 3}
        grid, parts = self.geometry()
        sums = (case.width + case.has_bias) * case.channels
        kind = np.float64 if case.kind == np.float64 else np.float32
        partials = self.tensor("partials", "out", np.zeros(max(1, parts * sums), kind)[: parts * sums])
        self.run(ranks, "backward", grid, [partials.ctypes.data], {"dw", "db"})
        self.arrays["partials"] = partials, "in"
        fold = -(-sums // (SCHEDULES[case.layout][0] // 8))
        self.run(ranks, "fold", fold, [partials.ctypes.data], {"dx", "dinitial_states"})
        return made


def close(got, exact, large, terms=0):
    """One rounding to the stored type, and errors of the sum in the type it is computed in."""
    stored = ml_dtypes.finfo(got.dtype).eps
    unit = 2.0**-53 if got.dtype == np.float64 else 2.0**-24
    bound = 0.51 * stored * abs(exact) + (16 + terms) * unit * large + 1e-30
    assert (abs(got.astype(np.float64) - exact) <= bound).all(), np.nanmax(abs(got.astype(np.float64) - exact) / bound)


ROWS = {"kind": BF16, "stored": np.float32, "states": True}
PIECES = {"kind": np.float16, "states": True}
CASES = {
    "rows": {"shape": (2, 3, 201), **ROWS},
    "short": {"shape": (3, 2, 2), **ROWS},
    "no time": {"shape": (2, 3, 0), **ROWS},
    "rows, widest": {"shape": (1, 5, 67), "width": 8, "kind": np.float64},
    "rows, varlen": {"shape": (1, 3, 100), "lengths": [0, 3, 1, 0, 40, 2, 54, 0], **PIECES},
    "no sequences": {"shape": (1, 3, 0), "lengths": [], **PIECES},
    "columns": {"shape": (2, 19, 41), "layout": 1, "kind": BF16, "bias": False},
    "columns, varlen": {
        **{"shape": (1, 21, 60), "layout": 1, "width": 8, "silu": False, "lengths": [1, 2, 0, 33, 24]},
        **PIECES,
    },
    "strides": {"shape": (3, 2, 77), "layout": 2, "width": 2, "states": True},
}
EACH = pytest.mark.parametrize("case", [problem(**fields) for fields in CASES.values()], ids=CASES)


@EACH
def test_forward(case):
    y, final = Launcher(case).forward()
    expected = reference(case)
    close(y, expected.y, expected.large_y)
    if case.states:
        np.testing.assert_array_equal(final.astype(np.float64), expected.final)


@EACH
def test_backward(case):
    made, expected = Launcher(case).backward(), reference(case)
    close(made["dx"], expected.dx, expected.large_x)
    close(made["dw"], expected.dw, expected.large_w, 64)
    if case.has_bias:
        close(made["db"], expected.db, expected.large_b, 64)
    if case.states:
        close(made["dinitial_states"], expected.dinitial, expected.large_initial)


@pytest.mark.parametrize(("channels", "spread"), [(37, True), (37, False), (40, False)])
@pytest.mark.parametrize("kept", [3, 4, 9])
@pytest.mark.parametrize("steps", [1, 2, 12])
def test_update(kept, steps, channels, spread):
    """Steps after a state are what a convolution of the whole gives, and the state holds the last values.

    One step on a short state is taken in packs where there are no gaps and each sequence begins with a pack.
    """
    case = problem((2, channels, steps), kind=BF16, stored=np.float32)
    state = np.random.default_rng(1).standard_normal((2, channels, kept)).astype(BF16)
    launcher = Launcher(case)
    launcher.inputs("weight")
    launcher.tensor("x", "in", case.x, spread=spread)
    got_state = launcher.tensor("conv_state", "inout", state)
    y = launcher.tensor("y", "out", np.zeros(case.x.shape, BF16), spread=spread)
    ranks = {"x": 3, "weight": 2, "bias": 1, "conv_state": 3, "y": 3}
    words = [word for name, rank in ranks.items() for word in launcher.words(name, rank)]
    words += [case.batch, case.channels, steps, case.width, kept, 1]
    held = kept if steps == 1 and kept <= 8 else 0
    each = {0: 1, 3: 8, 4: 2}[held]
    launcher.launch("update", case.batch * -(-case.channels // (64 * each)), words, {*ranks}, held)
    whole = np.concatenate([state, case.x], axis=2)
    case.states, case.initial, case.dfinal = True, state[:, :, kept - 3 :], np.zeros((2, channels, 3), BF16)
    expected = reference(case)
    close(y, expected.y, expected.large_y)
    np.testing.assert_array_equal(got_state, whole[:, :, -kept:])


def test_out_of_order():
    """Boundaries that make no sense lead to no access out of bounds."""
    case = problem((1, 3, 50), lengths=[20, 30, 0], **PIECES)
    for bounds in ([0, 60, -9, 50], [70, 3, 1, 0], [-5, -4, 99, 100]):
        case.cu_seqlens = np.array(bounds, np.int32)
        Launcher(case).forward()
        Launcher(case).backward()


def test_not_a_number():
    """NaN reaches what depends on it and nothing else."""
    case = problem((1, 2, 60), **ROWS)
    case.x[0, 1, 30] = np.nan
    y, _ = Launcher(case).forward()
    np.testing.assert_array_equal(np.isnan(y[0]), [[False] * 60, [30 <= t < 34 for t in range(60)]])
    made = Launcher(case).backward()
    np.testing.assert_array_equal(np.isnan(made["dx"][0, 1]), [27 <= t < 34 for t in range(60)])
    assert not np.isnan(made["dw"][0]).any() and np.isnan(made["dw"][1]).all()


@pytest.mark.parametrize("layout", [0, 1])
def test_far_from_zero(layout):
    """Powers of two that would leave the type: results are as good as others, down to the smallest numbers."""
    bias = np.array([-100, -90, -88, -70, -44.4, 44.4, 70, 200, 0, 0], np.float32)
    case = problem((2, len(bias), 13), layout=layout)
    case.bias, case.weight, case.dy = bias, case.weight / 16, abs(case.dy)  # terms of db have one sign
    case.weight[8], case.x[:, 8] = 3e38, case.x[:, 8] * 1e-38  # taps that cannot be scaled
    case.weight[9], case.x[1, 9] = 1 / 16, 4e38 / 4  # results that cannot
    y, _ = Launcher(case).forward()
    db, expected = Launcher(case).backward()["db"], reference(case)
    relative, smallest = 2.0**-24 * (16 + 8 * abs(bias)), 2.0**-149 * 200
    assert (abs(y - expected.y) <= relative[:, None] * abs(expected.y) + smallest)[:, :8].all()
    assert (abs(db - expected.db) <= 2 * relative * abs(expected.db) + 26 * smallest)[:8].all()
    close(y[:, 8:], expected.y[:, 8:], abs(expected.y[:, 8:]) + 4)
