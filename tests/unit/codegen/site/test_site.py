"""Invariant: the catalogue says of every op all that its spec says, and each of its links leads somewhere."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from repository import ROOT, few

from baracuda.checking.compare.judge import Measured, Outcome, Settings
from baracuda.checking.compare.state import State
from baracuda.cli.main import main
from baracuda.cli.tools.site_pictures import Measurements
from baracuda.codegen.project import Project, installed, kernels_of
from baracuda.codegen.site.dead_links import dead_links
from baracuda.codegen.site.documents import Documents
from baracuda.codegen.site.excerpts import excerpt, marked_ops
from baracuda.codegen.site.links import relinked, targets
from baracuda.codegen.site.meters import metered
from baracuda.codegen.site.op_page import path_of
from baracuda.codegen.site.pages import Catalogue, navigation, pages
from baracuda.codegen.site.table import Ready, code, fenced, plain, table
from baracuda.codegen.site.tree import Tree, link
from baracuda.runtime import Unsupported

PACKAGE = "baracuda.generated"
SPEC_FILES = sorted(installed("baracuda.specs").glob("*/*.yaml"))
HELD = {"arch": "sm_90", "layout": "packed", "registers": 77, "shared": 0, "stack": 0, "spill": 12345}


@cache
def project() -> Project:
    return Project.read(installed("baracuda.specs"))


@cache
def catalogue() -> Catalogue:
    made = project().loaded, project().ops, project().files
    return Catalogue(*made, kernels_of(PACKAGE), lambda _: [HELD], Documents(ROOT), PACKAGE)


@cache
def tree() -> Tree:
    return pages(catalogue())


def text_of(page: str) -> str:
    found = tree().files[page]
    assert isinstance(found, str)
    return found


def page_names() -> list[str]:
    return sorted(path for path in tree().files if path.endswith(".md"))


def anchors_of(page: str) -> set[str]:
    """Those of its headings."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


# -------------------------------------------------------------------------------------------------------------- pages


def test_every_link_has_a_target() -> None:
    for page in page_names():
        for target in targets(text_of(page)):
            path, _, anchor = target.partition("#")
            found = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
            assert found in tree().files, f"{page}: {target}"
            assert not anchor or anchor in anchors_of(found), f"{page}: {target}"


@pytest.mark.parametrize("op", few(SPEC_FILES, 20), ids=lambda path: path.stem)
def test_a_page_has_all_that_the_spec_says(op: Path) -> None:
    spec, page = project().loaded[op.stem].spec, text_of(path_of(op.stem))
    assert plain(spec.doc) in page
    assert spec.formula.strip() in page
    for name, tensor in spec.arguments.items():
        assert re.search(rf"^\| `{name}` \|.*{re.escape(plain(tensor.doc))} \|$", page, re.MULTILINE), name
    for name, field in spec.descriptor.items():
        assert re.search(rf"^\| `{name}` \|.*{re.escape(plain(field.doc))} \|$", page, re.MULTILINE), name
    for requirement in spec.require:
        assert f"`{requirement.raises}`" in page
    for output, rungs in spec.reproducibility.items():
        (row,) = re.findall(rf"^\| `{output}` \|([yes |]*)$", page, re.MULTILINE)
        assert row.count("yes") == len(rungs)


@pytest.mark.parametrize("op", few([path.stem for path in SPEC_FILES], 20))
def test_a_page_has_every_kernel(op: str) -> None:
    page, kernels = text_of(path_of(op)), catalogue().kernels_of(project().ops[op])
    elements = project().ops[op].elements
    names = re.findall(r"^\| `(\w+)` \|(?=.* sm\\_)(?!.* 12345 )", page, re.MULTILINE)
    assert names == [k.sku.symbol for e in elements for k in kernels if k.sku.element == e]
    assert page.count(" 12345 ") == len(kernels)


def test_the_index_counts_every_kernel_once_and_leads_to_it() -> None:
    counts = re.findall(r"\[(\d+)\]\(ops/(\w+)\.md#(\w+)\)", text_of("index.md"))
    kernels = [k.sku for k in catalogue().kernels]
    assert {(op, e): int(n) for n, op, e in counts} == {
        (sku.op, str(sku.element)): sum((k.op, k.element) == (sku.op, sku.element) for k in kernels) for sku in kernels
    }


def test_every_page_that_is_no_source_can_be_navigated_to() -> None:
    reached = re.findall(r"'([\w/.-]+\.md)'", str(navigation(catalogue())))
    assert sorted(reached) == [page for page in page_names() if not page.startswith("source/")]


def test_a_project_without_pages_has_a_catalogue(tmp_path: Path) -> None:
    made = project().loaded, project().ops, project().files
    bare = pages(Catalogue(*made, kernels_of(PACKAGE), lambda _: [], Documents(tmp_path), PACKAGE))
    assert path_of(next(iter(project().ops))) in bare.files
    assert not [path for path in bare.files if path.startswith("docs/")]


def test_a_dead_link_of_the_repository_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Mine\n\n[gone](docs/gone.md)\n")
    made = project().loaded, project().ops, project().files
    with pytest.raises(Unsupported, match=r"README.md: links to 'docs/gone.md', which is not in"):
        pages(Catalogue(*made, [], lambda _: [], Documents(tmp_path), PACKAGE))


# ----------------------------------------------------------------------------------------------------------- excerpts

PAGE = """# Page

| op | us |
| --- | ---: |
| `one` | 1 |
| two | 2 |

## one

Of one.

```sh
## two
```

## Both

<!-- ops: one, two -->

Of both.
"""


def test_sections_and_rows_of_an_op_are_found() -> None:
    assert excerpt(PAGE, "one") == "Of one.\n\nOf both.\n\n| us |\n| ---: |\n| 1 |\n"
    assert excerpt(PAGE, "two") == "Of both.\n\n| us |\n| ---: |\n| 2 |\n"
    assert excerpt(PAGE, "three") == ""


def test_marks_name_ops() -> None:
    marked = {op for page in Documents(ROOT).pages for op in marked_ops(Documents(ROOT).text(page))}
    assert marked
    assert marked <= set(project().ops)


# ---------------------------------------------------------------------------------------------------- Markdown, links


def test_words_read_as_they_are() -> None:
    assert plain("a_b * [c] | <d>") == r"a\_b \* \[c\] \| &lt;d&gt;"
    assert code("a `b`") == "`` a `b` ``"
    assert fenced("````\n", "text").splitlines() == ["`````text", "````", "`````"]
    rows = [{"a": "x|y", "b": None, "c": Ready("`z`"), "d": 1.0}, {"a": "", "b": "", "c": "", "d": None}]
    assert table(rows) == "| a | c | d |\n| --- | --- | ---: |\n| x\\|y | `z` | 1 |\n|  |  |  |\n"
    assert table([]) == ""


def test_links_are_led_and_blocks_left_alone() -> None:
    text = "[a](b.md#c) [d](https://e) [f](#g)\n\n```python gpu\n[h](i.md)\n```\n"
    assert targets(text) == ["b.md#c", "#g"]
    assert relinked(text, str.upper) == "[a](B.MD#C) [d](https://e) [f](#g)\n\n```python\n[h](i.md)\n```\n"
    assert link("ops/a.md", "docs/b.md#c") == "../docs/b.md#c"


def test_parts_of_a_whole_have_bars() -> None:
    text = "| a | worst / bound | ceiling |\n| --- | ---: | ---: |\n| x\\|y | 0.25 | 97% of copy |\n| z | - |  |\n"
    bars = ['<meter value="0.25" max="1"></meter>', '<meter value="0.97" max="1"></meter>']
    row = f"| x\\|y | 0.25 {bars[0]} | 97% of copy {bars[1]} |"
    assert metered(f"Text.\n\n{text}") == "Text.\n\n" + text.replace("| x\\|y | 0.25 | 97% of copy |", row)
    assert metered("| a |\n| --- |\n| 0.5 |\n") == "| a |\n| --- |\n| 0.5 |\n"


def test_two_files_cannot_have_a_place() -> None:
    made = Tree()
    assert made.add("a", "b") == made.add("a", "b")
    with pytest.raises(AssertionError, match="two files"):
        made.add("a", "c")


def test_links_that_are_no_good_are_told(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="sub/p.html#here">1</a><a href="sub/p.html#gone">2</a><a href="sub">3</a><a href="https://x">4</a>'
        '<script src="https://x/y.js"></script><img src="no.png">'
    )
    (tmp_path / "sub" / "p.html").write_text('<h1 id="here"></h1><a href="../index.html">up</a>')
    assert dead_links(tmp_path) == [
        "index.html: loads https://x/y.js from a network",
        "index.html: no.png leads to no file",
        "index.html: sub leads to no file",
        "index.html: sub/p.html#gone leads to no anchor",
    ]


# ----------------------------------------------------------------------------------------------------- pictures, HTML


def state_file(path: Path) -> Path:
    """Outcomes of an op, one of them beyond what a histogram shows."""
    state = State(path, Settings(0, "host", 1 << 10, 2), "texts")
    for index, ratio in enumerate((0.0, 0.25, 0.5, float("inf"))):
        state.add(Outcome("rms_norm", index, ("f32", "bf16")[index % 2], outputs={"y": Measured(ratio, 0.0, 0.0)}))
    return path


@pytest.mark.frontends
def test_histograms_are_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured = Measurements(accuracy=(state_file(tmp_path / "s.jsonl"),))
    (title, drawn), *others = measured.pictures("rms_norm").items()
    assert (title, others) == ("Errors as a part of their bound", [])
    assert drawn == measured.pictures("rms_norm")[title]
    assert drawn.startswith(b"<?xml")
    assert measured.pictures("softmax") == {}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of two ops, with all pages of the repository."""
    pytest.importorskip("material")
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("site")
    specs = shutil.copytree(installed("baracuda.specs") / "normalization", folder / "specs" / "normalization")
    for unwanted in specs.glob("layer_norm*"):
        unwanted.unlink()
    given = ["--specs", folder / "specs", "--out", folder / "out", "--root", ROOT]
    given += ["--accuracy", state_file(folder / "s.jsonl")]
    for _ in ("new", "again"):
        done = CliRunner().invoke(main, ["site", *map(str, given)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    return folder / "out"


@pytest.mark.parametrize("which", ["--out", "--markdown"])
def test_only_an_earlier_site_is_emptied(tmp_path: Path, which: str) -> None:
    """Not a folder of specs or of notes."""
    (tmp_path / "notes.txt").write_text("mine")
    given = ["--specs", str(installed("baracuda.specs")), "--out", str(tmp_path / "out"), which, str(tmp_path)]
    done = CliRunner().invoke(main, ["site", *given])
    assert (done.exit_code, done.stdout) == (1, "") and f"{tmp_path}: is not an earlier site" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_without_its_tools_a_site_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baracuda.codegen.site.html.find_spec", lambda name: None)
    folders = [tmp_path / "out", tmp_path / "pages"]
    done = CliRunner().invoke(main, ["site", "--out", str(folders[0]), "--markdown", str(folders[1])])
    assert done.exit_code == 1 and done.stderr.startswith("mkdocs-material is not installed")
    assert not any(folder.exists() for folder in folders)


@pytest.mark.long
@pytest.mark.frontends
@pytest.mark.filterwarnings("default")
def test_the_site_is_whole(site: Path) -> None:
    assert dead_links(site) == []
    assert (site / "ops" / "rms_norm.html").is_file()
    assert "__codelineno-0-1" in (site / "source" / "generated" / "normalization" / "rms_norm.cu.html").read_text()
    assert "Errors as a part of their bound" in (site / "ops" / "rms_norm.html").read_text()


@pytest.mark.long
@pytest.mark.frontends
@pytest.mark.filterwarnings("default")
def test_a_browser_shows_it_without_a_complaint_and_without_a_network(site: Path) -> None:
    """Every page, from files; and search finds an op. BARACUDA_TEST_BROWSER is a Chromium other than playwright's."""
    api = pytest.importorskip("playwright.sync_api")
    said: list[str] = []
    with api.sync_playwright() as play:
        try:
            browser = play.chromium.launch(executable_path=os.environ.get("BARACUDA_TEST_BROWSER"))
        except api.Error:
            pytest.skip("no browser; 'playwright install chromium' gets one")
        page = browser.new_page()
        page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("request", lambda r: said.append(r.url) if r.url.startswith(("http", "ws")) else None)
        aborted = "net::ERR_ABORTED"  # of the page before, which has been left
        page.on("requestfailed", lambda r: said.append(r.url) if r.failure != aborted else None)
        for path in sorted(site.rglob("*.html")):
            if path.name != "404.html":
                page.goto(path.as_uri())
                assert page.locator("h1").count() == 1, path
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("f")  # opens the search
        page.wait_for_function("document.activeElement.matches('input.md-search__input')")
        page.keyboard.type("rms_norm", delay=50)
        page.locator("a.md-search-result__link[href*='rms_norm']").first.wait_for(timeout=20_000)
        browser.close()
    assert said == []
