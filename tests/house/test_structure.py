"""How the house is divided: folders and classes of a size that can be understood, and one name for each thing."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from support.sources import MODULES, Class, expect_none, name_of, source

pytestmark = pytest.mark.xdist_group("house")  # one worker parses the sources

FOLDERS = sorted({path.parent for path in MODULES})
FOLDER_FILES = 20
CLASS_LINES = 300

VAGUE = {
    *("ahead", "alike", "along", "apart", "called", "canonical", "closed", "columnar", "derived", "embedded", "found"),
    *(
        "hidden",
        "inner",
        "keyed",
        "known",
        "newest",
        "outside",
        "private",
        "raw",
        "served",
        "shared",
        "signed",
        "sound",
    ),
    *("straight", "strict", "stored", "tabular", "taken", "told", "touched", "trusted", "understood", "written"),
    *("common", "core", "helpers", "misc", "utils"),
}
"""File names that say of what kind something is, or that something was done, but not what it is."""


def classes() -> dict[str, list[tuple[Path, Class]]]:
    found: dict[str, list[tuple[Path, Class]]] = defaultdict(list)
    for path in MODULES:
        for each in source(path).classes:
            found[each.name].append((path, each))
    return found


def lines_with_bases(name: str, known: dict[str, list[tuple[Path, Class]]]) -> int:
    """Lines of a class and of what it inherits in this project: a class cut into four files is still one class."""
    longest = max((each for _, each in known[name]), key=lambda each: each.lines)
    return longest.lines + sum(lines_with_bases(each, known) for each in longest.bases if each in known)


def test_a_folder_is_seen_at_a_glance() -> None:
    files = {name_of(folder): len([*folder.glob("*.py")]) - (folder / "__init__.py").exists() for folder in FOLDERS}
    assert {name: count for name, count in files.items() if count > FOLDER_FILES} == {}, "divide it into rooms"


def test_classes_can_be_understood() -> None:
    known = classes()
    long = {name: lines_with_bases(name, known) for name in known}
    assert {name: lines for name, lines in long.items() if lines > CLASS_LINES} == {}, "take parts out, do not slice"


def test_no_two_public_classes_share_a_name() -> None:
    twins = {
        name: [name_of(path) for path, _ in places]
        for name, places in classes().items()
        if len(places) > 1 and not name.startswith("_")
    }
    assert twins == {}, "one word, one thing"


def test_files_are_named_by_what_they_hold() -> None:
    found = [name_of(path) for path in MODULES if path.stem in VAGUE]
    expect_none(found, "a file is a noun that could head a page")


def test_every_room_says_more_than_its_name() -> None:
    inits = [path for path in MODULES if path.name == "__init__.py"]
    found = [name_of(path) for path in inits if len(source(path).docstring.split()) <= 3]
    expect_none(found, "say what the room owns, and what it never knows")


def test_told_is_no_name_of_a_function() -> None:
    """It has meant ten things."""
    found = [
        f"{name_of(path)}:{name}" for path in MODULES for name, _ in source(path).functions if name in ("told", "_told")
    ]
    expect_none(found, "say what is formatted, wrapped or called")
