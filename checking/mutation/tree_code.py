"""What the kernels of a source tree compile to: a line for each, to be compared with those of another tree.

``python -m baracuda.checking.mutation.tree_code OP...`` works on the folder of specs in the current folder. The kernels
of an audit, which are in the cache, come first: trees that differ mostly do so there.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from baracuda.codegen.project import SPECS, Project
from baracuda.runtime import get_device
from baracuda.runtime.cache.root import cache_root
from baracuda.runtime.compile.cubin import compile_cubin
from baracuda.runtime.host.build import Builder
from baracuda.runtime.host.cache import BuildCache
from baracuda.runtime.host.toolchain import find_toolchain

from ..listing.sample import sample
from ..listing.variants import variants_of


def digests(specs: Path, ops: Sequence[str]) -> Iterator[str]:
    """A digest of the machine code of every kernel of `ops`, and of the host device's where there is one."""
    listed = variants_of(Project.read(specs), ops)
    first = sample(listed)
    builder = Builder(find_toolchain(), BuildCache(cache_root() / "host"))
    for variant in dict.fromkeys([*first, *listed]):
        image = compile_cubin(variant.source, variant.arch).image
        yield f"{variant.row.sku} {variant.layout} {variant.arch} {hashlib.sha256(image).hexdigest()}"
    for variant in dict.fromkeys(first):
        if variant.row.sku.fits(get_device("host").arch) is None:
            yield f"{variant.row.sku} {variant.layout} host {hashlib.sha256(builder.code(variant.source)).hexdigest()}"


def main() -> None:
    for line in digests(SPECS, sys.argv[1:]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
