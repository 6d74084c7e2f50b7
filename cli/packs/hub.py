"""A pack in the layout of Hugging Face's package `kernels`: a repository whose build variant is a Python module."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from baracuda.runtime import InvalidProblem
from baracuda.runtime.packs.layout import MANIFEST

from .files import Files, own_version

_VARIANT = "build/torch-cuda"  # for any version of torch and CUDA: it holds no code that is linked to them
METADATA = f"{_VARIANT}/metadata.json"  # by which a folder is known to be such a repository
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_MODULE = '''"""Kernels of baracuda-gen {version} for torch, compiled before: `ops` has a function for each op."""

from pathlib import Path

try:
    from baracuda.runtime.packs.found import add
except ImportError as error:
    raise ImportError("these kernels need their plans: pip install 'baracuda-gen=={version}'") from error

add(Path(__file__).parent / "pack")

import torch
from baracuda.frontends.torch import *

ops = torch.ops.baracuda
'''


def refuse_name(name: str) -> None:
    """Raise InvalidProblem for what the package does not take for a name."""
    if not _NAME.fullmatch(name):
        raise InvalidProblem(f"{name!r} is no name of a kernel; write small letters, digits and hyphens")


def hub_files(name: str, files: Mapping[str, bytes], licence: str) -> Files:
    """The files of the repository `name` with the pack of `files`."""
    refuse_name(name)
    manifest = json.loads(files[MANIFEST])
    metadata = {
        "id": f"_{name.replace('-', '_')}_{manifest['digest'][:16]}",
        "name": name,
        "version": 1,
        "license": licence,
        "python-depends": [],  # of the few that may be named; the module says what it needs
        "backend": {"type": "cuda", "archs": sorted(map(_capability, manifest["architectures"]))},
    }
    return {
        METADATA: f"{json.dumps(metadata, indent=2)}\n".encode(),
        f"{_VARIANT}/__init__.py": _MODULE.format(version=own_version()).encode(),
        **{f"{_VARIANT}/pack/{path}": content for path, content in files.items()},
    }


def _capability(arch: str) -> str:
    """An architecture as torch writes it: 9.0, 9.0a, 9.0+PTX."""
    kind, _, number = arch.partition("_")
    digits, letter = re.fullmatch(r"(\d+)([a-z]?)", number).groups()  # type: ignore[union-attr] # an architecture
    return f"{digits[:-1]}.{digits[-1]}{letter}{'+PTX' if kind == 'compute' else ''}"
