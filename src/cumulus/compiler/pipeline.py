"""SQL to M3: the compiler as a visible row of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.algebra.scope import ordered, substitute, variables_of
from cumulus.algebra.terms import Atom, MapExtremum, MapRead, Term, Var
from cumulus.calculus.derived_relations import ExtremumRelation, Registry
from cumulus.calculus.polynomial import Monomial, monomials
from cumulus.catalog.names import Name, folded
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.cube_levels import Levels, is_kept
from cumulus.compiler.cubes import BoundCube, check_cube
from cumulus.compiler.declarations import Declarations, declarations
from cumulus.compiler.functions import declare_functions
from cumulus.compiler.lower import lower, name_columns
from cumulus.compiler.maps.columns import ColumnGroup, MaintainedNumber
from cumulus.compiler.maps.cycles import without_circles
from cumulus.compiler.maps.trusted_keys import mark_enforced, trusting
from cumulus.compiler.materialize import Materializer
from cumulus.compiler.options import PAPER, CompilerOptions, ExcessError
from cumulus.compiler.orders import ViewOrders
from cumulus.compiler.strict_views import check_strict
from cumulus.errors import InputError, SqlError, UnsupportedError, UsageError
from cumulus.garbage_collection import gc_paused
from cumulus.m3.program import Program, ViewDef
from cumulus.scalars.user import Functions, given_functions, signatures
from cumulus.sql.ast import CreateTable, CreateView, Script, tables_read
from cumulus.sql.binding.translation import BoundView, bind_view
from cumulus.sql.source import SqlText
from cumulus.sql.syntax.parse import parse_script
from cumulus.sql.syntax.words import too_deep

MAX_COPIES = 10
"""How often a view may join one table with itself: the delta has a term for every subset of the copies."""


def compile_sql(
    text: str | Path,
    *,
    name: str = "",
    keep: str = "auto",
    rely: bool = True,
    enforced: bool = True,
    form: str = "",
    batches: bool = True,
    functions: Functions | None = None,
    order: int | None = None,
    size: int = 1,
    trace: Callable[[str], None] | None = None,
) -> Program:
    """Compile a script of CREATE TABLE, CREATE VIEW and CREATE CUBE statements to one M3 program.

    Parameters
    ----------
    text
        The script, or the path of a file with it.
    name
        What errors call the script; the file's name if `text` is a path.
    keep
        Which tables' rows are kept: "auto", "all" or "none"; a table's own `keep` wins.
    rely
        Whether the promises of `FOREIGN KEY … RELY` are used.
    enforced
        Whether keys and references are used that the host checks.
    form
        "paper" leaves out what the programs printed in the papers do not have.
    batches
        Whether `ON BATCH` triggers are written.
    functions
        Scalar functions of your own that the script may call (`cumulus.function`, docs/functions.md).
    order
        How views are kept that do not say it: `CompilerOptions.order`.
    size
        Multiplies the limits of what a program may be (`CompilerOptions.size`).
    trace
        Is told, line by line, how every delta is simplified.

    Raises
    ------
    SqlSyntaxError, BindError, UnsupportedError
        With line, column and a way out.

    Examples
    --------
    >>> program = compile_sql("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a")
    >>> [m.name for m in program.maps], program.views[0].columns[1].name
    (['v'], 'n')
    """
    text = as_path(text)
    if isinstance(text, Path):
        name = name or text.name
        try:
            text = text.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as problem:
            raise InputError(f"cannot read {name}: {problem}", hint="Give the path of a UTF-8 SQL file.") from None
    if not isinstance(text, str):
        raise no_script(text, "a program is compiled from SQL or the path of a script")
    options = PAPER if form == "paper" else CompilerOptions(keep=keep, batches=batches, enforced=enforced)
    options = replace(options, rely=rely, order=order, trace=trace, size=size)
    try:
        own = signatures(given_functions(functions))
        return declare_functions(compile_script(parse_script(text, name, own), options), own)
    except RecursionError:
        raise too_deep(text=text, name=name) from None
    except AssertionError as fault:  # a mistake of ours, but the script's author must get on with it
        raise UnsupportedError(
            f"the compiler cannot do this, and does not know why: {fault}",
            feature="a script that the compiler fails on",
            name=name,
            hint="Compile the views one by one to see which it is, write that one in another way, and report it.",
        ) from fault


def as_path(source: Any) -> Any:
    """Return a text that is the path of a script as a Path, anything else as it is.

    It is one line, and ends in .sql or .m3 or is the name of a file that is there.

    Examples
    --------
    >>> as_path("shop/views.sql").name, as_path("CREATE TABLE r (a INT)")
    ('views.sql', 'CREATE TABLE r (a INT)')
    """
    if not isinstance(source, str) or "\n" in source or ";" in source or not source.strip():
        return source
    if source.lower().endswith((".sql", ".m3")):
        return Path(source)
    try:
        return Path(source) if Path(source).is_file() else source
    except (OSError, ValueError):  # no name that a file may have
        return source


def no_script(source: Any, wanted: str) -> UsageError:
    """Return the error of a thing that is no script; `wanted` says what takes one, and in what forms.

    Examples
    --------
    >>> print(no_script(b"CREATE", "compile takes SQL or the path of a script"))
    compile takes SQL or the path of a script, not bytes.
    Decode it first: script.decode().
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        hint = "Decode it first: script.decode()."
    elif isinstance(source, (dict, list, tuple)) or hasattr(source, "__arrow_c_stream__"):
        hint = (
            "Declare the tables of frames with Warehouse.from_frames, or write CREATE TABLE and CREATE VIEW as a str."
        )
    else:
        hint = 'Pass CREATE TABLE and CREATE VIEW statements as a str, or the path of a script such as "views.sql".'
    return UsageError(f"{wanted}, not {'None' if source is None else type(source).__name__}.", hint=hint)


def extend_sql(
    earlier: str, text: str, *, keep: str = "auto", functions: Functions | None = None, size: int = 1
) -> tuple[str, Program]:
    """Return a script with statements added, and its program: new tables, and views that come and go.

    Parameters
    ----------
    earlier
        The script so far.
    text
        The statements that are added. Positions in errors refer to this text.
    keep, functions, size
        As in `compile_sql`.

    Raises
    ------
    UnsupportedError
        If a table is to be replaced.
    """
    before = f"{earlier.rstrip().rstrip(';')}\n;\n"  # it may end in a comment
    own = signatures(given_functions(functions))
    try:
        script = parse_script(before + text, functions=own, begin=len(before))
        tables: set[str] = set()
        errors = list(script.errors)
        for statement in script.statements:
            if not isinstance(statement, CreateTable):
                continue
            name = Name(statement.relation.name)
            if statement.at >= len(before) and statement.replace and name in tables:
                errors.append(
                    UnsupportedError(
                        f"table {name} cannot be replaced here: it has rows, and views that read them",
                        feature="CREATE OR REPLACE TABLE",
                        hint="Give the new table another name, or begin anew with another script.",
                        **script.source.place(statement.at),
                    )
                )
            tables.add(name)
        if errors:
            raise SqlError.together(errors)
        program = compile_script(script, CompilerOptions(keep=keep, size=size))
        return script.source.text, declare_functions(program, own)
    except RecursionError:
        raise too_deep(text=text) from None


@gc_paused()
def compile_script(script: Script, options: CompilerOptions) -> Program:
    """Compile a parsed script: bind, materialise, lower."""
    declared = declarations(script)
    bound, derived, cubes = _bind_views(declared)
    levels = Levels(cubes, declared, derived)
    bound += levels.bind_kept()
    if declared.errors:
        raise SqlError.together(declared.errors)
    tables = {table.name: table for table in declared.tables.values()}
    if options.enforced:
        tables = mark_enforced(tables, options.rely, partial(keeps_rows, options=options))
    trusted = trusting(tables, options.rely)
    equal = levels.bind_equal(bound, trusted)
    orders = ViewOrders(declared, options)
    orders.lower_wide(bound, derived, trusted)
    kept_tables = [table for table in tables.values() if keeps_rows(table, options)]
    while True:
        materializer = Materializer(trusted, options, derived)
        try:
            planned = [(view, _add_view(view, materializer, options, orders.of[view.name])) for view in bound]
            for view, cube in equal:
                if is_kept(view, materializer, orders.of[cube]):
                    planned.append((view, _add_view(view, materializer, options, orders.of[cube])))
            kept = {table.name: _keep_rows(table, materializer) for table in kept_tables}
            materializer.run()
            break
        except ExcessError as excess:
            orders.lower_largest(excess)
        except RecursionError:
            raise too_deep(**script.source.place(declared.views[materializer.view].at)) from None
    orders.warn()
    groups, rules = without_circles(materializer.groups, materializer.rules)
    _name_maps(groups, planned, kept, tables)
    definitions = tuple(_view_definition(view, columns) for view, columns in planned)
    program = lower(tables, groups, rules, definitions, kept, derived)
    program = replace(program, cubes=levels.definitions({view.name for view in program.views}))
    check_strict(program, declared.views.values(), script.source)
    return program


def _bind_views(declared: Declarations) -> tuple[list[BoundView], Registry, list[BoundCube]]:
    """Bind all views; what is wrong with one is added to the errors, and does not keep the others from being bound."""
    derived = Registry()
    seen: dict[str, CreateView] = {}
    bound = []
    cubes: list[BoundCube] = []
    for view in declared.views.values():
        source = replace(declared.source, first=view.at)
        if declared.broken.isdisjoint(tables_read(view.query)):
            try:
                if view.cube is not None:
                    check_cube(view, source)
                bound.append(bind_view(view, declared.tables, source, dict(seen), derived))
                _refuse_wide(bound[-1], derived, source)
                if view.cube is not None:
                    cubes.append(BoundCube(view, bound[-1], source))
                    cubes[-1].check()
            except SqlError as problem:
                declared.errors.append(problem)
                declared.broken.add(view.name)
            except RecursionError:
                declared.errors.append(too_deep(**source.place(view.at)))
                declared.broken.add(view.name)
        else:
            declared.broken.add(view.name)
        seen[view.name] = view
    return bound, derived, cubes


def _refuse_wide(view: BoundView, derived: Registry, source: SqlText) -> None:
    """Refuse a self-join whose deltas, one for every subset of the copies, would never end."""
    terms = [*(each.term for each in view.sums), *(each.term for each in view.ends)]
    terms += [body for each in derived for body in each.bodies]
    names = Counter[str]()
    for monomial in (monomial for term in terms for monomial in monomials(term)):
        names |= Counter(factor.name for factor in monomial.factors if isinstance(factor, Atom))
    for name, copies in names.items():
        if copies > MAX_COPIES:
            raise UnsupportedError(
                f"{view.name} joins {name} with itself {copies} times over; {MAX_COPIES} is the most that compiles",
                feature="wide self-join",
                hint="Aggregate or filter the table in a table of its own first.",
                **source.place(view.at),
            )


@dataclass(frozen=True, slots=True)
class PlannedView:
    """Columns of a compiled view: for each name the column, and the definition's keys in the map's key order."""

    columns: dict[str, tuple[MaintainedNumber, tuple[str, ...]]]
    reads: dict[str, tuple[MaintainedNumber, tuple[str, ...]]]
    """The same for ends, and for the numbers of sub-queries that are read with the view."""


def _add_view(view: BoundView, materializer: Materializer, options: CompilerOptions, order: int | None) -> PlannedView:
    """Add the columns of one view: the count of rows first, the other sums in the same map."""
    planned = PlannedView({}, {})
    materializer.view = view.name
    home: tuple[ColumnGroup, tuple[str, ...]] | None = None
    for summed in view.sums:
        if summed.name == view.count and not options.counts and not _asked_for(view, view.count):
            continue
        column, listed = materializer.add(
            view.group,
            monomials(summed.term),
            home=home if options.payloads else None,
            order=order,
            hint=summed.name,
        )
        if home is None:
            home = (column.group, listed)
        column.counts = column.counts or summed.name == view.count
        column.group.of_view = options.counts
        planned.columns[summed.name] = (column, listed)
    for end in view.ends:
        keys = ordered((*view.group, end.variable))
        planned.reads[end.name] = materializer.add(keys, monomials(end.term), order=order)
    for lookup in view.lookups:
        for each in lookup.derived.numbers:
            planned.reads[each.name] = materializer.add_number(lookup.derived, each, {}, order)
    return planned


def _asked_for(view: BoundView, name: str) -> bool:
    scalars = [*view.select, *([view.having] if view.having else []), *(item.expression for item in view.order_by)]
    return view.repeat is not None or len(view.sums) == 1 or any(name in variables_of(scalar) for scalar in scalars)


def keeps_rows(table: Table, options: CompilerOptions) -> bool:
    """Whether a table's rows are kept (docs/architecture.md, "Kept rows")."""
    wanted = table.keep if table.keep != "auto" else options.keep
    if wanted != "auto":
        return wanted == "all"
    return bool(table.key) and not table.key_rely


def _keep_rows(table: Table, materializer: Materializer) -> ColumnGroup:
    columns = tuple(map(folded, table.column_names))
    body = [Monomial(1, (Atom(table.name, columns),))]
    group = ColumnGroup(len(columns), f"rows of {table.name}", of_view=True)
    materializer.groups.append(group)
    materializer.add(columns, body, home=(group, columns), hint="n")
    return group


def _name_maps(
    groups: list[ColumnGroup],
    planned: list[tuple[BoundView, PlannedView]],
    kept: Mapping[str, ColumnGroup],
    tables: Mapping[str, Table],
) -> None:
    """Name every map once: after its view or its table, or by a number."""
    taken = {*map(folded, tables), *(folded(view.name) for view, _ in planned)}

    def name(group: ColumnGroup, wanted: str) -> None:
        number = 2
        group.name = wanted
        while folded(group.name) in taken:
            group.name, number = f"{wanted}_{number}", number + 1
        taken.add(folded(group.name))

    for view, columns in planned:
        for index, group in enumerate(dict.fromkeys(column.group for column, _ in columns.columns.values())):
            if not group.name and index == 0:
                group.name = view.name
            elif not group.name:
                name(group, f"{view.name}_{index + 1}")
    for table, group in kept.items():
        name(group, f"{table}_rows")
    number = 0
    for group in groups:
        while not group.name:
            number += 1
            if f"m{number}" not in taken:
                group.name = f"m{number}"
        name_columns(group)


def _view_definition(view: BoundView, planned: PlannedView) -> ViewDef:
    """Return the finishing step over the names of keys and columns."""
    first, order = next(iter(planned.columns.values()))
    keys = first.group.columns[0].keys
    names: dict[str, Term] = {mine: Var(theirs) for mine, theirs in zip(order, keys, strict=True)}
    maps = list(dict.fromkeys(column.group.name for column, _ in planned.columns.values()))
    for name, (column, _) in planned.columns.items():
        names[name] = Var(column.hint if column.group is first.group else f"{column.group.name}.{column.hint}")
    for end in view.ends:
        names[end.name] = _end_read(end, planned, names)
    for lookup in view.lookups:
        what = lookup.derived
        given: dict[str, Term] = {
            key: substitute(arg, names) for key, arg in zip(what.keys, lookup.args[: len(what.keys)], strict=True)
        }
        inside = dict(given)
        for each in what.sums:
            column, key_order = planned.reads[each.name]
            inside[each.name] = MapRead(column.group.name, column.hint, tuple(given[key] for key in key_order))
        for end in what.ends:
            inside[end.name] = _end_read(end, planned, given)
        for out, (_, scalar) in zip(lookup.outs, what.columns, strict=True):
            names[out] = substitute(scalar, inside)
    bound = ViewDef(
        name=view.name,
        columns=view.columns,
        maps=tuple(maps),
        select=view.select,
        where=view.having,
        repeat=view.repeat,
        order_by=view.order_by,
        limit=view.limit,
        offset=view.offset,
    )
    return bound.rewritten(lambda scalar: substitute(scalar, names))


def _end_read(end: ExtremumRelation, planned: PlannedView, names: Mapping[str, Term]) -> MapExtremum:
    column, order = planned.reads[end.name]
    return MapExtremum(end.end, column.group.name, tuple(None if key == end.variable else names[key] for key in order))
