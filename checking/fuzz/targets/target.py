"""The base of fuzzing targets, which draw cases from a seed and judge them; and targets that read specs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import ClassVar

from baracuda.codegen.emit.generate import lower_all, texts
from baracuda.codegen.emit.output import write
from baracuda.codegen.spec.load import checked, load_folder, load_spec
from baracuda.codegen.spec.yaml_source import Loc, YamlSource
from baracuda.runtime import BaracudaError, SpecError

from .. import generated, watch
from ..draw.specs import Case, bases, spec_case, spec_data
from ..verdict import ACCEPTED, FAILED, REFUSED, Fault, Verdict, described, refusal

_SHOWN = 6000  # characters of a case


class Target:
    """Cases of one kind. `pure` ones only read, and write into their folder: nothing may be executed or started.

    Others may write into the folder around it, too, where the kernels' cache is.
    """

    name: ClassVar[str]
    pure: ClassVar[bool] = True
    seconds: ClassVar[float] = watch.SECONDS
    recycled: ClassVar[int] = 500  # cases after which a process is replaced, for it keeps what it loads
    kinds: ClassVar[dict[str, type[Target]]] = {}

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            Target.kinds[cls.name] = cls

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.prepare()

    def prepare(self) -> None:
        """Set up once, unwatched."""

    def case(self, index: int, rng: Random) -> object:
        """Draw a case, unwatched."""
        raise AssertionError("targets define this")

    def place(self, case: object) -> None:
        """Write a case's files, unwatched."""

    def judge(self, case: object) -> str:
        """Use a case as a user would; return "" or the refusal. Raises Fault for forbidden behaviour."""
        raise AssertionError("targets define this")

    def describe(self, case: object) -> str:
        """A readable description of a case."""
        return repr(case)[:_SHOWN]

    def drawn(self, index: int) -> object:
        """Case number `index`."""
        return self.case(index, Random(f"{self.name} {self.seed} {index}"))

    def verdict(self, index: int) -> Verdict:
        """Judge case number `index`."""
        what, why = ACCEPTED, ""
        case = self.drawn(index)
        self.place(case)
        with watch.watched(self.folder if self.pure else self.folder.parent, pure=self.pure) as record:
            try:
                if why := self.judge(case):
                    what = REFUSED
            except Fault as fault:
                what, why = FAILED, str(fault)
            except Exception as error:
                what, why = FAILED, described(error)
        if problems := [*record.findings, *(watch.over_budget(record, self.seconds) if self.pure else ())]:
            what, why = FAILED, "; ".join([*([why] if what == FAILED else []), *problems])
        return Verdict(self.name, index, what, why[:_SHOWN], round(record.seconds, 4), round(record.megabytes, 1))


class Read(Target):
    """Specs, read and validated."""

    name = "read"

    def prepare(self) -> None:
        self.specs = self.folder / "specs"
        for base in bases():
            load_spec(base.path)
        baseline = Case({base.path.name: base.path.read_bytes() for base in bases()}, "ours")
        self.place(baseline)
        if refused := self.judge(baseline):
            raise SpecError(refused)

    def case(self, index: int, rng: Random) -> object:
        return spec_case(index, rng)

    def judge(self, case: object) -> str:
        try:
            load_folder(self.specs)
        except BaracudaError as error:
            return refusal(error)
        return ""

    def place(self, case: object) -> None:
        assert isinstance(case, Case)
        shutil.rmtree(self.specs, ignore_errors=True)
        self.specs.mkdir()
        for name, data in case.files.items():
            (self.specs / name).write_bytes(data)

    def describe(self, case: object) -> str:
        assert isinstance(case, Case)
        return f"{case.how}\n{next(iter(case.files.values())).decode('utf-8', 'replace')[:_SHOWN]}"


class Validate(Target):
    """Data of specs, validated without a file: ten times as many in the same time."""

    name = "validate"
    recycled = 20_000

    def prepare(self) -> None:
        for base in bases():
            load_spec(base.path)

    def case(self, index: int, rng: Random) -> object:
        return spec_data(index, rng)

    def judge(self, case: object) -> str:
        try:
            checked(YamlSource(self.folder / "a.yaml", case, _OneLine(), {}), "a.yaml")
        except BaracudaError as error:
            return refusal(error)
        return ""


class _OneLine(Mapping[Loc, int]):
    """All places are in line 1."""

    def __getitem__(self, place: Loc) -> int:
        return 1

    def __contains__(self, place: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Loc]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Generate(Read):
    """Specs, read, lowered, printed and written; what was printed holds nothing but what it should."""

    name = "generate"

    def judge(self, case: object) -> str:
        assert isinstance(case, Case)
        out = self.folder / "generated"
        try:
            ops = lower_all(load_folder(self.specs).values())
            files = texts(ops)
            write(files, out)
        except BaracudaError as error:
            return refusal(error)
        if problem := next(generated.problems(files), ""):
            raise Fault(problem)
        return ""
