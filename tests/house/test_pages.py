"""Pages and docstrings: lines that can be read, and references that lead somewhere (docs/papers.md, docs/words.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.sources import ROOT, expect_none, name_of, source

pytestmark = pytest.mark.xdist_group("house")  # one worker parses the sources

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/*.md")])
SOURCES = sorted(
    path
    for room in ("src", "tests", "docs")
    for path in (ROOT / room).rglob("*.py")
    if path != Path(__file__)  # it speaks of references without making any
)
LINE = 120

PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
LISTED = {
    part.split("\n", 1)[0]: re.findall(r"^\| (.+?) \|", part, flags=re.MULTILINE)
    for part in f"\n{PAPERS}".split("\n## ")[1:]
}
"""Paper → the places of it that the page lists."""
PLACE = r'(§[\d.]*\d|example \d[\d.]*\d|example \d|"[^"]+")'


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are no code and no table, with their numbers."""
    is_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("|"):
            yield number, line


@cache
def told(path: Path) -> str:
    """Return what a page or a module says in words, on one line."""
    return source(path).told if path.suffix == ".py" else " ".join(path.read_text(encoding="utf-8").split())


@cache
def headings(page: Path) -> set[str]:
    return {re.sub(r"[`*]", "", line.lstrip("#").strip()) for _, line in prose(page) if line.startswith("#")}


def test_lines_of_pages_can_be_read() -> None:
    long = (f"{name_of(page)}:{number}" for page in PAGES for number, line in prose(page) if len(line) > LINE)
    expect_none(long, f"lines of more than {LINE} characters")


def wrong_citations(path: Path) -> Iterator[str]:
    """Yield what is wrong with `docs/NAME.md`, or `NAME.md` on a page, and with what stands in quotes behind it."""
    for name, section in re.findall(r'([\w/.-]+\.md)`?\)?(?:,? (?:section )?"([^"]+)")?', told(path)):
        places = [ROOT / name, ROOT / "docs" / name, path.parent / name, path.parent / Path(name).name]
        pages = [place for place in places if place.is_file()]
        has_root = name.startswith(("docs/", "tests/", "README", "CHANGELOG", "../"))
        if path.suffix == ".py" and not has_root and "/" in name:
            yield f"{name}: say where the page is, as in docs/{name}"
        if not pages:
            yield f"there is no {name}"
        elif section and section not in headings(pages[0]):
            yield f'{name} has no section "{section}"'


def test_a_page_that_is_cited_exists_and_has_the_section() -> None:
    found = (f"{name_of(path)}: {wrong}" for path in [*SOURCES, *PAGES] for wrong in wrong_citations(path))
    expect_none(found, "cite pages and sections that there are")


def wrong_links(page: Path) -> Iterator[str]:
    for name, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        target = page.parent / name if name else page
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(target)}
        if anchor not in anchors:
            yield f"{name}#{anchor}"


def test_a_link_into_a_page_leads_to_a_heading() -> None:
    found = (f"{name_of(page)}: {wrong}" for page in PAGES for wrong in wrong_links(page))
    expect_none(found, "link to headings that there are")


def wrong_papers(path: Path) -> Iterator[str]:
    """Yield the papers that are cited without a name, and the places that docs/papers.md does not have."""
    text = told(path)
    if re.search(r'(?<![\d,.])00[0-4](?:,? (?:§|example|"))', text):
        yield "a paper has a name: docs/papers.md"
    for key, listed in LISTED.items():
        for place in re.findall(rf'{re.escape(key)}"?,? (?:\([^)]*\),? |PODS 2010, )?{PLACE}', text):
            if place not in listed:
                yield f"docs/papers.md does not list {key}, {place}"
    for before in re.findall(r"(.{0,80})§", text):
        if not any(key in before for key in LISTED):
            yield f"{before}§: a section of what? docs/papers.md has the names of papers"


def test_a_paper_that_is_cited_is_listed_with_the_place() -> None:
    cited = [path for path in [*SOURCES, *PAGES] if path.name != "papers.md"]
    found = (f"{name_of(path)}: {wrong}" for path in cited for wrong in wrong_papers(path))
    expect_none(found, "cite papers as docs/papers.md does")


def test_the_list_of_papers_names_tests_and_modules() -> None:
    for line in PAPERS.splitlines():
        if line.startswith("| ") and not line.startswith("| place"):
            assert re.search(r"\]\(\.\./(src|lab)/cumulus", line), line
            assert "](../tests/" in line, line
