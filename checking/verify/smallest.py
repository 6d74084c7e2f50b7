"""Run the smallest covering problem of every SKU of an op once per layout, under a memory checker.

``python -m baracuda.checking.verify.smallest OP ELEMENT`` does so on the GPU for the SKUs of an element type; the
environment variables of `suite` apply.
"""

from __future__ import annotations

import os
import sys

from ..oracles.oracle import with_saved
from ..problems.cases import fills_packs, skus
from ..trials.arrange import arrange
from ..trials.memory import memory_of
from ..variables import DEVICE
from .chosen import problems_of, subjects

_LAYOUTS = {"packed": "gap", "dense": "shifted", "strided": "step"}


def main(op: str, element: str) -> None:
    """Run, and print what ran."""
    memory = memory_of(os.environ.get(DEVICE, "cuda"))
    subject = next(s for s in subjects() if s.spec.op == op)
    for sku in (x for x in skus(subject) if x.element == element):
        problems = problems_of(op, sku.symbol)
        vec = 16 // sku.element.row.bytes
        for layout, pattern in _LAYOUTS.items():
            fit = [p for p in problems if p.several and (layout != "packed" or fills_packs(p, vec))]
            problem = min(fit or problems, key=lambda p: p.size)
            arrays, _ = with_saved(problem, problem.draw(), problem.stored_types(), problem.draw_hidden())
            patterns = dict.fromkeys(problem.arguments, pattern)
            arrange(problem, arrays, memory, patterns=patterns, poison_workspace=False).run()
            print(f"{sku.symbol} {layout} {problem.descriptor}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
