"""What the rules of the house look at in a file: each file is read and parsed once for all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "lab").rglob("*.py")])
SOURCES = [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]


@dataclass(frozen=True)
class Class:
    """A class: its name, its lines, and the last names of its bases."""

    name: str
    lines: int
    bases: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A file of Python; it keeps no tree, since those of all files are some hundred megabytes.

    Attributes
    ----------
    docstring
        The module's, empty if there is none.
    functions
        The name of each function, with its lines without the docstring.
    statements
        The lines of what stands at the top of the module and is no import, no constant and no docstring.
    told
        Its docstrings, the texts that stand behind names as theirs, and its comments, on one line.
    """

    lines: int
    docstring: str
    classes: tuple[Class, ...]
    functions: tuple[tuple[str, int], ...]
    statements: tuple[int, ...]
    told: str


def name_of(path: Path) -> str:
    """Return how a rule names a file or a folder."""
    return path.relative_to(ROOT).as_posix()


def expect_none(found: Iterable[str], rule: str) -> None:
    """Fail with all that breaks a rule, if anything does."""
    breaks = list(found)
    assert not breaks, "\n".join([rule, *breaks])


@cache
def source(path: Path) -> Source:
    """Return what there is to know of a file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    classes, functions, texts = [], [], []
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                bases = tuple(ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
                classes.append(Class(node.name, (node.end_lineno or 0) - node.lineno + 1, bases))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions.append((node.name, _body_lines(node)))
            case ast.Expr(value=ast.Constant(value=str(said))):
                texts.append(said)
    return Source(
        len(text.splitlines()),
        ast.get_docstring(tree) or "",
        tuple(classes),
        tuple(functions),
        tuple(node.lineno for node in tree.body[1:] if not _is_declaration(node)),
        " ".join("\n".join([*texts, *re.findall(r"#\s(.*)", text)]).split()),
    )


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from its name to its end, without its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def _is_declaration(node: ast.stmt) -> bool:
    """Whether a statement imports, names a constant, or is one of the two functions that make imports late."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
        case _:
            return False
