"""What tests cost in processor seconds, their child processes included: tables of the dearest at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from baracuda.checking.variables import SAMPLE

SHOWN = 10  # rows of a table
WORTH_SHOWING = 60.0  # seconds of a whole run


class Costs:
    """A plugin that measures in the process that runs a test, and adds up in the one that reports."""

    def __init__(self, file: str | None) -> None:
        self.file = file  # where every test's cost is written to
        self.by_test: Counter[str] = Counter()
        self.op_of: dict[str, str] = {}
        self._last = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._last = _seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        now = _seconds()
        report.user_properties = [*report.user_properties, ("cost", now - self._last), ("op", _op(item))]
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        self.by_test[report.nodeid] += properties.get("cost", 0.0)
        if properties.get("op"):
            self.op_of[report.nodeid] = properties["op"]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = sum(self.by_test.values())
        if self.file:
            lines = [f"{seconds:.2f} {test}\n" for test, seconds in self.by_test.most_common()]
            Path(self.file).write_text("".join(lines), encoding="utf-8")
        if total < WORTH_SHOWING:
            return
        write = terminalreporter.write_line
        terminalreporter.section(f"{total:.0f} processor seconds")
        word = os.environ.get(SAMPLE)
        write("all kernels" if word is None else f"a sample of kernels, {SAMPLE}={word}; --everything tests all")
        for title, name in (
            ("tier", lambda test: test.split("/")[1]),
            ("file", lambda test: test.partition("::")[0]),
            ("op", lambda test: self.op_of.get(test, "")),
            ("test", lambda test: test),
        ):
            for row in self._table(title, name):
                write(row)

    def _table(self, title: str, name: Callable[[str], str]) -> Iterator[str]:
        """The dearest of each name: seconds, tests."""
        seconds: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for test, cost in self.by_test.items():
            seconds[name(test)] += cost
            count[name(test)] += 1
        del seconds[""]
        yield f"{'seconds':>8} {'tests':>6}  {title}"
        for one, cost in seconds.most_common(SHOWN):
            yield f"{cost:8.1f} {count[one]:6}  {one}"


def _seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _op(item: pytest.Item) -> str:
    """The op that a test is of, as its parameters say."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if "subject" in params:
        return str(params["subject"].spec.op)
    return str(params["sku"].op) if hasattr(params.get("sku"), "op") else ""
