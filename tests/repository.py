"""Where tests find what they need, whichever folder they are in."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
SPECS = ROOT / "specs"
SAMPLES = ROOT / "tests" / "specs"
KERNELS = ROOT / "tests" / "host" / "kernels"


def frozen_defects() -> Any:
    """The defects of frozen_defects.yaml: lists of `mutants` and `kernels`, and of each family of `host` kernels."""
    return YAML(typ="safe").load(ROOT / "tests" / "frozen_defects.yaml")
