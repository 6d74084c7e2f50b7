"""What a pack is to hold: kernels of ops, as `compile` lists them, and kernels of problems."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from baracuda.checking.listing.variant import Variant
from baracuda.runtime import KernelSku, KernelSource
from baracuda.runtime.compile.kernel_key import kernel_key


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kernel for one architecture."""

    sku: KernelSku
    source: KernelSource
    arch: str

    @classmethod
    def of(cls, variant: Variant) -> Wanted:
        """That of a listing."""
        return cls(variant.row.sku, variant.source, variant.arch)


def by_key(kernels: Iterable[Wanted]) -> dict[str, Wanted]:
    """Each once, by its key in packs, sorted."""
    found = {kernel_key(kernel.source, kernel.arch): kernel for kernel in kernels}
    return dict(sorted(found.items()))
