"""Specs listed as by `list --resources`, `check` and `compile` before compiling, and described on a catalogue page."""

from __future__ import annotations

import re
from random import Random

from baracuda.codegen.emit.plan_classes import rows_of
from baracuda.codegen.project import Project
from baracuda.codegen.site.documents import Documents
from baracuda.codegen.site.pages import Catalogue, pages
from baracuda.runtime import BaracudaError

from ...listing.variants import variants_of
from ..draw.payloads import MARK
from ..draw.specs import Case, bases, spec_case
from ..verdict import Fault, refusal
from .target import Read

_ACTIVE = re.compile(rf"<(script|img)[^>\n]*>?[^\n]*{MARK}|\]\(javascript:")
_CODE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*~*$|`+[^\n]*?`+", re.MULTILINE | re.DOTALL)


class List(Read):
    """Specs, from the file to the list of what their kernels compile from and to their page of the catalogue."""

    name = "list"
    seconds = 3.0  # the largest spec that comes with us and its forward take half of that for hundreds of kernels

    def prepare(self) -> None:
        """With one spec: all together are many kernels."""
        self.specs = self.folder / "specs"
        base = next(base for base in bases() if base.data["family"] == "row")
        self.place(baseline := Case({base.path.name: base.path.read_bytes()}, "ours"))
        self.judge(baseline)

    def case(self, index: int, rng: Random) -> object:
        """Hand-written kernels, whose schedules and expressions only a listing looks at, come more often."""
        drawn = [spec_case(rng.randrange(10**6), rng) for _ in range(3)]
        return next((case for case in drawn if b'"body"' in case.files["a.yaml"]), drawn[0])

    def judge(self, case: object) -> str:
        assert isinstance(case, Case)
        try:
            project = Project.read(self.specs)
            variants_of(project, archs=("sm_90",))
        except BaracudaError as error:
            return refusal(error)
        for path, text in self._pages(project).items():
            if match := _ACTIVE.search(_CODE.sub("", text)):
                raise Fault(f"{path}: {match[0]!r} would be active in a browser")
        return ""

    def _pages(self, project: Project) -> dict[str, str]:
        files, loaded, ops = project.files, project.loaded, project.ops
        kernels = [row for op in ops.values() for row in rows_of(op, files[f"{op.category}/{op.name}.cu"])]
        site = pages(Catalogue(loaded, ops, files, kernels, lambda _: [], Documents(self.folder), "fuzzed"))
        return {path: str(text) for path, text in site.files.items() if path.startswith("ops/")}
