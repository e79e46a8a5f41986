"""The tour: its pages lead to each other, and its pictures are what the code draws today.

`python docs/tour/pictures.py` draws them anew.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

TOUR = Path(__file__).parents[2] / "docs" / "tour"


def _pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", TOUR / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pictures = _pictures()
PAGES: list[Path] = pictures.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pictures_are_what_the_code_draws(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == pictures.drawn(page), "python docs/tour/pictures.py"


def test_every_picture_stands_in_a_page() -> None:
    shown = [found[2] for page in PAGES for found in pictures.MARK.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(pictures.PICTURES)


def test_the_pages_lead_to_each_other_at_top_and_bottom() -> None:
    for number, page in enumerate(PAGES):
        text = page.read_text(encoding="utf-8")
        top, bottom = text.split("\n\n", 1)[0], text.rstrip().rsplit("\n\n", 1)[1]
        assert top == bottom
        links = re.findall(r"\]\(([^)]+)\)", top)
        around = [PAGES[number - 1].name] if number else []
        after = [PAGES[number + 1].name] if number + 1 < len(PAGES) else []
        assert links == [*around, "../README.md#the-tour", *after]
        assert f"\n# {int(page.name[:2])}. " in text


def test_every_page_says_where_to_look() -> None:
    for page in PAGES:
        table = page.read_text(encoding="utf-8").split("\n## What you may look for\n", 1)[1]
        assert len(re.findall(r"^\| .*\]\(", table, flags=re.MULTILINE)) >= 6, page.name
