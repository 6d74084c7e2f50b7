"""`site`: the catalogue of a package of plans, as a static site."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from baracuda.checking.listing.variant import Variant
from baracuda.codegen.project import kernels_of
from baracuda.codegen.site.documents import Documents
from baracuda.codegen.site.html import build, config, require_tools, write_config
from baracuda.codegen.site.pages import Catalogue, navigation, pages
from baracuda.codegen.site.table import Row
from baracuda.runtime import KernelSku, Registered, SpecError

from ..kernels.catalog import resources_of
from ..kernels.compile_report import Report
from ..reading import list_kernels, read_project
from ..terminal import working
from .site_pictures import Measurements

_OURS = ".made-by-baracuda-gen-site"  # in a folder that the next site may empty


def site(
    specs: Path,
    out: Path,
    *,
    package: str,
    root: Path,
    resources: bool = False,
    archs: Sequence[str] = (),
    markdown: Path | None = None,
    accuracy: Sequence[Path] = (),
    speed: Sequence[Path] = (),
    sweeps: Sequence[Path] = (),
) -> bool:
    """Write the site to `out`, and its Markdown to `markdown` if given; false if `resources` are asked for and a kernel
    does not compile.

    Both folders are emptied, so SpecError for one that holds anything but an earlier site.
    """
    start = time.perf_counter()
    folders = [out] if markdown is None else [out, markdown]
    for folder in folders:
        _refuse_others(folder)
    require_tools()
    project = read_project(specs)
    variants = list_kernels(project, archs=archs, package=package)
    report = Report.of(variants if resources else [])
    report.show_failures(project.loaded)
    state_files = {"accuracy": accuracy, "speed": speed, "sweep": sweeps}
    measurements = Measurements(*(tuple(files) or _state_files(root, kind) for kind, files in state_files.items()))
    parts = project.loaded, project.ops, project.files
    documents = Documents(root)
    catalogue = Catalogue(*parts, kernels_of(package), _resources(variants), documents, package, measurements.pictures)
    for folder in folders:  # first, so that what is written then is known to be ours when this fails
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _OURS).touch()
    with tempfile.TemporaryDirectory() if markdown is None else nullcontext(str(markdown)) as pages_folder:
        _write(catalogue, Path(pages_folder), out)
    click.echo(f"{out}: {len(project.ops)} ops in {time.perf_counter() - start:.1f} s; open {out / 'index.html'}")
    return not report.failed


def _refuse_others(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and ((folder / _OURS).exists() or not any(folder.iterdir()))):
        raise SpecError(f"{folder}: is not an earlier site and would be emptied; choose a new folder")


def _state_files(root: Path, kind: str) -> tuple[Path, ...]:
    """State files beside the documentation."""
    return tuple(sorted((root / "docs" / "measurements").glob(f"{kind}*.jsonl")))


def _write(catalogue: Catalogue, folder: Path, out: Path) -> None:
    pages(catalogue).write(folder / "pages")
    name = catalogue.documents.title or catalogue.package
    write_config(folder / "mkdocs.yml", config(name, navigation(catalogue), "pages", out))
    with working("building pages"):
        build(folder / "mkdocs.yml", out)


def _resources(variants: Sequence[Variant]) -> Callable[[Registered], list[Row]]:
    """Resources of each kernel's cached variants."""
    by_sku: dict[KernelSku, list[Variant]] = defaultdict(list)
    for variant in variants:
        by_sku[variant.row.sku].append(variant)
    return lambda kernel: list(resources_of(kernel, by_sku[kernel.sku]))
