"""FROM: tables, queries and joins to the branches and names of a scope."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.algebra.scope import ordered, substitute, variables_of
from cumulus.algebra.terms import ONE, Apply, Atom, Const, Scalar, Var, number
from cumulus.catalog.names import Name
from cumulus.catalog.types import BIGINT
from cumulus.scalars.typing import Typed
from cumulus.sql.ast import Derived, FromItem, Join, Query, TableRef
from cumulus.sql.binding.aggregates import one_group
from cumulus.sql.binding.bind import Binder
from cumulus.sql.binding.branches import MAX_BRANCHES
from cumulus.sql.binding.conditions import conjuncts
from cumulus.sql.binding.groups import derive_relation
from cumulus.sql.binding.scalar_calls import ScalarCalls
from cumulus.sql.binding.scope import Branch, Queries, Scope, ScopeTable, SubqueryLookup, tables_showing
from cumulus.sql.source import SqlText


def open_from(scope: Scope, items: tuple[FromItem, ...]) -> None:
    """Add the items of FROM to a scope."""
    for item in items:
        scope.branches = _product(scope, scope.branches, _item(scope, item), item.at)


def _product(scope: Scope, left: list[Branch], right: list[Branch], at: int) -> list[Branch]:
    if len(left) * len(right) > MAX_BRANCHES:
        raise scope.context.refuse(
            f"a FROM clause of more than {MAX_BRANCHES} branches",
            at,
            "Split the outer joins or unions into several views.",
        )
    return [one.joined(other) for one in left for other in right]


def _item(scope: Scope, item: FromItem) -> list[Branch]:
    """Return the branches of an item; its tables are added to the scope."""
    match item:
        case TableRef(name, alias, at):
            return _table(scope, name, alias, at)
        case Derived(query, alias, columns, at):
            return _query(scope, query, alias, columns, at)
        case Join():
            return _join(scope, item)


def _add_table(scope: Scope, table: ScopeTable, at: int) -> None:
    if table.alias and any(known.alias == table.alias for known in scope.tables):
        raise scope.source.bind_error(f"two tables called {table.alias} in FROM", at, hint="Give one an alias.")
    scope.tables.append(table)


def _table(scope: Scope, name: str, alias: str, at: int) -> list[Branch]:
    context = scope.context
    if name in scope.queries:
        named, queries = scope.queries[name]
        return _query(scope, named.query, alias, named.columns, at, queries=queries)
    if name in context.views:
        view = context.views[name]
        if name in context.opened:
            raise scope.source.bind_error(f"view {name} reads itself", at)
        opened, context.opened = context.opened, (*context.opened, name)
        branches = _query(scope, view.query, alias, view.columns, at, queries={}, outside=False)
        context.opened = opened
        return branches
    if name not in context.tables:
        there = ", ".join([*scope.queries, *context.tables, *context.views])
        raise scope.source.bind_error(f"no table {name}", at, hint=f"There are {there or 'none'}.")
    columns: dict[str, str] = {}
    for column in context.tables[name].columns:
        assert column.type is not None, "SQL declares every type"
        columns[Name(column.name)] = scope.new_variable(column.name, alias, Typed(column.type, not column.not_null))
    _add_table(scope, ScopeTable(alias, {name: Var(variable) for name, variable in columns.items()}), at)
    return [Branch(atoms=[Atom(context.tables[name].name, tuple(columns.values()))])]


def _query(
    scope: Scope,
    query: Query,
    alias: str,
    names: tuple[str, ...],
    at: int,
    *,
    queries: Queries | None = None,
    outside: bool = True,
) -> list[Branch]:
    """Return the branches of a query in FROM."""
    inner = scope.sibling_in_from()
    if queries is not None:
        inner.queries = queries
    if not outside:
        inner.parent = None
    bag = scope.context.bind_query(inner, query)
    given = unique_names(names, [name for name, _ in bag.columns], alias or "the query", scope.source, at)
    columns = {name: scalar for name, (_, scalar) in zip(given, bag.columns, strict=True)}
    _add_table(scope, ScopeTable(alias, columns), at)
    return bag.scope.branches


def unique_names(given: Sequence[str], own: Sequence[str], what: str, source: SqlText, at: int) -> list[str]:
    """Return the names of the columns; a name that stands twice gets a number, as in DuckDB's tables."""
    if len(given) > len(own):
        raise source.bind_error(f"{what} names {len(given)} columns, its SELECT has {len(own)}", at)
    names: list[str] = []
    for name in [*given, *own[len(given) :]]:
        unique, count = name, 1
        while unique in names:
            unique, count = Name(f"{name}_{count}"), count + 1
        names.append(unique)
    return names


def _join(scope: Scope, join: Join) -> list[Branch]:
    before = len(scope.tables)
    left = _item(scope, join.left)
    middle = len(scope.tables)
    right = _item(scope, join.right)
    lefts, rights = scope.tables[before:middle], scope.tables[middle:]
    outer = join.kind in ("left", "right", "full")
    missing_right = join.kind in ("left", "full")
    missing_left = join.kind in ("right", "full")
    if missing_right:
        right = _as_variables(scope, right, rights)
    if missing_left:
        left = _as_variables(scope, left, lefts)
    # USING makes one name of a column of each side: what is of one side alone is told before.
    of_left, of_right = _variables(lefts), _variables(rights)
    conditions = _join_conditions(scope, join, lefts, rights)
    branches = _product(scope, left, right, join.at)
    for branch in branches:
        branch.where += conditions
    if not outer:
        return branches
    unmatched: list[Branch] = []
    if missing_right:
        unmatched += _unmatched_rows(scope, left, right, of_right, conditions)
    if missing_left:
        unmatched += _unmatched_rows(scope, right, left, of_left, conditions)
    for names, absent in ((of_right, missing_right), (of_left, missing_left)):
        for variable in names if absent else ():
            known = scope.variables[variable]
            for branch in branches:
                branch.known.setdefault(variable, known)
            scope.variables[variable] = Typed(known.type, True)
    return branches + unmatched


def _variables(tables: list[ScopeTable]) -> list[str]:
    """Return the variables that the columns of tables are, and those that USING has made of them."""
    scalars = (s for table in tables for s in (*table.columns.values(), *table.merged.values()))
    return list(dict.fromkeys(scalar.name for scalar in scalars if isinstance(scalar, Var)))


def _as_variables(scope: Scope, branches: list[Branch], tables: list[ScopeTable]) -> list[Branch]:
    """Make each column of tables a variable, so that it can be NULL as a whole."""
    values: dict[str, Scalar] = {}
    for table in tables:
        for columns in (table.columns, table.merged):
            for name, scalar in columns.items():
                if not isinstance(scalar, Var):
                    variable = scope.new_variable(name, table.alias or "of", scope.typed(scalar))
                    values[variable] = scalar
                    columns[name] = Var(variable)
    return _with_values(branches, values)


def set_columns_apart(scope: Scope) -> None:
    """Make each column of a scope a variable of its own, even if it is a constant or the same as another.

    Grouping sets tell columns apart by their names: one may be NULL where its equal is not.
    """
    values: dict[str, Scalar] = {}
    own: set[Scalar] = set()
    for table in scope.tables:
        for name, scalar in table.columns.items():
            if isinstance(scalar, Var) and scalar not in own:
                own.add(scalar)
                continue
            variable = scope.new_variable(name, table.alias or "of", scope.typed(scalar))
            values[variable] = scalar
            table.columns[name] = Var(variable)
            for other in scope.tables:
                if name in table.hidden and other.merged.get(name) is scalar:
                    other.merged[name] = Var(variable)
    scope.branches = _with_values(scope.branches, values)


def _with_values(branches: list[Branch], values: dict[str, Scalar]) -> list[Branch]:
    """Return branches with variables that are scalars over others."""
    if not values:
        return branches
    return [
        one.joined(Branch(values={name: substitute(scalar, one.values) for name, scalar in values.items()}))
        for one in branches
    ]


def _unmatched_rows(
    scope: Scope,
    left: list[Branch],
    right: list[Branch],
    of_right: list[str],
    conditions: list[Scalar],
) -> list[Branch]:
    """Return the rows of `left` that no row of `right` goes with, with NULL for the variables of `right`."""
    inner = scope.inner()
    inside = {name for branch in right for atom in branch.atoms for name in atom.variables}
    inside |= {name for branch in right for name in branch.values} | set(of_right)
    inside |= {out for lookup in scope.lookups for out in lookup.outs}

    def from_here(scalar: Scalar) -> Scalar:
        """Return a scalar with what stands to the left as parameters."""
        outside = {name: inner.parameter(Var(name)) for name in sorted(variables_of(scalar) - inside)}
        return substitute(scalar, outside)

    inner.lookups = [
        SubqueryLookup(each.derived, tuple(map(from_here, each.args)), each.outs) for each in scope.lookups
    ]
    tests = [from_here(condition) for condition in conditions]
    inner.branches = [branch.joined(Branch(where=tests)) for branch in right]
    # The variables are those of the join itself, where less may be known of them.
    grouped, _ = one_group(inner, merging=False)
    out = scope.new_variable("matches", "of", Typed(BIGINT, False))
    derived = derive_relation(grouped, [(out, Var(grouped.count))], ONE, lookup=True)
    given = {variable: outside for outside, variable in inner.parameters.items()}
    args = tuple(given.get(name, Var(name)) for name in (*derived.keys, *derived.inputs))
    scope.lookups.append(SubqueryLookup(derived, args, (out,)))
    absent: dict[str, Scalar] = {name: Const(None, scope.variables[name].type) for name in of_right}
    none = Apply("eq", (Var(out), number(0)))
    return [branch.joined(Branch(where=[none], values=absent)) for branch in left]


def _join_conditions(scope: Scope, join: Join, lefts: list[ScopeTable], rights: list[ScopeTable]) -> list[Scalar]:
    """Return the conditions of a join, and merge the columns that USING or NATURAL name."""
    using = join.using
    if join.natural:
        shared = {name for table in lefts for name in table.columns if table.shows(name)}
        using = ordered(name for table in rights for name in table.columns if table.shows(name) and name in shared)
        if not using:
            told = "the sides of NATURAL JOIN have no column in common"
            raise scope.source.bind_error(told, join.at, hint="Write JOIN … ON.")
    conditions = [_using_condition(scope, name, lefts, rights, join) for name in using]
    if join.on is not None:
        conditions += conjuncts(Binder(scope).truth(join.on, clause="ON"))
    return conditions


def _using_condition(scope: Scope, name: str, lefts: list[ScopeTable], rights: list[ScopeTable], join: Join) -> Scalar:
    """Return the equality that USING (name) means, and merge the two columns into one name."""
    sides = []
    for side in (lefts, rights):
        found = tables_showing(side, name)
        if len(found) != 1:
            raise scope.source.bind_error(
                f"USING ({name}): one side has {'no such column' if not found else 'several such columns'}",
                join.at,
                hint="Write JOIN … ON.",
            )
        sides.append(found[0])
    left, right = sides
    right.hidden.add(name)
    left.leading.add(name)
    first, second = left.bare(name), right.bare(name)
    calls = ScalarCalls(scope)
    if join.kind == "right":
        left.merged[name] = second
    elif join.kind == "full":
        left.merged[name] = calls.apply("coalesce", (first, second), join.at)
    return calls.apply("eq", (first, second), join.at)
