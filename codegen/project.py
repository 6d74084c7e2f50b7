"""A project: a folder of specs, the folder of its generated plans, and their package."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from baracuda.runtime import REGISTRY, Registered, SpecError, Unsupported

from .emit.output import PACKAGE as PACKAGE
from .lower.op import Op
from .spec.wording import did_you_mean

if TYPE_CHECKING:
    from .spec.load import Loaded

# Packages that decide what is generated and how it is judged.
TOOLS = tuple(f"baracuda.{name}" for name in ("checking", "cli", "codegen", "ops", "runtime", "templates"))
SPECS, OUT = Path("specs"), Path("generated")


@dataclass(frozen=True)
class Project:
    """Checked specs, their ops, and every generated file by its path in the output folder, rendered when asked for."""

    loaded: dict[str, Loaded]
    ops: dict[str, Op]
    files: Mapping[str, str]

    @classmethod
    def read(cls, specs: Path, templates: Iterable[Path] = ()) -> Project:
        """Check and lower all of `specs`; SpecError has one line per error."""

        from .emit.generate import Texts, lower_all  # what reads and renders specs is a third of all imports
        from .spec.load import load_folder

        loaded = load_folder(specs)
        refuse_none(loaded, specs)
        ops = lower_all(loaded.values())
        return cls(loaded, {op.name: op for op in ops}, Texts(ops, tuple(templates)))

    @property
    def schema(self) -> str:
        """What specs may say, as JSON Schema."""
        from .spec.schema import schema_text

        return schema_text()

    def chosen(self, names: Iterable[str]) -> list[Op]:
        """The ops with these names, or all without names."""
        refuse_unknown(names := tuple(names), self.ops)
        return [self.ops[name] for name in dict.fromkeys(names or self.ops)]


def refuse_unknown(names: Iterable[str], ops: Collection[str]) -> None:
    """Raise Unsupported for a name that is none of a project's `ops`; says how to reach a built-in one."""
    for name in names:
        if name not in ops:
            ours = installed("baracuda.specs")
            hint = f"; for the built-in {name}, pass --specs {shlex.quote(str(ours))}" if name in named(ours) else ""
            raise Unsupported(f"no op {name!r}; {did_you_mean(name, ops)}{hint}")


def named(specs: Path) -> list[str]:
    """The ops of a folder, without reading all of it: files are named after their ops, and some have a gradient."""
    names = []
    for path in specs.rglob("*.yaml"):
        with suppress(OSError, UnicodeDecodeError):
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            names += [path.stem, *([f"{path.stem}_backward"] if re.search(r"^backward:", text, re.MULTILINE) else [])]
    return sorted(names)


def refuse_none(loaded: Collection[str], specs: Path) -> None:
    """Raise SpecError for a folder without specs."""
    if not loaded:
        raise SpecError(f"{specs}: holds no spec; write one with 'baracuda-gen new'")


def refuse_ungenerated(ops: Iterable[str], loaded: Mapping[str, Loaded], package: str) -> None:
    """Raise Unsupported for an op whose plan is not in the package."""
    plans = plan_names(package)
    for op in ops:
        if loaded[op].spec.plan not in plans:
            raise Unsupported(f"no plan of {op!r} in {package!r}; run 'baracuda-gen generate', or see --package")


def specs_folder(given: Path | None) -> Path:
    """`given`, else ./specs, else the built-in specs."""
    return given or (SPECS if SPECS.is_dir() else installed("baracuda.specs"))


def unless_installed(specs: Path) -> Path | None:
    """A folder of specs for a process that may be on another machine: None for those that are installed here."""
    return None if specs.resolve() == installed("baracuda.specs").resolve() else specs.resolve()


def specs_at(place: Path | None) -> Path:
    """The folder that `unless_installed` has named."""
    return installed("baracuda.specs") if place is None else place


def options_of(specs: Path | None, package: str = PACKAGE) -> str:
    """The options with which a command works on the same project from this folder."""
    usual = specs is None or specs.resolve() == specs_folder(None).resolve()
    options = "" if usual else f" --specs {shlex.quote(str(specs))}"
    return options if package == PACKAGE else f"{options} --package {package}"


def installed(package: str) -> Path:
    """The folder of a package of this distribution."""
    return Path(str(files(package)))


def plans_of(package: str) -> ModuleType:
    """Import a package of generated plans, possibly below the current folder, and all its modules."""
    module = _package(package)
    module.import_all()
    return module


def plan_names(package: str) -> list[str]:
    """The plan classes of a package, without importing them."""
    return [name for name in _package(package).MODULES if name.endswith("Plan")]


def _package(package: str) -> ModuleType:
    if package != PACKAGE and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that it hides nothing
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name and f"{package}.".startswith(f"{error.name}."):
            raise Unsupported(f"no package {package!r}; install it or go to the folder it is in") from None
        raise
    if not hasattr(module, "import_all"):
        raise Unsupported(f"package {package!r} holds no generated plans; run 'baracuda-gen generate'")
    return module


def kernels_of(package: str) -> list[Registered]:
    """The kernel table of a package of generated plans, in order of preference."""
    name = plans_of(package).__name__
    return [row for row in REGISTRY if row.source.package.startswith(f"{name}.")]
