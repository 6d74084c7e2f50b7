"""Judge mutants of specs and of the runtime: each in a copy of the checkout, by the tests of ops and few kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from baracuda.runtime import REGISTRY, Registered

from ..problems.subject import Subject
from .mutants.kernels import SPEC, Mutant
from .mutants.targets import representatives
from .tree_run import Tree, is_sound, tested
from .tree_trial import Question
from .verdict import KILLED, SAME, SURVIVED, Verdict

# One op or two of each family, those with several kernels, layouts and results.
_OF_RUNTIME = "rms_norm_backward", "alibi_backward", "causal_conv1d_backward", "flash_sdpa"


class TreeBench:
    """Runs the tests of ops on a checkout with a mutant of a spec or of the runtime."""

    def __init__(self, root: Path, subjects: Mapping[str, Subject], variables: Mapping[str, str]) -> None:
        self.unchanged = Tree(root, variables)
        self.subjects = subjects
        self._sound: dict[str, bool] = {}

    def judge(self, mutant: Mutant) -> Verdict:
        """What objects first to a mutant, or that nothing does; SAME where it generates the same files."""
        with tempfile.TemporaryDirectory(prefix="baracuda-mutant-") as folder:
            tree = Tree.copy_of(self.unchanged.root, Path(folder), self.unchanged.variables)
            path = tree.root / mutant.file
            path.write_text(mutant.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
            if mutant.target == SPEC:
                if said := tree.refusal("generate"):
                    return Verdict(KILLED, "generate", said)
                if _generated(tree) == _generated(self.unchanged):
                    return Verdict(SAME)
            question = self.question(mutant)
            with closing(tested(tree, question)) as found:
                return next((one for one in found if self._is_sound(question, one.stage)), Verdict(SURVIVED))

    def question(self, mutant: Mutant) -> Question:
        """All tests of the ops, and those of few kernels, among them the schedule's that the mutant is in."""
        if mutant.target != SPEC:
            ops = tuple(op for op in _OF_RUNTIME if op in self.subjects)
            kernels = [representatives(self.subjects[op])[0] for op in ops]
        else:
            ops, subject = (mutant.op,), self.subjects[mutant.op]
            rows = representatives(subject)
            kernels = [*_of_schedule(subject, mutant.use), rows[0], rows[-1]]
        return Question(ops, kernels=tuple(row.sku.symbol for row in kernels[: max(2, len(ops))]), watched=False)

    def _is_sound(self, question: Question, case: str) -> bool:
        if case not in self._sound:
            self._sound[case] = is_sound(self.unchanged, question, case)
        return self._sound[case]


def _of_schedule(subject: Subject, number: str) -> tuple[Registered, ...]:
    """The first kernel of a body's schedule, by its number in the spec."""
    if not number:
        return ()
    before = sum(len(schedule.elements) for schedule in subject.plan.SCHEDULES[: int(number)])
    return REGISTRY.candidates(subject.spec.op)[before : before + 1]


def _generated(tree: Tree) -> dict[str, bytes]:
    folder = tree.root / "generated"
    files = (path for pattern in ("*.py", "*.cu") for path in folder.rglob(pattern))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
