"""Every line of a generated kernel is known to compilers and to findings by the line of the template it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import LONG, ROOT, project

from baracuda.checking.listing.variants import rows_of, sources_of
from baracuda.codegen.emit.line_map import render_mapped
from baracuda.codegen.emit.render import environment
from baracuda.codegen.project import Project
from baracuda.codegen.spec.load import load_folder
from baracuda.codegen.spec.place import place_of, with_field
from baracuda.generated import RMSNormDescriptor, RMSNormPlan
from baracuda.runtime import CompileError, KernelInternal, KernelSource, Registered, SourceFile, get_device
from baracuda.runtime.compile.cubin import assemble
from baracuda.runtime.compile.line_map import Place, line_map, with_line_directives

TEMPLATE = ROOT / "templates" / "row.cu.jinja"  # of the op that is broken below
OTHERS = (ROOT / "tests" / "specs", ROOT / "examples" / "fused_norms" / "specs")
PROJECTS = (project(), *map(Project.read, OTHERS))
KERNELS = {path: text for one in PROJECTS for path, text in one.files.items() if path.endswith(".cu")}
DIRECTIVE = re.compile(r'#line (\d+) "(.+)"')


def seen(text: str) -> Iterator[tuple[Place, str]]:
    """Every line but the directives, and what a compiler calls it."""
    file, line = "", 0
    for content in text.removesuffix("\n").split("\n"):
        if directive := DIRECTIVE.fullmatch(content):
            file, line = directive[2], int(directive[1])
        else:
            yield Place(file, line), content
            line += 1


def pattern(template: list[str], line: int) -> str:
    """What a line of a template may become: its literal text with anything for each expression.

    The text of a loop within the line may come any number of times. A line that begins by taking back the end of the
    line before is part of that, and so is one whose beginning the line before takes back.
    """
    text = template[line - 1]
    for following in template[line:]:
        if text.endswith("-}}"):
            text += following.lstrip()
        elif following.startswith("{%-"):
            text = text.rstrip() + following
        else:
            break
    parts = re.split(r"{%-? for .*?%}(.*?){% endfor %}", text)
    return "".join(f"(?:{literal(part)})*" if index % 2 else literal(part) for index, part in enumerate(parts))


def literal(text: str) -> str:
    """The text of a template without loops: anything for each expression, nothing for what prints nothing."""
    text = re.sub(r"{%.*?%}|{#.*?#}", "", text)
    return ".*".join(re.escape(part) for part in re.split(r"{{.*?}}", text))


def wrong_lines(text: str) -> list[str]:
    """The lines of a generated kernel, put together where wrapped, that their template's line cannot have become."""
    (named,) = re.findall(r"\A// @generated .* and\s(?:// )?(\S+)\.\s", text)
    found = list(seen(with_line_directives(text)))
    included = re.findall('{% include "(.*?)" %}', (ROOT / named).read_text())
    files = {place.file for place, _ in found}
    assert named in files and files <= {named, *(f"templates/{name}" for name in included)}
    templates = {file: (ROOT / file).read_text().split("\n") for file in files}
    wrong = []
    for place, run in groupby(found, lambda line: line[0]):
        parts: list[str] = []
        for _, content in run:
            parts.append(content.strip().removeprefix("// ") if parts else content)
            # A macro's text may be indented where it is called.
            if not content.strip() or re.fullmatch(" *" + pattern(templates[place.file], place.line), " ".join(parts)):
                parts = []
        wrong += [f"{place.line}: {part}" for part in parts]
    return wrong


@pytest.mark.parametrize("path", KERNELS)
def test_each_line_is_what_its_template_line_becomes(path: str) -> None:
    """All but blank lines are compared; without `{{` the two are equal."""
    assert wrong_lines(KERNELS[path]) == []


@pytest.mark.parametrize("path", KERNELS)
@pytest.mark.parametrize("change", [1, -1])
def test_a_map_that_is_one_line_off_is_seen(path: str, change: int) -> None:
    """The test above can fail, for any stretch of lines of which two are not alike."""
    text = re.sub(r"(?<=jinja:)\d+", lambda first: str(int(first[0]) + change), KERNELS[path])
    assert len(wrong_lines(text)) > 0.5 * text.partition("// @lines")[0].count("\n")


@pytest.mark.parametrize("path", KERNELS)
def test_the_map_is_all_that_is_added(path: str) -> None:
    """It ends the file, in lines of comment; for compilers it is gone, and every other line is as it was."""
    text = KERNELS[path]
    body, *comment = re.split(r"^(?=// @lines )", text, flags=re.MULTILINE)
    assert body.endswith(("}  // namespace baracuda\n", "/kernel.cuh>\n")) and comment
    assert all(len(line) <= 121 and line.count("\n") == 1 for line in comment)
    assert [content for _, content in seen(with_line_directives(text))] == body.splitlines()


def test_source_files_keep_what_was_read() -> None:
    """`raw` is the file, `text` is what compilers get."""
    source = SourceFile("baracuda.generated.normalization", "rms_norm.cu", contraction=False, flush_subnormals=False)
    file = (ROOT / "generated" / "normalization" / "rms_norm.cu").read_text()
    assert source.raw == file and source.text == with_line_directives(file) != file


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int a;\n",
        "// @lines\nint a;\n",
        "int a;\n// @lines t.jinja:1 2\n",
        "int a;\nint added;\n// @lines t.jinja:1\n",
        "int a;\n// @lines t.jinja:1 1\nint behind;\n",
        "int a;\n// @lines t.jinja:1 one\n",
    ],
)
def test_text_without_a_map_of_its_lines_passes_through(text: str) -> None:
    """Written by hand, or edited so that lines came or went: compilers name the lines of the file itself."""
    assert with_line_directives(text) == text


@given(st.lists(st.builds(Place, st.sampled_from(["a.cu.jinja", "of/b c.jinja", '"1:2".jinja']), st.integers(1, 9))))
def test_any_map_is_read_as_it_was_written(places: list[Place]) -> None:
    """Directives name each line's place, jumps in any direction and between any files."""
    body = "".join(f"int of_{index};\n" for index in range(len(places)))
    found = list(seen(with_line_directives(body + line_map(places)))) if places else []
    names = {"a.cu.jinja": "a.cu.jinja", "of/b c.jinja": "of/b%20c.jinja", '"1:2".jinja': "%221%3A2%22.jinja"}
    assert [place for place, _ in found] == [Place(names[place.file], place.line) for place in places]
    assert "".join(f"{content}\n" for _, content in found) == body


def test_no_directive_breaks_a_line_or_hides_in_a_comment() -> None:
    """Where none can stand, the next possible line has it."""
    body = (
        '#define A 1 + \\\n    2\n/* "\n*/ int a;\nint b;  // \\\n  still\nconst char *c = "/*", d = \'"\';\nint e;\n'
    )
    places = [Place("t", line) for line in (1, 4, 7, 10, 13, 16, 19, 22)]
    shown = with_line_directives(body + line_map(places))
    assert [place.line for place, _ in seen(shown)] == [1, 2, 7, 8, 13, 14, 19, 22]
    assert re.sub(r"#line .*\n", "", shown) == body


TEMPLATES = {
    "main.jinja": """{% from "macros.jinja" import twice %}
first
{% include "part.jinja" %}
{# a comment
   of two lines #}
{% for i in [1, 2] %}
{{ i }} of {% if i == 1 %}one{% else %}
two{% endif %}

    {{ twice(i) | indent(4) }} after
{% endfor %}
{{ "broken\nin two" }}
{%- if true %} joined
{% endif %}

{% set held %}

    captured
{% endset %}
{{ held | trim }}
last""",
    "part.jinja": "part one\n{{ 1 + 1 }}\n",
    "macros.jinja": "{% macro twice(x) %}\nsum of {{ x }}\n\n    and {{ x }}\n{%- endmacro %}\n",
}


def test_includes_macros_and_captured_text_keep_their_own_lines(tmp_path: Path) -> None:
    """Each line is of the file that its text is in, through filters too."""
    for name, text in TEMPLATES.items():
        (tmp_path / name).write_text(text)
    text = render_mapped(environment((tmp_path,), "cu"), "main.jinja")
    lines = seen(with_line_directives(text))
    assert [f"{place.file}:{place.line} {content}" for place, content in lines if content] == [
        "main.jinja:2 first",
        "part.jinja:1 part one",
        "part.jinja:2 2",
        "main.jinja:7 1 of one",
        "macros.jinja:2     sum of 1",
        "macros.jinja:4         and 1 after",
        "main.jinja:7 2 of two",
        "macros.jinja:2     sum of 2",
        "macros.jinja:4         and 2 after",
        "main.jinja:12 broken",
        "main.jinja:12 in two joined",
        "main.jinja:19 captured",
        "main.jinja:22 last",
    ]


@pytest.mark.parametrize(
    "logic",
    ["{% if x == 'a' %}1{% else %}2{% endif %}", "{{ {'a': 1}[x] }}", "{% filter last %}21{% endfilter %}"],
    ids=["compares", "looks up", "cuts"],
)
def test_a_template_that_reads_its_own_output_prints_the_same_without_a_map(tmp_path: Path, logic: str) -> None:
    """Marks never change what is generated."""
    (tmp_path / "own.jinja").write_text("{% set x %}{{ 'a' }}{% endset %}\n" + logic)
    assert render_mapped(environment((tmp_path,), "cu"), "own.jinja") == "1"


def broken(folder: Path, line: str, replacement: str) -> tuple[str, Registered, KernelSource]:
    """A template of a project's own, wrong in one line: that line's name, and the first kernel of `rms_norm`."""
    lines = TEMPLATE.read_text().split("\n")
    (index,) = (i for i, text in enumerate(lines) if line in text)
    lines[index] = lines[index].replace(line, replacement)
    (folder / TEMPLATE.name).write_text("\n".join(lines))
    project = Project.read(ROOT / "specs", [folder])
    op = project.ops["rms_norm"]
    row = rows_of(op, project.files["normalization/rms_norm.cu"])[0]
    return f"row.cu.jinja:{index + 1}", row, sources_of(row, op)["packed"]


# A part of one line of the template, what is there instead, and the generated line that is wrong then.
IN_A_LOOP = '{{ t | read("e") }};'
MISTAKES = {
    "once": (
        "    static constexpr int PASSES = ",
        "    static constexpr int PASSES = lost + ",
        "    static constexpr int PASSES = lost + 2;",
    ),
    "in a loop": (
        IN_A_LOOP,
        "{{ 'lost + ' if t.name == 'gamma' }}" + IN_A_LOOP,
        f"{8 * ' '}const acc_t gamma_ = lost + !HAS_GAMMA ? acc_t(1.0) : acc_t(gamma_tensor::in(e));",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("compiler", ["host", "nvrtc"])
def test_errors_name_the_templates_line_and_show_the_generated_one(tmp_path: Path, compiler: str, mistake: str) -> None:
    """Of the lines that a loop made of the one named, the wrong one is shown."""
    line, replacement, generated = MISTAKES[mistake]
    place, _, source = broken(tmp_path, line, replacement)
    with pytest.raises(CompileError) as caught:
        assemble(source, "sm_90") if compiler == "nvrtc" else get_device("host").load(source)
    headline, first, heading, *excerpt = str(caught.value).splitlines()
    assert headline.startswith("'generated/normalization/rms_norm.cu' does not compile for")
    assert re.match(rf"{re.escape(place)}: .*\blost\b", first)
    assert heading == "in generated/normalization/rms_norm.cu:"
    number = [content for _, content in seen(with_line_directives(source.text))].index(generated) + 1
    assert f">{number:5} | {generated}"[:110] in excerpt


# What the line of a mistake in `{{ v.expr | cuda }}` gives a value, and where the specs say so; and lines without such.
FIELDS = {
    "acc_t xhat_ = lost + x_ * r_;": "rms_norm_backward: program: xhat = x * r",
    "proj_ = lost(xhat_, wdy_, proj_);": "rms_norm_backward: program: proj = mean(xhat * wdy, cols)",
    "dx_tensor::store(e, T(lost + r_ * wdy_));": "rms_norm_backward: program: dx = r * fma(-xhat, proj, wdy)",
    "using gamma_tensor = ColumnInput<&kernel_args::lost>;": "rms_norm_backward: inputs.gamma",
    "constexpr bool HAS_GAMMA = lost;": "rms_norm_backward: descriptor.has_gamma",
    "acc_t(lost(rms_tensor::in(row)));": "rms_norm_backward: inputs.rms",
    "args.y_.at(space, row) = lost;": "rms_norm: program: y = x * (1 / rms) * gamma",
    "if (threadIdx.x == lost) return;": "",
    "static constexpr int BLOCK_K = lost;": "",
    "Tile::row_barrier(lost);": "",
}


@pytest.mark.parametrize("line", FIELDS)
def test_a_kernels_line_leads_to_a_field_of_the_spec(line: str) -> None:
    """The first value of the program, else the first name that a field declares; what no name leads to has none."""
    op, _, field = FIELDS[line].partition(": ")
    found = place_of(line, load_folder(LONG)[op or "rms_norm_backward"])
    assert found.partition(": ")[2] == field
    if field:
        path, number = re.findall(r"(.*):(\d+)$", found.partition(": ")[0])[0]
        shown = Path(path).read_text().splitlines()[int(number) - 1].strip()
        assert shown.startswith(field.partition(": ")[2] or f"{field.rpartition('.')[2]}:")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_show_the_specs_field_below_the_templates_line(tmp_path: Path, mistake: str) -> None:
    """Of the mistakes above, the one in a loop over tensors is of a tensor."""
    line, replacement, _ = MISTAKES[mistake]
    _, _, source = broken(tmp_path, line, replacement)
    with pytest.raises(CompileError) as caught:
        assemble(source, "sm_90")
    before = str(caught.value).splitlines()
    after = with_field(str(caught.value), load_folder(ROOT / "specs")).splitlines()
    if mistake == "once":
        assert after == before
    else:
        assert after[:2] + after[3:] == before and re.fullmatch(r"specs/.*/rms_norm.yaml:\d+: inputs.gamma", after[2])
    assert with_field(str(caught.value), {}).splitlines() == before


def test_findings_name_the_templates_line(tmp_path: Path) -> None:
    """What a kernel does wrong when it runs is reported where a person would change it."""
    place, row, _ = broken(tmp_path, "        {{ v | assignment }};", "        __trap(); {{ v | assignment }};")
    descriptor = RMSNormDescriptor(input_shape=(2, 8), norm_axes_mask=2, eps=1e-6, has_gamma=False, element="f32")
    plan = RMSNormPlan(descriptor, row, frozenset(["packed"]))
    x = np.ones((2, 8), np.float32)
    with pytest.raises(KernelInternal, match=rf"__trap\(\) at {re.escape(place)}\b"):
        plan.run(x=x, y=np.empty_like(x), rms=np.empty((2, 1), np.float32))
