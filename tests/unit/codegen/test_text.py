"""Text of a spec stays text: in docstrings, comments and pages, whatever it holds."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import LONG, SPECS

from baracuda.codegen.emit.generate import generate, lower_all, texts
from baracuda.codegen.emit.plan_tree import check_plan, check_stub
from baracuda.codegen.emit.render import environment
from baracuda.codegen.lower.op import Op
from baracuda.codegen.spec.load import load_spec
from baracuda.codegen.text import Name, Text, in_comment, in_docstring, in_html, in_markdown, python
from baracuda.runtime import REGISTRY, SpecError

HOSTILE = st.text(st.sampled_from("\"'\\\n\r\0\t #{}%*/?<>&`|_ax\x85\u2028\u202e"), max_size=24) | st.text(max_size=24)


@settings(max_examples=400)
@given(HOSTILE)
def test_a_docstring_holds_any_text(text: str) -> None:
    assert ast.literal_eval(f'"""{in_docstring(text)}"""') == text
    assert ast.literal_eval(python(text)) == text


@settings(max_examples=400)
@given(HOSTILE)
def test_a_comment_is_one_line(text: str) -> None:
    """No end of a line within it, and no character that would continue it."""
    line = in_comment(text)
    assert len(f"// {line}".splitlines()) == 1
    assert not line.rstrip().endswith(("\\", "??/"))


@settings(max_examples=200)
@given(HOSTILE)
def test_a_page_has_no_tags_of_a_text(text: str) -> None:
    for escaped in (in_html(text), in_markdown(text)):
        assert not re.search(r"[<>\"]|&(?!\w+;|\\?#)", escaped)


@pytest.mark.parametrize("text", ["a b", "a-b", "", "a\n", "1a", 'a"', "a.b", "é"])
def test_a_name_is_an_identifier(text: str) -> None:
    with pytest.raises(ValueError, match="is no identifier"):
        Name(text)


PRINTED = {
    "{{ text }}": "a \\\\ \\\"\\\"\\\"",
    "{{ name | upper }}": "X",
    "{{ 'a\"' if name else 'b' }}{{ 'c' if not name }}": 'a"',
    "{{ name ~ '_row' }}": "x_row",
    "{% set both = name ~ 1 %}{{ both }}": "x1",
    "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}": "<a>",
    "{{ [name, name] | join(', ') }}": "x, x",
    "{{ 3 }}{{ true }}": "3True",
}
REFUSED = [
    "{{ raw }}", "{{ raw | upper }}", "{{ raw ~ 'a' }}", "{{ name ~ raw }}", "{{ [name, raw] | join }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(raw) }}", "{% set x = raw %}{{ x }}", "{{ [raw] | first }}",
    "{{ [raw] }}", "{{ name.format }}", "{{ missing or raw }}", "{{ raw | trim }}",
]  # fmt: skip


def rendered(tmp_path: Path, template: str, language: str = "py") -> str:
    (tmp_path / "t.jinja").write_text(template)
    env = environment((tmp_path,), language)
    values = {"text": Text('a \\ """'), "name": Name("x"), "raw": '"""; evil(); """', "missing": None}
    return env.get_template("t.jinja").render(values)


@pytest.mark.parametrize("template", PRINTED)
def test_templates_print_what_has_a_type(tmp_path: Path, template: str) -> None:
    assert rendered(tmp_path, template) == PRINTED[template]


@pytest.mark.parametrize("template", REFUSED)
def test_templates_print_no_bare_text(tmp_path: Path, template: str) -> None:
    with pytest.raises(TypeError, match="it needs a"):
        rendered(tmp_path, template)


def test_no_template_of_ours_declares_text_safe() -> None:
    """The filter `safe` would, so there is none; an unknown name is an error, too."""
    for name in ("safe", "e", "tojson", "replace"):
        with pytest.raises(jinja2.TemplateAssertionError):
            environment((SPECS,), "py").from_string(f"{{{{ raw | {name} }}}}")
    with pytest.raises(jinja2.UndefinedError):
        environment((SPECS,), "py").from_string("{{ lost }}").render()


EVIL = 'x""" + str(__import__("pathlib").Path("PWNED").touch()) + """y'


@pytest.mark.parametrize(
    ("op", "old", "new"),
    [
        ("flash_sdpa", "\npinned:\n", f"\npinned:\n  EvilPlan: {{arch: sm_80, doc: '{EVIL}'}}\n"),
        ("rms_norm", "\nsource: ", f"\nsource: '{EVIL}'\nformerly: "),
        ("rms_norm", "\ndoc: ", f"\ndoc: '{EVIL}'\nformerly: "),
        ("causal_conv1d", 'shape: "(batch_size, channels, seq_len)"', f"shape: '(batch_size,)  # {EVIL}'"),
    ],
    ids=["pinned", "source", "doc", "shape"],
)
def test_a_spec_runs_no_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, old: str, new: str
) -> None:
    """It is refused, or its text stands in a docstring, which importing does not execute."""
    monkeypatch.chdir(tmp_path)
    text = next(path for folder in (LONG, SPECS) for path in folder.rglob(f"{op}.yaml")).read_text()
    assert old in text
    text = text.replace(old, new, 1)
    text = re.sub(r"\nformerly: .*(\n  .*)*", "", text)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / f"{op}.yaml").write_text(text)
    package = f"evil_{op}_{len(new)}"
    try:
        generate(Path("specs"), Path(package))
    except SpecError as refused:
        assert all(re.match(r"specs/\w+\.yaml:\d+: ", line) for line in str(refused).splitlines())
    else:
        monkeypatch.syspath_prepend(tmp_path)
        with REGISTRY.apart():
            importlib.import_module(package).import_all()
        assert any(EVIL in str(getattr(m, "__doc__", "")) or EVIL in Path(str(m.__file__)).read_text().replace("\\", "")
                   for n, m in sys.modules.items() if n.startswith(package))  # fmt: skip
    assert not Path("PWNED").exists()


@cache
def generated() -> tuple[Op, dict[str, str]]:
    """An op, and what is generated of it."""
    op = lower_all([load_spec(LONG / "alibi.yaml")])[0]
    return op, texts([op])


ADDED = [
    "import os",
    "open('PWNED', 'w')",
    "x = 1",
    "class Other: pass",
    "rt.REGISTRY.register(__import__('os'))",
    "rt.REGISTRY.register(rt.errors.__builtins__)",
    "rt.REGISTRY.register((lambda: 0)())",
    "rt.REGISTRY.register(exec('1'))",
    "rt.REGISTRY.register(f'{rt}')",
    "rt.REGISTRY.register([x for x in ()])",
    "rt.REGISTRY.register(rt.x().y())",
    "for x in (): pass",
    "def check(): pass\ncheck()",
    "x: int = 3",
    "del rt",
    "'text'; rt.x()",
    "(",
]


@pytest.mark.parametrize("added", ADDED)
def test_generated_python_is_plans_and_nothing_else(added: str) -> None:
    """What is generated is parsed again; any other statement, name or call is refused."""
    op, files = generated()
    text = files["attention/alibi.py"]
    check_plan(text, op)
    with pytest.raises(SpecError, match=r"alibi.yaml: the plan generated of it is none at attention/alibi.py:\d+"):
        check_plan(text + added + "\n", op)
    inner = "\n".join(f"        {line}" for line in added.splitlines())
    with pytest.raises(SpecError, match="the plan generated of it is none"):
        check_plan(text.replace("        return self._run(", f"{inner}\n        return self._run(", 1), op)




@pytest.mark.parametrize(
    ("printed", "other"),
    [
        ('"min(batch_size,', '"open(batch_size,'),
        ('"min(batch_size,', '"().__class__ and min(batch_size,'),
        ("rt.Argument(", "rt.view("),
        ("rt.Argument(", "os.system("),
        ("rt.field(", "open("),
        ("rt.MapDescriptor", "rt.Plan"),
        ("(rt.MapDescriptor)", "(rt.MapDescriptor, metaclass=eval('1'))"),
        ("class AlibiDescriptor", "@eval('1')\nclass AlibiDescriptor"),
        ("scores: rt.Array,", "scores: open('x'),"),
        ("y: rt.Array,", "y: rt.Array = open('x'),"),
        ("self._run((scores, slopes, y),", "self._run((scores, y, slopes),"),
        ("y), workspace, stream)", "y), workspace, open('x'))"),
        ("rt.entry_points(run)", "rt.entry_points(self)"),
        ("run_unchecked, bind, can_implement =", "run_unchecked, can_implement, bind ="),
        ("batch_size: int", "batch_size: open('x')"),
        ("(AlibiPlan)", "(AlibiPlan, contraction=(lambda: 1)())"),
    ],
)
def test_a_plan_is_data_declarations_formulas_and_one_method(printed: str, other: str) -> None:
    """Any other expression in the place of one that is printed is refused."""
    op, files = generated()
    text = files["attention/alibi.py"]
    assert printed in text
    with pytest.raises(SpecError, match="the plan generated of it is none"):
        check_plan(text.replace(printed, other, 1), op)


@pytest.mark.parametrize("added", [*ADDED, "def f():\n    import os", "class A(NamedTuple):\n    x: int = open('x')"])
def test_stubs_are_functions_and_nothing_else(added: str) -> None:
    text = generated()[1]["_functions.pyi"]
    check_stub(text)
    with pytest.raises(SpecError, match=r"the functions generated of the specs are none at _functions.pyi:\d+"):
        check_stub(text + added + "\n")
