"""A copy and a row norm in Triton, which needs its kernels' source in a file."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def copy(a, b, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """b = a."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(b + at, tl.load(a + at, mask=at < n), mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def norm(a, b, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each row of `block` elements over its root mean square."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(a + at, mask=at < n).to(tl.float32)
    tl.store(b + at, value * tl.rsqrt(tl.sum(value * value) / block), mask=at < n)
