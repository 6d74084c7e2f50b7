"""The table of what runs names every check, and its samples have a fixed size."""

from __future__ import annotations

import inspect

import pytest

from baracuda.checking.problems.cases import skus
from baracuda.checking.variables import FIRST, SAMPLE
from baracuda.checking.verify import chosen, suite, table


def test_every_check_is_in_the_table() -> None:
    """Those that compare with a GPU aside."""
    tests = {name.removeprefix("test_"): f for name, f in vars(suite).items() if name.startswith("test_")}
    assert {*tests} == {*table.TABLE}
    of_kernels = {name for name, test in tests.items() if "sku" in inspect.signature(test).parameters}
    assert of_kernels == {name for name, row in table.TABLE.items() if row.one_for_each}


@pytest.mark.parametrize("check", [name for name, row in table.TABLE.items() if row.one_for_each])
def test_one_kernel_stands_for_each_kind(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsampled, every kernel shares the traits of its row with one that is tested; sampled, so many are as it says."""
    monkeypatch.delenv(SAMPLE, raising=False)
    row, tested = table.TABLE[check], table.kernels(check, chosen.subjects())
    for subject in chosen.subjects():
        if not table.is_for(check, subject):
            continue
        for names in row.one_for_each:

            def kind(sku: object, names: str = names, subject: object = subject) -> tuple[object, ...]:
                known = table.traits(subject, sku)  # type: ignore[arg-type]
                return tuple(known[name] for name in names.split())

            every = filter(row.is_of, skus(subject, "host"))
            assert {*map(kind, every)} == {kind(sku) for sku in tested if sku.op == subject.spec.op}
    monkeypatch.setenv(SAMPLE, "0")
    sampled = table.kernels(check, chosen.subjects())
    assert len(sampled) == min(row.sampled, len(tested)) and {*sampled} <= {*tested}


def test_more_ops_are_no_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer places than ops, those that a change is of come first."""
    monkeypatch.setenv(SAMPLE, "0")
    monkeypatch.setenv(FIRST, "softmax alibi")
    monkeypatch.setitem(table.TABLE, "layouts", table.Row(("element path",), 3))
    monkeypatch.setitem(table.TABLE, "types", table.Row((), 3))
    kernels, ops = table.kernels("layouts", chosen.subjects()), table.ops("types", chosen.subjects())
    assert len(kernels) == len(ops) == 3
    assert {"softmax", "alibi"} <= {sku.op for sku in kernels} & {one.spec.op for one in ops}
