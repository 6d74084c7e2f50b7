"""The compiler's options, as plain values: what NVRTC is given, and a part of every key."""

from __future__ import annotations

import os

from ..device import KernelSource


def options_of(source: KernelSource) -> dict[str, object]:
    """The options of `source` by cuda-core's names; subnormals, contraction, division and square root are explicit."""
    return {
        "std": "c++17",
        "fma": source.contraction,
        "ftz": source.flush_subnormals,
        "prec_div": True,
        "prec_sqrt": True,
        "device_as_default_execution_space": True,  # of generic lambdas, whose functions take no annotation
        "no_source_include": True,  # else the folder of the name, seen from the working directory, is searched too
        "minimal": True,  # without textures and the runtime's own functions, a third of reading a light kernel
        "ptxas_options": "-v",  # reports what a block occupies
        "no_cache": True,  # NVRTC 13's own cache gives code without that report
        "lineinfo": os.environ.get("BARACUDA_LINEINFO") == "1" or None,  # a part of the key as all options are
    }
