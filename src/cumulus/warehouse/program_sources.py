"""What a warehouse is opened with: a program from SQL or M3, and the user's functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cumulus import m3
from cumulus.catalog.names import Name
from cumulus.catalog.types import SqlType
from cumulus.compiler import compile_sql, extend_sql
from cumulus.compiler.declarations import declarations, redefined_views
from cumulus.compiler.pipeline import as_path, no_script
from cumulus.engine.engines import check_engine
from cumulus.errors import InputError, UsageError
from cumulus.m3.program import Program
from cumulus.scalars.user import Given, UserFunction, function
from cumulus.sql.syntax.parse import parse_script


def check_choices(engine: str, keep: str) -> None:
    """Raise UsageError if an option of a warehouse is none of those there are."""
    check_engine(engine)
    if keep not in ("auto", "all", "none"):
        raise UsageError(f"keep={keep!r}", hint="keep is 'auto', 'all' or 'none'.")


def make_function(
    name: str, given: Given, arguments: Sequence[str | SqlType] | None, returns: str | SqlType | None, null: str
) -> UserFunction:
    """Return the function that `Warehouse.register` is given, as `cumulus.function` makes it."""
    implement: Callable[..., Any] = given
    if isinstance(given, UserFunction):
        implement = given.implement
        arguments = given.signature.parameters if arguments is None else arguments
        returns = given.signature.result if returns is None else returns
        null = "pass" if given.signature.called_with_null else null
    return function(implement, name=name, arguments=arguments, returns=returns, null=null)


def with_function(functions: Mapping[str, Given], made: UserFunction, program: Program) -> dict[str, Given]:
    """Return `functions` and one more, which takes the place of one of its name.

    Raises
    ------
    UsageError
        If a view of the program calls one of its name.
    """
    folded = made.name.lower()
    if folded in {each.name.lower() for each in program.functions}:
        raise UsageError(
            f"views call {made.name}: another function would not take back what this one gave",
            hint="Drop the views first, or give the function another name.",
        )
    return {**{name: each for name, each in functions.items() if name.lower() != folded}, made.name: made}


def script_of(views: str | Path) -> str:
    """Return SQL that is given as text or as the path of a file.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    source = as_path(views)
    if isinstance(source, Path):
        return _read(source)
    if not isinstance(source, str):
        raise no_script(source, "statements are SQL or the path of a script")
    return source


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(
            f"there is no file {path}",
            hint="It was looked for as a script, by its name." if path.is_absolute() else f"This is {Path.cwd()}.",
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read {path}: {problem}", hint="Give the path of a UTF-8 text.") from None


def read_source(
    source: str | Path | Program, keep: str, functions: Mapping[str, Given], size: int
) -> tuple[str | None, Program]:
    """Return the SQL text, if there is one, and the program."""
    if isinstance(source, Program):
        return None, source
    name = ""
    source = as_path(source)
    if isinstance(source, Path):
        name = source.name
        text = _read(source)
        if source.suffix == ".m3":
            return None, m3.parse(text, name=name)
    elif isinstance(source, str):
        text = source
    else:
        raise no_script(source, "a warehouse is made from SQL, the path of a script or a Program")
    return text, compile_sql(text, name=name, keep=keep, functions=functions, size=size)


def extended(script: str, sql: str | Path, keep: str, functions: Mapping[str, Given], size: int) -> tuple[str, Program]:
    """Return a script with statements added, and its program: new tables, and views that come and go."""
    typed = [each for each in functions.values() if isinstance(each, UserFunction)]
    return extend_sql(script, script_of(sql), keep=keep, functions=typed, size=size)


def changed_views(views: Collection[str], script: str, longer: str, program: Program, new: Program) -> list[str]:
    """Return those of some views that a longer script has no more, or makes by another query.

    `program` and `new` are those of the two scripts: views of levels stand in no script, but are of cubes.
    """
    if not views:
        return []
    before, after = declarations(parse_script(script)), declarations(parse_script(longer))
    other = redefined_views(before, after)
    declared = {level.view: cube.name for cube in program.cubes for level in cube.levels}
    left = {view.name for view in new.views}
    return sorted(view for view in views if view not in left or Name(declared.get(view, view)) in other)
