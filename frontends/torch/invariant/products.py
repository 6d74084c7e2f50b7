"""Matrix products: aten's mm, addmm, bmm, baddbmm, mv, addmv, dot and vdot, of groups and of 8-bit floats.

All of them add up in the order of the depth, so that a row has the same bits whichever of them computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import baracuda.runtime as rt

from .kernels import GROUPED, LINEAR, PRODUCTS, SCALED_BLOCKS, SCALED_BYTES, SCALED_PRODUCTS, fits, floats

BLOCK = 128  # along the depth, and of columns
_BLOCKS = (4, 5)  # of 1 x 128 of the first matrix, of 128 x 128 of the second
_RECIPES = ((0, 0), (1, 1), _BLOCKS)
_NAMED = "TensorWise or RowWise twice, or BlockWise1x128 and BlockWise128x128"
_STORED = (torch.bfloat16, torch.float16, torch.float32)  # what sums of 8-bit floats become


def mm(a: Any, b: Any) -> Any:
    """Two matrices."""
    floats(a, b)
    fits(a.dim() == 2 == b.dim(), "mm takes matrices")
    return PRODUCTS.compute(a.unsqueeze(0), b.unsqueeze(0)).squeeze(0)


def bmm(a: Any, b: Any) -> Any:
    """Two batches of matrices."""
    floats(a, b)
    fits(a.dim() == 3 == b.dim(), "bmm takes batches of matrices")
    return PRODUCTS.compute(a, b)


def addmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * c + alpha * (a @ b)``."""
    floats(a, b)
    fits(a.dim() == 2 == b.dim(), "addmm takes matrices")
    if beta == 1 == alpha and c.dim() == 1 and c.shape[0] == b.shape[1]:
        return LINEAR.compute(a, b.t(), c, kind="identity")
    return _scaled(c, a.unsqueeze(0), b.unsqueeze(0), (a.shape[0], b.shape[1]), beta, alpha).squeeze(0)


def baddbmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * c + alpha * (a @ b)`` of batches of matrices."""
    floats(a, b)
    fits(a.dim() == 3 == b.dim(), "baddbmm takes batches of matrices")
    return _scaled(c, a, b, (a.shape[0], a.shape[1], b.shape[2]), beta, alpha)


def mv(a: Any, x: Any) -> Any:
    """A matrix and a vector."""
    floats(a, x)
    fits(a.dim() == 2 and x.dim() == 1, "mv takes a matrix and a vector")
    return PRODUCTS.compute(a[None], x[None, :, None]).view(a.shape[0])


def addmv(c: Any, a: Any, x: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * c + alpha * (a @ x)``."""
    floats(a, x)
    fits(a.dim() == 2 and x.dim() == 1 and c.dim() <= 1, "addmv takes a vector, a matrix and a vector")
    return _scaled(c[..., None], a[None], x[None, :, None], (a.shape[0], 1), beta, alpha).view(a.shape[0])


def dot(x: Any, y: Any) -> Any:
    """Two vectors."""
    floats(x, y)
    fits(x.dim() == 1 == y.dim(), "dot takes vectors")
    return PRODUCTS.compute(x[None, None], y[None, :, None]).view(())


def grouped_mm(x: Any, w: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Rows in groups that end at `offs`, each times the matrix of its group; or batches of matrices."""
    floats(x, w)
    if bias is not None or out_dtype not in (None, x.dtype):
        raise rt.Unsupported("there is none with a bias, or of another type than its factors")
    if offs is None:
        return bmm(x, w)
    if (x.dim(), w.dim()) == (3, 2):  # columns in groups
        fits(x.shape[2] == w.shape[0] and offs.shape == x.shape[:1], "columns, matrices and ends do not fit")
        return GROUPED.compute(w.mT, x, offs).mT.contiguous()
    if (x.dim(), w.dim()) != (2, 3):
        raise rt.Unsupported("there is one of rows or columns in groups only: what is summed over groups is the batch")
    fits(x.shape[1] == w.shape[1] and offs.shape == w.shape[:1], "rows, matrices and ends do not fit")
    return GROUPED.compute(x, w.mT, offs)


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """Two matrices of 8-bit floats with a scale each, or of rows of `a` and columns of `b`, or of blocks."""
    floats(a, b)
    fits(a.dim() == 2 == b.dim() and a.shape[1] == b.shape[0], "_scaled_mm takes matrices")
    if scale_result is not None or out_dtype not in _STORED:
        raise rt.Unsupported(f"there is none that stores {a.dtype if out_dtype is None else out_dtype}, or scales it")
    (rows, depth), columns = a.shape, b.shape[1]
    blocks = -(-depth // BLOCK), -(-columns // BLOCK)
    if blocks != (1, 1) and scale_a.shape == (rows, blocks[0]) and scale_b.shape == blocks:
        return _scaled_by_blocks(a, b, scale_a, scale_b, bias, out_dtype)
    of_rows, of_columns = _each(scale_a, (rows, 1)), _each(scale_b, (1, columns))
    return SCALED_BYTES.compute(a, b.t(), of_rows, of_columns, bias, element=out_dtype)


def scaled_mm_v2(
    a: Any,
    b: Any,
    scale_a: Sequence[Any],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Any],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Any = None,
    out_dtype: Any = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    """The same, where numbers of torch's ScalingType say what scales belong to."""
    floats(a, b)
    fits(a.dim() == 2 == b.dim() and a.shape[1] == b.shape[0], "_scaled_mm_v2 takes matrices")
    recipes = *recipe_a, *recipe_b
    if recipes not in _RECIPES or len(scale_a) != 1 or len(scale_b) != 1:
        raise rt.Unsupported(f"there is none of recipes {[*recipe_a]} and {[*recipe_b]}; needs {_NAMED}")
    if any((*swizzle_a, *swizzle_b)) or contraction_dim:
        raise rt.Unsupported("there is none of swizzled scales, or along other dims")
    (of_a,), (of_b,) = scale_a, scale_b
    if recipes != _BLOCKS:
        return scaled_mm(a, b, of_a, of_b, bias, None, out_dtype)
    if out_dtype not in _STORED:
        raise rt.Unsupported(f"there is none that stores {a.dtype if out_dtype is None else out_dtype}")
    parts, bands = -(-a.shape[1] // BLOCK), -(-b.shape[1] // BLOCK)
    fits(of_a.dim() == 2 == of_b.dim(), "scales of blocks are matrices")
    fits(of_a.shape[0] == a.shape[0] and of_a.shape[1] >= parts, "scale_a has other rows, or fewer blocks")
    fits(of_b.shape[0] >= parts and of_b.shape[1] == bands, "scale_b has other columns, or fewer blocks")
    return _scaled_by_blocks(a, b, of_a[:, :parts], of_b[:parts], bias, out_dtype)  # torch may want more, for alignment


def _scaled_by_blocks(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out_dtype: Any) -> Any:
    """With a scale for each 128 of a row of `a`, and for each 128 x 128 of `b`."""
    if bias is not None or {a.dtype, b.dtype} != {torch.float8_e4m3fn}:
        raise rt.Unsupported(f"with scales of blocks there is none with a bias, or of {a.dtype} and {b.dtype}")
    return SCALED_BLOCKS.compute(a, b.t(), scale_a, scale_b.t(), element=out_dtype)


def _each(scale: Any, shape: tuple[int, int]) -> Any:
    """A scale for each row or column; all may have one."""
    if scale.numel() != 1 and tuple(scale.shape) != shape:
        raise rt.Unsupported(f"there is one with a scale, or with scales of shape {shape}, not {tuple(scale.shape)}")
    return scale.reshape(-1).expand(max(shape))


def _scaled(c: Any, a: Any, b: Any, shape: tuple[int, ...], beta: Any, alpha: Any) -> Any:
    """Of batches; `c` can be expanded to `shape`, and is not read if `beta` is 0."""
    fits(_expands(c.shape, shape), "c cannot be expanded to the result")
    if not beta:
        if alpha == 1:
            return PRODUCTS.compute(a, b)
        c = torch.zeros((), dtype=a.dtype, device=a.device)
    grown = c.expand(shape)
    return SCALED_PRODUCTS.compute(
        grown[None] if len(shape) == 2 else grown, a, b, beta=float(beta), alpha=float(alpha)
    )


def _expands(given: Any, shape: tuple[int, ...]) -> bool:
    pairs = zip(reversed(given), reversed(shape), strict=False)
    return len(given) <= len(shape) and all(extent in (1, wanted) for extent, wanted in pairs)
