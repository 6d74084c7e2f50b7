"""Some kernels, as different as possible, compiled and audited with the CUDA of the Python that runs this; JSON."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from baracuda.checking.audit.facts import Facts
from baracuda.checking.listing.sample import ops_of_a_sample, sample
from baracuda.checking.listing.variants import variants_of
from baracuda.cli.kernels.audit_report import Audit, Audited
from baracuda.codegen.project import Project
from baracuda.runtime.compile.cubin import nvrtc_version

ARCH, COUNT = "sm_90", 12


def told(one: Audited) -> dict[str, Any]:
    """What a kernel is, but for its registers and how much it spills, which every compiler decides anew."""
    if not isinstance(one.outcome, Facts):
        return {"error": str(one.outcome)}
    facts = one.outcome
    return {
        "spills": facts.resources.spill_bytes > 0,  # how much is the compiler's choice, within what is allowed
        "shared_bytes": facts.resources.shared_bytes,
        "widest": [facts.widest_load, facts.widest_store],
    }


def main(specs: Path) -> None:
    project = Project.read(specs)
    ops = ops_of_a_sample(project.ops, COUNT)
    audit = Audit.of(sample(variants_of(project, ops, archs=(ARCH,)), of_all=COUNT), project.ops)
    kernels = {f"{a.variant.source.symbol} {a.variant.layout}": told(a) for a in audit.audited}
    cuda = [nvrtc_version(), version("cuda-bindings")]
    json.dump({"cuda": cuda, "kernels": kernels, "violations": list(map(str, audit.violations))}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
