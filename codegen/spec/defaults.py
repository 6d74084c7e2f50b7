"""What a spec leaves out: names, fields, dims, documentation and conditions that follow from the rest.

The data is the author's and may be malformed anywhere: what cannot be understood is left for validation to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from textwrap import wrap
from typing import Any

from .family import Family, families
from .variations import varied
from .yaml_source import YamlSource

Data = Mapping[str, Any]

CELL = "cell"  # the dim of all elements, where arrays have one shape
SHAPE = "input_shape"  # the shape whose axes dims share out, unless they name another
FLOATS = ["f32", "f16", "bf16", "f64"]
_CATEGORY = "custom"  # of a spec in no folder of its own
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ASSIGNMENT = re.compile(r"^\s*[a-z_][\w, ]*=(?!=)", re.MULTILINE)
_WIDTH = 100  # of a formula that lists kinds
OF_KIND = "of_kind"  # the value of a kind, in a program that all share
_OF_AXIS = "(normalize_axis({}, len({})),)"


def filled(source: YamlSource, display_path: str) -> YamlSource:
    """`source` with everything that follows from what it says."""
    if not isinstance(source.data, dict):
        return source
    data = _identified(spelled_out(source.data), PurePosixPath(display_path))
    for complete in (_with_dims, _with_fields, _with_kinds, _with_tensors):
        data = complete(data)
    data = _named(data).filled(data)
    if isinstance(program := data.get("program"), str):
        data.setdefault("formula", program)
    elif kinds := entries(data, "kinds"):
        listed = f"{', '.join(entries(data, 'outputs'))} = one of {', '.join(kinds)}"
        data.setdefault("formula", "\n".join(wrap(listed, _WIDTH, subsequent_indent="    ")))
    data.setdefault("source", "the formula above")
    return varied(replace(source, data=data))


def spelled_out(data: Data) -> dict[str, Any]:
    """`data` without abbreviations: texts, and lists of names, that stand for mappings."""
    data = dict(data)
    for section in ("inputs", "outputs"):
        data |= _each(data, section, _tensor)
    data |= _each(data, "descriptor", lambda value: {"type": value} if isinstance(value, str) else value)
    data |= _each(data, "kinds", lambda value: value if isinstance(value, dict) else {"program": value})
    if isinstance(conditions := data.get("require"), list):
        data["require"] = [_condition(condition) for condition in conditions]
    return data


def _each(data: Data, section: str, spelled: Callable[[Any], Any]) -> dict[str, Any]:
    """The section of `data` as a mapping of names, each value as `spelled` has it."""
    entries = data.get(section)
    if isinstance(entries, list) and all(isinstance(name, str) for name in entries):
        entries = dict.fromkeys(entries)
    if not isinstance(entries, dict):
        return {}
    return {section: {name: {} if value is None else spelled(value) for name, value in entries.items()}}


def _tensor(value: Any) -> Any:
    """A text is the documentation of a tensor, a list its dims."""
    return {"doc": value} if isinstance(value, str) else {"dims": value} if isinstance(value, list) else value


def _condition(condition: Any) -> Any:
    if isinstance(condition, str):
        condition = {"that": condition}
    return {"raises": "InvalidProblem", **condition} if isinstance(condition, dict) else condition


def entries(data: Data, section: str) -> dict[str, Any]:
    """The entries of a section that are mappings, by name."""
    values = data.get(section)
    return {n: v for n, v in values.items() if isinstance(v, dict)} if isinstance(values, dict) else {}


def class_name(op: str) -> str:
    """``RowScale`` for ``row_scale``."""
    return "".join(part.capitalize() for part in op.split("_"))


def _identified(data: dict[str, Any], path: PurePosixPath) -> dict[str, Any]:
    """With direction, family, category and the names of classes."""
    op = data["op"] if isinstance(data.get("op"), str) and _NAME.fullmatch(data["op"]) else "op"
    data = {
        "category": path.parts[-2] if len(path.parts) > 2 else _CATEGORY,
        "direction": "forward" if data.get("gradient") is None else "backward",
        "plan": f"{class_name(op)}Plan",
        **data,
    }
    return {"family": _claiming(data).name, **data}


def _claiming(data: Data) -> Family:
    """The last family that says the data reads like its own, or else the one that takes the rest."""
    known = families().values()
    return ([family for family in known if family.claims(data)] or [f for f in known if f.takes_the_rest])[-1]


def _named(data: Data) -> Family:
    """The family that the data names; where there is no such, one that validation will not be by."""
    name = data["family"]
    return families().get(name if isinstance(name, str) else "") or _claiming({})


def _with_dims(data: dict[str, Any]) -> dict[str, Any]:
    """With `of` and `axes` of each dim. Where nothing names one, all arrays have one shape."""
    family = _named(data)
    if family.has_dims and "dims" not in data and not any(_dims_of_tensors(data)):
        data = {**data, "dims": {CELL: SHAPE}}
    if not (family.has_dims and isinstance(data.get("dims"), dict)):
        return data
    short = "axes" if family.all_dims_share or "rest" in data["dims"].values() else "of"
    dims = {n: {"of": str(v)} if _is_number(v) else v for n, v in data["dims"].items()}
    dims = {n: {short: v} if isinstance(v, str) else v for n, v in dims.items()}
    shared = {n for n, v in dims.items() if isinstance(v, dict) and (family.all_dims_share or "axes" in v)}
    dims = {n: _with_axes(v) if n in shared else v for n, v in dims.items()}
    return {**data, "dims": dims}


def _dims_of_tensors(data: Data) -> Iterator[Any]:
    """The dims that tensors list."""
    for section in ("inputs", "outputs"):
        yield from (tensor["dims"] for tensor in entries(data, section).values() if "dims" in tensor)


def _is_number(dim: Any) -> bool:
    """Whether it is a constant extent."""
    return type(dim) is int or (isinstance(dim, str) and dim.isdecimal())


def _with_axes(dim: Data) -> dict[str, Any]:
    """A dim that is some axes of a shape: the name of a field is that of its only axis."""
    dim = {"of": SHAPE, **dim}
    axes = dim.get("axes")
    if isinstance(axes, str) and axes != "rest" and _NAME.fullmatch(axes):
        dim["axes"] = _OF_AXIS.format(axes, dim["of"])
    return dim


def axis_fields(data: Data) -> dict[str, tuple[str, str]]:
    """Fields that are the only axis of a dim: the dim, and the shape whose axis it is."""
    found = {}
    for name, dim in entries(data, "dims").items():
        match = re.fullmatch(r"\(normalize_axis\(([a-z][a-z0-9_]*), len\((\w+)\)\),\)", str(dim.get("axes")))
        if match and match[2] == dim.get("of"):
            found[match[1]] = name, match[2]
    return found


def _with_fields(data: dict[str, Any]) -> dict[str, Any]:
    """With the fields that dims and optional tensors name, and what each field of these is for."""
    fields = data.get("descriptor", {})
    if not isinstance(fields, dict):
        return data
    dims, axes = entries(data, "dims"), axis_fields(data)
    first: dict[str, Any] = {SHAPE: {"type": "shape"}} if any(dim.get("of") == SHAPE for dim in dims.values()) else {}
    first |= {name: {"type": "int", "default": -1} for name in axes}
    flags = _flags(data)
    last = {name: {"type": "bool"} for name in flags}
    known = {**{n: f for n, f in first.items() if n not in fields}, **fields}
    known |= {n: f for n, f in last.items() if n not in fields}
    kinds = {n: {"type": f["type"]} for n, f in {**first, **last}.items()}
    docs = {**usual_docs(data, {**known, **kinds}), **{name: {"doc": text} for name, text in flags.items()}}
    full = {n: {**kinds.get(n, {}), **docs.get(n, {}), **f} if isinstance(f, dict) else f for n, f in known.items()}
    return {**data, "descriptor": full}


def _with_kinds(data: dict[str, Any]) -> dict[str, Any]:
    """With the whole program of each kind, and the field that chooses one."""
    if not (kinds := entries(data, "kinds")):
        return data
    arguments, names = ", ".join(entries(data, "inputs")), [*entries(data, "outputs")]
    shared = data.get("program")
    names = [OF_KIND] if shared else names
    full = dict(data["kinds"])
    for name, kind in kinds.items():
        texts = {"program": f"{name}({arguments})"} | {k: kind[k] for k in ("program", "reference") if k in kind}
        if shared and "reference" in data:
            texts.setdefault("reference", texts["program"])
        full[name] = kind | {key: _assigned(text, names) for key, text in texts.items()}
        for key in texts if shared else ():
            full[name][key] = f"{full[name][key]}\n{data.get(key, shared)}"
    fields = data["descriptor"] if isinstance(data.get("descriptor"), dict) else {}
    rest = {key: value for key, value in data.items() if not shared or key not in ("program", "reference")}
    return {**rest, "kinds": full, "descriptor": {"kind": {"type": "kind", "doc": "which function it is"}, **fields}}


def _assigned(text: Any, outputs: list[str]) -> Any:
    """A program: the value alone is that of the only output."""
    is_value = isinstance(text, str) and len(outputs) == 1 and not _ASSIGNMENT.search(text)
    return f"{outputs[0]} = {text}" if is_value else text


def _flags(data: Data) -> dict[str, str]:
    """What the field `has_x` says that makes `x`, and perhaps others, optional."""
    given: dict[str, list[str]] = {}
    asked: dict[str, list[str]] = {}
    for section, named in (("inputs", given), ("outputs", asked)):
        for name, tensor in entries(data, section).items():
            if isinstance(flag := tensor.get("optional"), str) and _NAME.fullmatch(flag):
                named.setdefault(flag, []).append(name)
    texts = {flag: f"whether {_listed(names)} {_is(names)} requested" for flag, names in asked.items()}
    texts |= {flag: f"whether there {_is(names)} {_listed(names)}" for flag, names in given.items()}
    tensors = {*entries(data, "inputs"), *entries(data, "outputs")}
    return {flag: text for flag, text in texts.items() if flag.removeprefix("has_") in tensors - {flag}}


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def usual_docs(data: Data, fields: Data) -> dict[str, dict[str, str]]:
    """The usual words for extents and axes."""
    docs: dict[str, dict[str, str]] = {}
    for name, dim in entries(data, "dims").items():
        if not isinstance(of := dim.get("of"), str):
            continue
        kind = fields[of].get("type") if isinstance(fields.get(of), dict) else None
        docs[of] = {"doc": _extents(data) if kind == "shape" else f"extent of {name}"}
    for axis, (name, _) in axis_fields(data).items():
        docs[axis] = {"doc": f"the axis that {name} runs along; negative counts from the back"}
    return docs


def _extents(data: Data) -> str:
    dims = entries(data, "dims")
    tensors = {**entries(data, "inputs"), **entries(data, "outputs")}
    whole = [n for n, t in tensors.items() if set(_listed_dims(t, dims)) == set(dims) and "updates" not in t]
    if len(whole) == len(tensors) > 2:
        return "extents of all arrays, rank 1 to 8"
    return f"extents of {_listed(whole)}, rank 1 to 8" if whole else "extents, rank 1 to 8"


def _listed_dims(tensor: Data, dims: Data) -> list[Any]:
    listed = tensor.get("dims", [*dims])
    return [dim for dim in listed if isinstance(dim, str)] if isinstance(listed, list) else []


def _with_tensors(data: dict[str, Any]) -> dict[str, Any]:
    """With what each tensor varies along and holds, and whose memory an output may be."""
    if _named(data).has_dims:
        dims = [*entries(data, "dims")]
        for section in ("inputs", "outputs"):
            data = {**data, **_each(data, section, lambda t: {"dims": dims, **t} if isinstance(t, dict) else t)}
    for section in ("inputs", "outputs"):
        known = entries(data, section)
        if known:
            words = {name: {"doc": _doc(data, section, name), **tensor} for name, tensor in known.items()}
            data = {**data, section: {**data[section], **words}}
    return {**data, "outputs": _aliasing(data)} if entries(data, "outputs") else data


def _doc(data: Data, section: str, name: str) -> str:
    gradient = data.get("gradient")
    if not isinstance(gradient, dict):
        if section == "inputs":
            return "input"
        return "the result" if len(data["outputs"]) == 1 else "output"
    cotangents, wrt, saved = (gradient.get(key) for key in ("cotangents", "wrt", "saved"))
    if section == "outputs":
        return f"gradient with respect to {_of(wrt, name)}"
    if isinstance(cotangents, dict) and name in cotangents:
        return f"gradient of the loss with respect to {_of(cotangents, name)}"
    return f"{name} as the forward saved it" if isinstance(saved, list) and name in saved else "input of the forward"


def _of(names: Any, name: str) -> str:
    return str(names.get(name, name)) if isinstance(names, dict) else name


def _aliasing(data: Data) -> dict[str, Any]:
    """Outputs with a value for each cell may be any input alike that the program reads at the same place."""
    outputs: dict[str, Any] = dict(data["outputs"])
    programs = [data.get("program"), *(kind.get("program") for kind in entries(data, "kinds").values())]
    program = "\n".join(text for text in programs if isinstance(text, str))
    if not (program and _named(data).has_dims):
        return outputs
    updated = [t.get("updates") for t in entries(data, "outputs").values()]
    dims = [*entries(data, "dims")]
    whole = {
        name: tensor
        for name, tensor in entries(data, "inputs").items()
        if tensor["dims"] == dims and name not in updated and not tensor.get("optional")
    }
    whole = {name: t for name, t in whole.items() if not re.search(rf"(?<!\w){re.escape(name)}\s*\[", program)}
    for name, tensor in entries(data, "outputs").items():
        alike = [n for n, t in whole.items() if (t["dims"], _dtype(t)) == (tensor["dims"], _dtype(tensor))]
        if alike and "updates" not in tensor and "may_alias" not in tensor:
            outputs[name] = {**tensor, "may_alias": alike}
    return outputs


def _dtype(tensor: Data) -> Any:
    dtype = tensor.get("dtype", "T")
    return [dtype] if isinstance(dtype, str) else dtype
