"""Checks of results that may not depend on where arrays lie: layouts, alignment, distances and shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle, islice, product
from typing import Any

import numpy as np

from baracuda.runtime.arrays.axes import contiguous_strides

from ..oracles.oracle import with_saved
from ..problems.problem import Problem
from ..trials.arrange import arrange
from ..trials.memory import LONE, PATTERNS, Memory, Placed
from .agreement import require_same


def check_layouts(problem: Problem, memory: Memory) -> None:
    """Strides, alignment, workspace and repetition change no bit where the spec guarantees that for the same kernel.

    Other results stay close. Tensors have different patterns, so that no tensor's offsets fit another.
    """
    arrays, _ = with_saved(problem, problem.draw(seed=1), problem.stored_types(), problem.draw_hidden(seed=1))
    base = arrange(problem, arrays, memory).run()
    again = arrange(problem, arrays, memory, shift_workspace=16).run()
    promised = {n for n, rungs in problem.plan.promises.items() if "bit_stable_on_same_hardware" in rungs}
    require_same(problem, base, again, promised, "a second run")
    for turn, patterns in enumerate(_layouts(problem)):
        arranged = arrange(problem, arrays, memory, patterns=patterns, shift_workspace=16 * (turn % 3))
        arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
        serving = problem.plan.can_implement(**arguments, workspace=arranged.workspace).sku
        same = promised if serving == problem.plan.sku else set()
        require_same(problem, base, arranged.run(), same, f"layouts {patterns}")


def _layouts(problem: Problem) -> Iterator[dict[str, str]]:
    names, kinds = list(problem.arguments), list(PATTERNS)
    for kind in kinds[1:]:
        yield dict.fromkeys(names, kind)
    yield {name: "contiguous" if problem.plan.ARGUMENTS[name].written else "transposed" for name in names}
    for turn in range(len(kinds)):
        yield dict(zip(names, islice(cycle(kinds), turn, None), strict=False))


def check_lone_layouts(problem: Problem, memory: Memory) -> None:
    """One tensor off the alignment of the others, of odd pitch, or with a gap along its first axis only.

    A kernel that asks another tensor, or another stride, whether vectors may load and store is wrong there.
    """
    arrays, _ = with_saved(problem, problem.draw(seed=12), problem.stored_types(), problem.draw_hidden(seed=12))
    base = arrange(problem, arrays, memory).run()
    promised = {n for n, rungs in problem.plan.promises.items() if "bit_stable_on_same_hardware" in rungs}
    for name in problem.arguments:
        for pattern in LONE:
            arranged = arrange(problem, arrays, memory, patterns={name: pattern})
            view, usual = arranged.placed[name].view, contiguous_strides(problem.shape_of(name))
            if pattern != "shifted" and tuple(view.strides) == tuple(usual):
                continue
            arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
            serving = problem.plan.can_implement(**arguments, workspace=arranged.workspace).sku
            same = promised if serving == problem.plan.sku else set()
            require_same(problem, base, arranged.run(), same, f"{name!r} alone {pattern}")


def check_broadcast(problem: Problem, memory: Memory) -> None:
    """An input of stride 0 along its first or last axis gives the same as the numbers written out."""
    arrays, _ = with_saved(problem, problem.draw(seed=2), problem.stored_types(), problem.draw_hidden(seed=2))
    read_only = [n for n, a in problem.plan.ARGUMENTS.items() if not a.written]
    free = [n for n in read_only if n in arrays and problem.arguments[n].layout != "contiguous"]
    promised = {n for n, rungs in problem.plan.promises.items() if "bit_stable_on_same_hardware" in rungs}
    for name, axis in [(given, axis) for given in free for axis in _broadcast_axes(problem, given)]:
        array = arrays[name]
        one = np.ascontiguousarray(array.take([0], axis))
        repeated = {**arrays, name: np.ascontiguousarray(np.broadcast_to(one, array.shape))}
        base = arrange(problem, repeated, memory).run()
        arranged = arrange(problem, {**arrays, name: one}, memory)
        placed = arranged.placed[name]
        strides = [0 if other == axis else stride for other, stride in enumerate(placed.view.strides)]
        placed.view = placed.view._replace(shape=array.shape, strides=tuple(strides))
        arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
        serving = problem.plan.can_implement(**arguments, workspace=arranged.workspace).sku
        same = promised if axis == 0 or serving == problem.plan.sku else set()
        require_same(problem, base, arranged.run(), same, f"stride 0 along axis {axis} of {name!r}")


def _broadcast_axes(problem: Problem, name: str) -> list[int]:
    """The first and the last axis, as far as they have several elements and a stride of their own."""
    shape = problem.shape_of(name)
    axes = [0] if problem.layout or problem.arguments[name].layout == "inner" else [0, len(shape) - 1]
    return [axis for axis in dict.fromkeys(axes) if len(shape) > 1 and shape[axis] > 1]


FAR = 2**31 + 8  # elements between rows: beyond 32 bits
_BOTH = (3 << 29, 1 << 30)  # elements along two axes, which only together are beyond 31 bits


def check_huge_strides(problem: Problem, memory: Memory) -> None:
    """Parts more than 2^31 elements apart, along one axis of extent 2 or along two, give the bits of adjacent ones."""
    arrays, _ = with_saved(problem, problem.draw(seed=9), problem.stored_types(), problem.draw_hidden(seed=9))
    base = arrange(problem, arrays, memory).run()
    for name in problem.arguments:
        for steps in _far_steps(problem, name):
            arranged = arrange(problem, arrays, memory)
            far = _Far(arranged.placed[name], steps, memory)
            arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments | {name: far.view}
            problem.plan.run(**arguments, workspace=arranged.workspace)
            memory.finish()
            outputs = {n: far.values() if n == name else arranged.placed[n].values() for n in problem.written}
            require_same(problem, base, outputs, set(base), f"strides of {steps} elements by axis of {name!r}")


def _far_steps(problem: Problem, name: str) -> list[dict[int, int]]:
    """Strides by axis of extent 2, where they are free: for some alone, and for two."""
    shape, layout = problem.shape_of(name), problem.arguments[name].layout
    if problem.layout or layout == "contiguous":
        return []
    free = shape[:-1] if layout == "inner" else shape
    axes = [axis for axis, extent in enumerate(free) if extent == 2]
    alone = [{axis: FAR} for axis in problem.far_alone(name, axes)]
    return alone + [dict(zip(axes, _BOTH, strict=False))] * (len(axes) > 1 and len(alone) > 0)


class _Far:
    """A placed tensor moved to memory where the halves of some axes lie as far apart as `steps` says, in elements."""

    def __init__(self, placed: Placed, steps: Mapping[int, int], memory: Memory) -> None:
        shape, self.itemsize, self.like = placed.view.shape, placed.view.element.row.bytes, placed.values()
        self.parts = {}  # by offset: the index of a part
        for halves in product((0, 1), repeat=len(steps)):
            of_axis = {axis: slice(half, half + 1) for axis, half in zip(steps, halves, strict=True)}
            offset = sum(half * step for half, step in zip(halves, steps.values(), strict=True))
            self.parts[offset] = tuple(of_axis.get(axis, slice(None)) for axis in range(len(shape)))
        self.vast = memory.vast(max(self.parts) * self.itemsize + self.like.nbytes)
        for offset, index in self.parts.items():
            part = np.ascontiguousarray(self.like[index])
            self.vast.write(offset * self.itemsize, part.reshape(-1).view(np.uint8))
        inner = contiguous_strides(tuple(1 if axis in steps else extent for axis, extent in enumerate(shape)))
        strides = tuple(steps.get(axis, stride) for axis, stride in enumerate(inner))
        self.view = placed.view._replace(pointer=self.vast.pointer, strides=strides, owner=self.vast)

    def values(self) -> np.ndarray[Any, Any]:
        values = np.empty_like(self.like)
        for offset, index in self.parts.items():
            read = self.vast.read(offset * self.itemsize, values[index].nbytes)
            values[index] = read.view(values.dtype).reshape(values[index].shape)
        return values


def check_in_place(problem: Problem, memory: Memory) -> None:
    """An output may take over the memory of each input that its spec says it may alias."""
    if not any(problem.plan.ARGUMENTS[name].may_alias for name in problem.written):
        return
    arrays, _ = with_saved(problem, problem.draw(seed=6), problem.stored_types(), problem.draw_hidden(seed=6))
    base = arrange(problem, arrays, memory).run()
    for name in problem.written:
        for other in problem.plan.ARGUMENTS[name].may_alias:
            arranged = arrange(problem, arrays, memory)
            arranged.placed[name] = arranged.placed[other]
            arranged.placed.pop(other)
            arguments: Any = dict.fromkeys(problem.spec.arguments) | arranged.arguments
            problem.plan.run(**{**arguments, other: arranged.placed[name].view}, workspace=arranged.workspace)
            memory.finish()
            outputs = {n: arranged.placed[n].values() for n in problem.written}
            require_same(problem, base, outputs, set(base), f"{name!r} in place of {other!r}")
