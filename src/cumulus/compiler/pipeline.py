"""SQL to M3: the compiler as a visible row of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cumulus.algebra.scope import ordered, substitute, variables_of
from cumulus.algebra.terms import MapEnd, MapRead, Relation, Term, Var
from cumulus.algebra.user import Functions, given_functions, signatures
from cumulus.calculus.derived import Ended, Registry
from cumulus.calculus.polynomial import Monomial, monomials
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.columns import Column, Group
from cumulus.compiler.functions import declare_functions
from cumulus.compiler.lower import lower, name_columns, ordering
from cumulus.compiler.materialize import Materializer
from cumulus.compiler.options import PAPER, Options
from cumulus.compiler.strict import check_strict
from cumulus.errors import BindError, InputError, UnsupportedError
from cumulus.m3.program import Program, ViewDef
from cumulus.sql.ast import CreateTable, CreateView, DropView, Script
from cumulus.sql.parse import parse_script, too_deep
from cumulus.sql.source import Source
from cumulus.sql.translate import BoundView, bind_view

MAX_COPIES = 10
"""How often a view may join one table with itself: the delta has a term for every subset of the copies."""


def compile_sql(
    text: str | Path,
    *,
    name: str = "",
    keep: str = "auto",
    rely: bool = True,
    form: str = "",
    batches: bool = True,
    functions: Functions | None = None,
    order: int | None = None,
    size: int = 1,
    trace: Callable[[str], None] | None = None,
) -> Program:
    """Compile a script of CREATE TABLE and CREATE VIEW statements to one M3 program.

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
    form
        "paper" leaves out what the programs printed in the papers do not have.
    batches
        Whether `ON BATCH` triggers are written.
    functions
        Scalar functions of your own that the script may call (`cumulus.function`, docs/functions.md).
    order
        How views are kept that do not say it: `Options.order`.
    size
        Multiplies the limits of what a program may be (`Options.size`).
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
    if isinstance(text, Path):
        name = name or text.name
        try:
            text = text.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise InputError(f"cannot read {name}: {problem}", hint="Give the path of a UTF-8 SQL file.") from None
    options = replace(PAPER, rely=rely) if form == "paper" else Options(rely=rely, keep=keep, batches=batches)
    options = replace(options, order=order, trace=trace, size=size)
    try:
        own = signatures(given_functions(functions))
        return declare_functions(compile_script(parse_script(text, name, own), options), own)
    except RecursionError:
        raise too_deep(text=text, name=name) from None


def compile_script(script: Script, options: Options) -> Program:
    """Compile a parsed script: bind, materialise, lower."""
    tables, views = declarations(script)
    derived = Registry()
    seen: dict[str, CreateView] = {}
    bound = []
    for view in views:
        bound.append(bind_view(view, tables, script.source, dict(seen), derived))
        seen[view.name] = view
        _refuse_wide(bound[-1], derived, script.source)
    orders = {"": options.order, "full": None, "0": 0, "1": 1}
    program = compile_views(tables, bound, options, derived, {view.name: orders[view.order] for view in views})
    check_strict(program, views, script.source)
    return program


def _refuse_wide(view: BoundView, derived: Registry, source: Source) -> None:
    """Refuse a self-join whose deltas, one for every subset of the copies, would never end."""
    terms = [*(each.term for each in view.sums), *(each.term for each in view.ends)]
    terms += [body for each in derived for body in each.bodies]
    names = Counter[str]()
    for monomial in (monomial for term in terms for monomial in monomials(term)):
        names |= Counter(factor.name for factor in monomial.factors if isinstance(factor, Relation))
    for name, copies in names.items():
        if copies > MAX_COPIES:
            raise UnsupportedError(
                f"{view.name} joins {name} with itself {copies} times over; {MAX_COPIES} is the most that compiles",
                feature="wide self-join",
                hint="Aggregate or filter the table in a table of its own first.",
                **source.place(view.at),
            )


def declarations(script: Script) -> tuple[dict[str, Table], list[CreateView]]:
    """Return the tables and the views that a script leaves behind, with their keys resolved."""
    tables: dict[str, Table] = {}
    views: dict[str, CreateView] = {}
    for statement in script.statements:
        place = script.source.place(statement.at)
        match statement:
            case CreateTable(relation, _):
                if relation.name in tables or relation.name in views:
                    raise BindError(f"{relation.name} is there already", hint="Give the table another name.", **place)
                tables[relation.name] = relation
            case CreateView(name):
                if name in tables or (name in views and not statement.replace):
                    raise BindError(f"{name} is there already", hint="Write CREATE OR REPLACE VIEW.", **place)
                views[name] = statement
            case DropView(name, if_exists, _):
                if name not in views and not if_exists:
                    raise BindError(f"no view {name} to drop", **place)
                views.pop(name, None)
    places = {s.relation.name: script.source.place(s.at) for s in script.statements if isinstance(s, CreateTable)}
    return {name: _resolved(table, tables, places[name]) for name, table in tables.items()}, list(views.values())


def _resolved(table: Table, tables: Mapping[str, Table], place: dict[str, Any]) -> Table:
    """Fill in what a FOREIGN KEY leaves unsaid, and check that its parent is there."""
    references = []
    for reference in table.foreign_keys:
        parent = tables.get(reference.parent)
        if parent is None:
            raise BindError(
                f"{table.name} refers to {reference.parent}, which is not there", hint="Declare the parent.", **place
            )
        columns = reference.parent_columns or parent.key
        if set(columns) != set(parent.key) or len(columns) != len(reference.columns):
            raise BindError(
                f"{table.name} must refer to the primary key of {parent.name}",
                hint=f"Its primary key is ({', '.join(parent.key)})." if parent.key else "It has no primary key.",
                **place,
            )
        references.append(replace(reference, parent_columns=columns))
    return replace(table, foreign_keys=tuple(references))


def compile_views(
    tables: Mapping[str, Table],
    views: Iterable[BoundView],
    options: Options,
    derived: Registry,
    orders: Mapping[str, int | None],
) -> Program:
    """Compile bound views, all together; `orders` says how each is kept."""
    materializer = Materializer(tables, options, derived)
    planned = [(view, _materialize(view, materializer, options, orders[view.name])) for view in views]
    kept = {name: _keep(table, materializer) for name, table in tables.items() if keeps(table, options)}
    materializer.run()
    _name(materializer.groups, planned, kept, tables)
    definitions = tuple(_view(view, columns) for view, columns in planned)
    return lower(tables, materializer.groups, materializer.rules, definitions, kept, derived, options)


@dataclass(frozen=True, slots=True)
class Planned:
    """Where a view's numbers are: for each name the column, and the definition's keys in the order of its map's."""

    columns: dict[str, tuple[Column, tuple[str, ...]]]
    reads: dict[str, tuple[Column, tuple[str, ...]]]
    """The same for ends, and for the numbers of sub-queries that are read with the view."""


def _materialize(view: BoundView, materializer: Materializer, options: Options, order: int | None) -> Planned:
    """Add the columns of one view: the count of rows first, the other sums in the same map."""
    planned = Planned({}, {})
    home: tuple[Group, tuple[str, ...]] | None = None
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


def keeps(table: Table, options: Options) -> bool:
    """Whether a table's rows are kept (architecture.md, "Kept rows")."""
    wanted = table.keep if table.keep != "auto" else options.keep
    if wanted != "auto":
        return wanted == "all"
    return bool(table.key) and not table.key_rely


def _keep(table: Table, materializer: Materializer) -> Group:
    columns = tuple(column.name for column in table.columns)
    body = [Monomial(1, (Relation(table.name, columns),))]
    group = Group(len(columns), f"rows of {table.name}", of_view=True)
    materializer.groups.append(group)
    materializer.add(columns, body, home=(group, columns), hint="n")
    return group


def _name(
    groups: list[Group],
    planned: list[tuple[BoundView, Planned]],
    kept: Mapping[str, Group],
    tables: Mapping[str, Table],
) -> None:
    """Name every map once: after its view or its table, or by a number."""
    taken = {*tables, *(view.name for view, _ in planned)}

    def name(group: Group, wanted: str) -> None:
        number = 2
        group.name = wanted
        while group.name in taken:
            group.name, number = f"{wanted}_{number}", number + 1
        taken.add(group.name)

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


def _view(view: BoundView, planned: Planned) -> ViewDef:
    """Return the finishing step over the names of keys and columns."""
    first, order = next(iter(planned.columns.values()))
    keys = first.group.columns[0].keys
    names: dict[str, Term] = {mine: Var(theirs) for mine, theirs in zip(order, keys, strict=True)}
    maps = list(dict.fromkeys(column.group.name for column, _ in planned.columns.values()))
    for name, (column, _) in planned.columns.items():
        names[name] = Var(column.hint if column.group is first.group else f"{column.group.name}.{column.hint}")
    for end in view.ends:
        names[end.name] = _end(end, planned, names)
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
            inside[end.name] = _end(end, planned, given)
        for out, (_, scalar) in zip(lookup.outs, what.columns, strict=True):
            names[out] = substitute(scalar, inside)
    return ViewDef(
        name=view.name,
        columns=view.columns,
        maps=tuple(maps),
        select=tuple(substitute(scalar, names) for scalar in view.select),
        where=None if view.having is None else substitute(view.having, names),
        repeat=None if view.repeat is None else substitute(view.repeat, names),
        order_by=ordering(view.order_by, names),
        limit=view.limit,
        offset=view.offset,
    )


def _end(end: Ended, planned: Planned, names: Mapping[str, Term]) -> MapEnd:
    column, order = planned.reads[end.name]
    return MapEnd(end.end, column.group.name, tuple(None if key == end.variable else names[key] for key in order))
