"""Pages and docstrings: lines that can be read, and references that lead somewhere (docs/papers.md, docs/words.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/*.md")])
SOURCES = sorted(
    path
    for room in ("src", "tests", "docs")
    for path in (ROOT / room).rglob("*.py")
    if path != Path(__file__)  # it speaks of references without making any
)
LINE = 120

PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
KEYS = re.findall(r"^## (.+)$", PAPERS, flags=re.MULTILINE)
PLACE = r'(§[\d.]*\d|example \d[\d.]*\d|example \d|"[^"]+")'


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are no code and no table, with their numbers."""
    is_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("|"):
            yield number, line


def docstrings(path: Path) -> str:
    """Return the docstrings of a module, and the texts that stand behind names as theirs, and comments."""
    text = path.read_text(encoding="utf-8")
    found = [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join([*found, *re.findall(r"#\s(.*)", text)])


def told(path: Path) -> str:
    """Return what a page or a module says in words, on one line."""
    text = docstrings(path) if path.suffix == ".py" else path.read_text(encoding="utf-8")
    return " ".join(text.split())


def headings(page: Path) -> set[str]:
    return {re.sub(r"[`*]", "", line.lstrip("#").strip()) for _, line in prose(page) if line.startswith("#")}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_of_pages_can_be_read(page: Path) -> None:
    long = [number for number, line in prose(page) if len(line) > LINE]
    assert long == [], f"lines of more than {LINE} characters"


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=name_of)
def test_a_page_that_is_cited_exists_and_has_the_section(path: Path) -> None:
    """`docs/NAME.md`, or `NAME.md` on a page, and what stands in quotes behind it."""
    for name, section in re.findall(r'([\w/.-]+\.md)`?\)?(?:,? (?:section )?"([^"]+)")?', told(path)):
        places = [ROOT / name, ROOT / "docs" / name, path.parent / name, path.parent / Path(name).name]
        pages = [place for place in places if place.is_file()]
        if path.suffix == ".py" and not name.startswith(("docs/", "tests/", "README", "CHANGELOG", "../")):
            assert "/" not in name, f"{name}: say where the page is, as in docs/{name}"
        assert pages, f"there is no {name}"
        assert not section or section in headings(pages[0]), f'{name} has no section "{section}"'


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_into_a_page_leads_to_a_heading(page: Path) -> None:
    for name, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        target = page.parent / name if name else page
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(target)}
        assert anchor in anchors, f"{name}#{anchor}"


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=name_of)
def test_a_paper_that_is_cited_is_listed_with_the_place(path: Path) -> None:
    if path.name == "papers.md":
        return
    text = told(path)
    assert not re.search(r'(?<![\d,.])00[0-4](?:,? (?:§|example|"))', text), "a paper has a name: docs/papers.md"
    for key in KEYS:
        part = PAPERS.split(f"\n## {key}\n", 1)[1].split("\n## ", 1)[0]
        listed = re.findall(r"^\| (.+?) \|", part, flags=re.MULTILINE)
        for place in re.findall(rf'{re.escape(key)}"?,? (?:\([^)]*\),? |PODS 2010, )?{PLACE}', text):
            assert place in listed, f"docs/papers.md does not list {key}, {place}"
    cited = re.findall(r"(.{0,80})§", text)
    loose = [before for before in cited if not any(key in before for key in KEYS)]
    assert loose == [], "a section of what? docs/papers.md has the names of papers"


def test_the_list_of_papers_names_tests_and_modules() -> None:
    for line in PAPERS.splitlines():
        if line.startswith("| ") and not line.startswith("| place"):
            assert "](../src/cumulus/" in line, line
            assert "](../tests/" in line, line
