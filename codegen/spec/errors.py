"""pydantic's errors about a spec in our words: one line each, in the file's order."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from baracuda.runtime.errors import SpecError

from .hints import child, keys_of, pick_branch, union_of
from .wording import SHAPES, Problem, wording
from .yaml_source import Loc, YamlSource
from .yaml_text import report

_MOST = 200  # problems that are put into words


def explain(error: ValidationError, source: YamlSource, model: type[BaseModel]) -> SpecError:
    """The errors of `model` on the data of `source`, one ``path:line: what; the fix`` each."""
    details = error.errors(include_url=False)[:_MOST]
    problems = [_problem(detail, source.data, model) for detail in details]
    problems = [p for p in problems if not _counts_only_what_is_valid(p, problems)]
    lines = {
        (source.line(problem.path), f"{source.place(problem.path)}: {' '.join(text.split())}")
        for problem in _one_branch_each(problems, 0)
        for text in wording(problem).splitlines()
    }
    return report(text for _, text in sorted(lines))


def _problem(details: Any, data: Any, model: type[BaseModel]) -> Problem:
    loc, kind = details["loc"], details["type"]
    on_key = loc[-1:] == ("[key]",)
    path, branches, parent = _follow(loc[:-1] if on_key else loc, data, model)
    return Problem(
        kind=kind,
        path=path,
        on_key=on_key,
        branches=branches,
        value=details["input"],
        message=details["msg"],
        context=details.get("ctx", {}),
        keys=keys_of(parent) if kind == "extra_forbidden" else (),
    )


def _counts_only_what_is_valid(problem: Problem, others: list[Problem]) -> bool:
    """Drop "too short" for a list whose invalid entries are reported anyway."""
    size, path = len(problem.path), problem.path
    return problem.kind == "too_short" and any(o.path[:size] == path != o.path for o in others)


def _follow(loc: Loc, data: Any, model: type[BaseModel]) -> tuple[Loc, tuple[tuple[Loc, str], ...], Any]:
    """Path in the file, branches of unions (pydantic mixes the two in `loc`), and hint of the last parent."""
    path: Loc = ()
    branches: tuple[tuple[Loc, str], ...] = ()
    node, hint, parent = data, model, None
    for position, step in enumerate(loc):
        if union := union_of(hint):
            branches += ((path, str(step)),)
            hint = pick_branch(union, str(step))
        elif hint is None and not _holds(node, step) and position < len(loc) - 1:
            continue  # below a hint that cannot be followed: the label of some branch
        else:
            parent, hint = hint, child(hint, step)
            node = node[step] if _holds(node, step) else None
            path = (*path, step)
    return path, branches, parent


def _holds(node: Any, step: str | int) -> bool:
    if isinstance(node, dict):
        return step in node
    return isinstance(node, list) and isinstance(step, int) and step < len(node)


def _one_branch_each(problems: list[Problem], depth: int) -> list[Problem]:
    """For every union, keep the errors of the branch that was meant, or one that names all branches."""
    selected = [p for p in problems if len(p.branches) <= depth]
    unions: dict[Loc, dict[str, list[Problem]]] = {}
    for problem in problems:
        if len(problem.branches) > depth:
            location, branch = problem.branches[depth]
            unions.setdefault(location, {}).setdefault(branch, []).append(problem)
    for location, complaints in unions.items():
        meant = [ps for ps in complaints.values() if not any(_wrong_shape(p, location) for p in ps)]
        if meant:
            selected += _one_branch_each(min(meant, key=len), depth + 1)
        else:
            selected.append(_none_of(location, [p for ps in complaints.values() for p in ps if p.path == location]))
    return selected


def _none_of(location: Loc, complaints: list[Problem]) -> Problem:
    shapes = " or ".join(dict.fromkeys(SHAPES[p.kind] for p in complaints if p.kind in SHAPES))
    return Problem("union", location, False, (), complaints[0].value, "", {"needs": shapes})


def _wrong_shape(problem: Problem, location: Loc) -> bool:
    return problem.path == location and problem.kind in SHAPES
