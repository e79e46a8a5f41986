"""How the house is divided: folders and classes of a size that can be understood, and one name for each thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cumulus"
MODULES = sorted(PACKAGE.rglob("*.py"))
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


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def classes() -> dict[str, list[tuple[Path, ast.ClassDef]]]:
    found: dict[str, list[tuple[Path, ast.ClassDef]]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append((path, node))
    return found


def lines_with_bases(name: str, known: dict[str, list[tuple[Path, ast.ClassDef]]]) -> int:
    """Lines of a class and of what it inherits in this project: a class cut into four files is still one class."""
    path, node = max(known[name], key=lambda each: (each[1].end_lineno or 0) - each[1].lineno)
    del path
    bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
    return (
        (node.end_lineno or 0) - node.lineno + 1 + sum(lines_with_bases(each, known) for each in bases if each in known)
    )


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folder_is_seen_at_a_glance(folder: Path) -> None:
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= FOLDER_FILES, "divide it into rooms"


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


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_are_named_by_what_they_hold(path: Path) -> None:
    assert path.stem not in VAGUE, "a file is a noun that could head a page"


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=name_of)
def test_every_room_says_more_than_its_name(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert len(said.split()) > 3, "say what the room owns, and what it never knows"


def test_told_is_no_name_of_a_function() -> None:
    """It has meant ten things; say what is formatted, wrapped or called."""
    found = [
        f"{name_of(path)}:{node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in ("told", "_told")
    ]
    assert found == []
