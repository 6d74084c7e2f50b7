"""Small ops as somebody writes them first: right on the host device, gradients included, or refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host.own_package import package

from baracuda.checking.problems.problem import Problem
from baracuda.checking.problems.subject import Subject
from baracuda.checking.trials.memory import HostMemory
from baracuda.checking.verify.checks import check_problem
from baracuda.codegen.spec.load import load_folder
from baracuda.ops import functions
from baracuda.runtime import InvalidProblem, SpecError

HEAD = """op: small
doc: a small op
dims: {r: n, c: m}
descriptor:
  n: {type: int, doc: rows}
  m: {type: int, doc: columns}
"""
V = "inputs: {x: {dims: [r, c]}, v: {dims: [r]}}\n"
# The rest of a spec, and the extents of problems.
RIGHT: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "what is summed varies less": (
        V + "outputs: {y: {dims: [r], dtype: acc}}\nprogram: y = sum(log(v) + x, c)\nbackward: {}\n"
        "tests: {ranges: {v: [0.5, 2]}}\n",
        [{"n": 3, "m": 40}, {"n": 5, "m": 1}, {"n": 4, "m": 0}],
    ),
    "a sum of all": (
        "inputs: {x: {dims: [r, c]}, v: {dims: [r]}, u: {dims: [c]}}\noutputs: {y: {dims: [], dtype: acc}}\n"
        "program: y = sum(x + v + u, r, c)\nbackward: {}\n",
        [{"n": 3, "m": 40}, {"n": 0, "m": 7}],
    ),
    "a spread of whole numbers": (
        "inputs: {x: {dims: [r, c], dtype: [u8, i32]}, z: {dims: [c]}}\n"
        "outputs: {y: {dims: [r], dtype: acc}, s: {dims: [c], dtype: acc}}\nprogram: |\n  y = var(x, c)\n"
        "  s = std(x, r) * z\n",
        [{"n": 300, "m": 33}, {"n": 2, "m": 3000}],
    ),
    "bools at places": (
        "dtypes: [bool]\ninputs: {x: {dims: [r, c], outside: true}}\noutputs: {y: {dims: [r, c]}, z: {dims: [r, c]}}\n"
        "program: |\n  y = x[r, c - 1] and x\n  z = x[r, c + 2]\n",
        [{"n": 3, "m": 50}],
    ),
    "complex numbers at places": (
        "dtypes: [c64]\ninputs: {x: {dims: [r, c], outside: 0.5}}\noutputs: {y: {dims: [r, c]}, z: {dims: [r, c]}}\n"
        "program: |\n  y = complex(real(x[r, c - 1]), imag(x))\n  z = x[r, size(c) - 1 - c]\nbackward: {}\n",
        [{"n": 3, "m": 50}],
    ),
    "places of bytes": (
        "dtypes: [i8, u8]\ninputs: {x: {dims: [r, c]}}\noutputs: {y: {dims: [c], dtype: i64}, "
        "z: {dims: [c], dtype: i64}, b: {dims: [c], dtype: i64}}\n"
        "program: |\n  y = argmax(x, r)\n  z = argmin(x, r)\n  b = sum(x, r)\n",
        [{"n": 200, "m": 40}, {"n": 64, "m": 1}],
    ),
    "bits of ints": (
        "dtypes: [i32, u8]\ninputs: {x: {dims: [r, c]}}\noutputs: {y: {dims: [r, c]}}\nprogram: y = ~x\n",
        [{"n": 3, "m": 40}],
    ),
    "whole turns of nothing": (
        "dtypes: [i64]\ninputs: {x: {dims: [r, c]}}\noutputs: {y: {dims: [r, c]}}\n"
        "program: y = x % (index(r) - 1) + index(c) % (n - 3) + x // (index(c) * 4294967296)\n",
        [{"n": 3, "m": 40}],
    ),
    "a gradient that is 0": (
        "inputs: {x: {dims: [r, c]}}\noutputs: {y: {dims: [r, c]}}\nprogram: y = x / sqrt(sum(x * x, c))\n"
        "backward: {}\n",
        [{"n": 3, "m": 1}, {"n": 3, "m": 20}],
    ),
}


def _made(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    return package(folder, text, monkeypatch), load_folder(folder / "specs")


@pytest.mark.parametrize("name", RIGHT)
def test_they_are_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, cases = RIGHT[name]
    made, loaded = _made(tmp_path, HEAD + text, monkeypatch)
    assert loaded.keys() == ({"small", "small_backward"} if "backward" in text else {"small"})
    for op in loaded:
        subject = Subject(loaded[op], loaded, made.__name__)
        for element in subject.spec.dtypes:
            for case in cases:
                check_problem(Problem.of(subject, case, element), HostMemory())


NORMS = """op: small
doc: norms of rows
dims: {rows: rest, cols: axis}
descriptor: {axis: {type: int, doc: axis, default: -1}}
outputs: {y: {}, s: {dims: [rows]}, l: {dims: [rows]}}
inputs: {x: {}}
program: |
  y = x / maximum(norm2(x, cols), 1.0e-12)
  s = std(x, cols)
  l = logsumexp(x, cols)
backward: {}
"""


def test_rows_of_zeros_have_gradients_and_rows_of_infinities_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = _made(tmp_path, NORMS, monkeypatch)
    of = functions(made)
    x = np.array([[0.0, 0.0, 0.0], [2.5, 2.5, 2.5], [-np.inf] * 3, [1.0, np.inf, -np.inf], [np.nan, 0.0, np.inf]])
    assert of["small"](x).l[2:, 0] == pytest.approx([-np.inf, np.inf, np.nan], nan_ok=True)
    one = np.ones((5, 1))
    found = of["small_backward"](np.zeros_like(x), one, 0 * one, x)[:2]
    assert not found.any(), "as in torch, a deviation of equal numbers has no slope"
    assert (of["small_backward"](np.ones_like(x), one, 0 * one, x)[0] == 1e12).all()


STRIDED = (
    HEAD.replace("c: m}", "c: m, k: wide}") + "  wide: {type: int, doc: d}\n  stride: {type: int, doc: d, default: 2}\n"
    "inputs: {x: {dims: [r, k], outside: 0}}\noutputs: {y: {dims: [r, c]}}\n"
    "program: y = x[r, c * stride + 1]\nbackward: {}\n"
)


def test_what_a_gradient_divides_by_is_not_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = _made(tmp_path, STRIDED, monkeypatch)
    of = functions(made)
    x = np.arange(8.0).reshape(2, 4)
    assert (of["small"](x, m=3, stride=0) == x[:, 1:2]).all(), "the forward needs no such thing"
    with pytest.raises(InvalidProblem, match=r"stride != 0"):
        of["small_backward"](np.ones((2, 3)), wide=4, stride=0)
    said = STRIDED.replace("descriptor:", "require: ['1 <= stride']\ndescriptor:")
    (tmp_path / "specs" / "own.yaml").write_text(said)
    spec = load_folder(tmp_path / "specs")["small_backward"].spec
    assert [r.that for r in spec.require if "stride" in r.that] == ["1 <= stride"]


def test_an_op_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = _made(tmp_path, STRIDED, monkeypatch)
    with pytest.raises(KeyError, match="has no op 'smal'; did you mean 'small'") as caught:
        functions(made)["smal"]
    assert isinstance(caught.value, InvalidProblem) and functions(made).get("other") is None
    with pytest.raises(InvalidProblem, match="'m' must be an int, got True"):
        functions(made)["small"](np.ones((2, 4)), m=True, stride=1)


X = "inputs: {x: {dims: [r, c], outside: 0}}\noutputs: {y: {dims: [r, c]}}\nprogram: y = x[r, c - 1]\n"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (X.replace(": 0}", ": true}"), "7: needs a number, as 'x' holds floats; got true"),
        ("dtypes: [bool]\n" + X.replace(": 0}", ": 2}"), "8: needs true or false, as 'x' holds bools; got 2"),
        ("dtypes: [u8]\n" + X.replace(": 0}", ": 0.5}"), "8: needs an int of 64 bits, as 'x' holds ints; got 0.5"),
        ("dtypes: [f32, i32]\n" + X.replace(": 0}", ": n}"),
         "8: 'x' may hold floats and ints; needs a number that each is, as 0"),
        ("kinds: [relu]\ninputs: {x: {dims: [r, c]}}\noutputs: {y: {dims: [r, c]}}\n"
         "tests: {cases: [{kind: rleu, n: 2, m: 2}]}\n", "10: unknown kind 'rleu'; did you mean 'relu'?"),
        (X.replace(", outside: 0", "").replace("x[r, c - 1]", "x") + "backward: {program: dx = x, inputs: {x: }}\n",
         "10: none of the gradients that come in is read; use what is called d and an output's name"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(rest: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(HEAD + rest)
    with pytest.raises(SpecError) as caught:
        load_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path}/small.yaml:{message}"


LIST = """op: small
doc: sums of lists
family: list
descriptor: {numel: {type: int, doc: elements}}
dims: {cell: numel}
inputs: {x: {}}
outputs: {y: {}}
program: y = x * 2
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{cell: numel}", "{cell: 0}",
         "5: '0' must be an int, the number of elements of each list; arrays may have any shapes"),
        ("{cell: numel}\ninputs: {x: {}}\noutputs: {y: {}}",
         "{cell: numel, other: numel}\ninputs: {x: [cell]}\noutputs: {y: [cell]}",
         "5: names 2 dims; the arrays of lists have one, the elements of each list"),
        ("x * 2", "x * index(cell)",
         "8: index is of an element's place; those of a list have none, for its arrays may be cut anyhow"),
    ],
)  # fmt: skip
def test_lists_have_one_dim_of_elements(old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(LIST.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_folder(tmp_path)
    assert str(caught.value) == f"{tmp_path}/small.yaml:{message}"
