"""Definitions of maps as SQL over the base tables: for initial loads, checks and documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cumulus.algebra.printing import quoted
from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Atom, Compare, Lift, Term, Var, factors_of, sum_of
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, Registry, SumRelation
from cumulus.calculus.polynomial import Monomial, monomials
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.statements.definitions import in_binding_order
from cumulus.compiler.statements.factors import compared_with
from cumulus.scalars.duckdb_text import ScalarText
from cumulus.sql.syntax.words import RESERVED


def definition_sql(
    values: Sequence[str],
    keys: Sequence[str],
    bodies: Sequence[Sequence[Monomial]],
    tables: Mapping[str, Table],
    derived: Registry,
) -> str:
    """Return a SELECT of keys and values that computes a map from the base tables; a body is the sum of one value.

    Examples
    --------
    >>> from cumulus.algebra.terms import Const
    >>> from cumulus.catalog.schema import Column
    >>> from cumulus.catalog.types import BIGINT
    >>> table = Table("r", (Column("a"), Column("b")))
    >>> body = [Monomial(1, (Atom("r", ("x", "y")), Compare(">", Var("y"), Const(1, BIGINT)), Var("y")))]
    >>> print(definition_sql(["total"], ["x"], [body], {"r": table}, Registry()))
    SELECT t0.a AS x, SUM(COALESCE(t0.b, 0)) AS total FROM r t0 WHERE (t0.b > 1) IS TRUE GROUP BY t0.a
    """
    columns = [_Column(name, body) for name, body in zip(values, bodies, strict=True)]
    return _grouped_select(columns, keys, _Context(tables, derived, "t", {}))


class _Column(NamedTuple):
    """A sum, or an end of a variable, over the rows of a body."""

    name: str
    body: Sequence[Monomial]
    end: str = ""
    variable: str = ""

    def total(self, value: str) -> str:
        return f"{self.end or 'SUM'}({value}) AS {_quoted(self.name)}"

    def value(self, part: _Parts) -> str:
        return part.bound[self.variable] if self.end else part.number


def _columns_of(numbers: Iterable[SumRelation | ExtremumRelation]) -> list[_Column]:
    return [
        _Column(
            each.name, monomials(each.term), *((each.end, each.variable) if isinstance(each, ExtremumRelation) else ())
        )
        for each in numbers
    ]


@dataclass(frozen=True, slots=True)
class _Context:
    """What a SELECT may refer to; `prefix` starts the aliases of its tables, `outer` are variables from outside."""

    tables: Mapping[str, Table]
    derived: Registry
    prefix: str
    outer: Mapping[str, str]


def _grouped_select(columns: Sequence[_Column], keys: Sequence[str], context: _Context) -> str:
    """Return a SELECT of keys and columns."""
    parts = [
        (index, _Parts(monomial, replace(context, prefix=f"{context.prefix}{'' if not place else f'{place}_'}")))
        for index, column in enumerate(columns)
        for place, monomial in enumerate(column.body)
    ]
    if not parts:
        names = (*keys, *(column.name for column in columns))
        nothing = ", ".join(f"CAST(NULL AS BIGINT) AS {_quoted(name)}" for name in names)
        return f"SELECT {nothing} FROM (SELECT 1) AS one WHERE FALSE"
    first = parts[0][1]
    is_one_each = [index for index, _ in parts] == list(range(len(columns)))
    if is_one_each and all(part.source == first.source and part.bound == first.bound for _, part in parts):
        shown = [f"{first.bound[key]} AS {_quoted(key)}" for key in keys]
        shown += [column.total(column.value(part)) for column, (_, part) in zip(columns, parts, strict=True)]
        group = f" GROUP BY {', '.join(_no_position(first.bound[key]) for key in keys)}" if keys else ""
        return f"SELECT {', '.join(shown)} {first.source}{group}"
    selects = []
    for index, part in parts:
        shown = [f"{part.bound[key]} AS {_quoted(key)}" for key in keys]
        for at, column in enumerate(columns):
            cell = column.value(part) if at == index else "NULL" if column.end else "0"
            shown.append(f"{cell} AS {_quoted(column.name)}")
        selects.append(f"SELECT {', '.join(shown)} {part.source}")
    named = [_quoted(key) for key in keys]
    totals = ", ".join([*named, *(column.total(_quoted(column.name)) for column in columns)])
    group = f" GROUP BY {', '.join(named)}" if keys else ""
    return f"SELECT {totals} FROM ({' UNION ALL '.join(selects)}) AS u{group}"


def _no_position(text: str) -> str:
    """Return a key such that GROUP BY does not take an integer for the place of a column."""
    return f"CAST({text} AS BIGINT)" if text.lstrip("-").isdigit() else text


class _Parts(ScalarText):
    """One monomial as the pieces of a SELECT: where its variables come from, its FROM and WHERE, its number."""

    def __init__(self, monomial: Monomial, context: _Context) -> None:
        super().__init__(context.outer, ())
        self._froms: list[str] = []
        self._aliases: dict[str, int] = {}
        self._wheres: list[str] = []
        numbers = [] if monomial.coefficient == 1 else [str(monomial.coefficient)]
        for index, factor in enumerate(in_binding_order(monomial.factors, frozenset(context.outer), context.derived)):
            alias = f"{context.prefix}{index}"
            match factor:
                case Atom(name, variables):
                    what = context.derived.get(name)
                    if what is None:
                        self._add_table(_quoted(name), alias, variables, context.tables[name])
                    elif not self._join_running_sums(what, factor, alias, context):
                        inside = replace(context, prefix=f"{alias}_", outer={})
                        self._add_table(_row_sql(what, factor, self.bound, inside), alias, variables, what.table())
                case Lift(variable, inner) if variable in self.bound:
                    self._wheres.append(f"{self.bound[variable]} IS NOT DISTINCT FROM {self.scalar(inner)}")
                case Lift(variable, inner):
                    self.bound[variable] = self.scalar(inner)
                case Compare(op, left, right):
                    self._wheres.append(self.comparison(op, left, right))
                case _:
                    numbers.append(self.value(factor))
        self.number = " * ".join(numbers) or "1"
        self.source = f"FROM {', '.join(self._froms) or '(SELECT 1) AS one'}"
        if self._wheres:
            self.source += f" WHERE {' AND '.join(self._wheres)}"

    def _add_table(self, source: str, alias: str, variables: tuple[str, ...], table: Table) -> None:
        """Add a table to FROM; a variable that is known already is an equality."""
        self._aliases[alias] = len(self._froms)
        self._froms.append(f"{source} {alias}")
        for variable, column in zip(variables, table.columns, strict=True):
            place = f"{alias}.{_quoted(column.name)}"
            known = self.bound.setdefault(variable, place)
            if known != place:
                safe = column.not_null or variable in self.not_null
                self._wheres.append(f"{known} {'=' if safe else 'IS NOT DISTINCT FROM'} {place}")
            if column.not_null:
                self.not_null.add(variable)

    def _join_running_sums(self, what: DerivedRelation, atom: Atom, alias: str, context: _Context) -> bool:
        """Look up sums over a range as the running sum that stands next to its end; False if they are others.

        DuckDB would compare all rows with all.
        """
        at = None if context.outer else _range_of(what)
        if at is None:
            return False
        given = dict(zip(what.parameters, atom.variables, strict=True))
        place = self.bound.get(given[what.inputs[0]], "")
        source = place.partition(".")[0]
        if source not in self._aliases:
            return False
        key, op, sums = at
        names = [_quoted(each.name) for each in sums]
        running = ", ".join(f"SUM({name}) OVER before AS {name}" for name in names)
        axis, order = _quoted(key), "DESC" if op.startswith(">") else "ASC"
        grouped = _grouped_select(_columns_of(sums), [key], replace(context, prefix=f"{alias}_"))
        self._froms[self._aliases[source]] += (
            f" ASOF LEFT JOIN (SELECT {axis}, {running} FROM ({grouped}) {alias}_g"
            f" WHERE {axis} IS NOT NULL WINDOW before AS (ORDER BY {axis} {order})) {alias}"
            f" ON {alias}.{axis} {op} {place}"
        )
        found = {each.name: f"COALESCE({alias}.{_quoted(each.name)}, 0)" for each in sums}
        row = _Parts(Monomial(1, ()), replace(context, outer={**found, what.inputs[0]: place}))
        texts = {name: row.scalar(scalar) for name, scalar in what.columns}
        for column in what.table().columns:
            variable = given[column.name]
            if column.not_null and column.name in texts:
                self.not_null.add(variable)
            text = texts.get(column.name, place)
            known = self.bound.setdefault(variable, text)
            if known != text:
                self._wheres.append(f"{known} IS NOT DISTINCT FROM {text}")
        for test in factors_of(what.where):
            if isinstance(test, Compare):
                self._wheres.append(row.comparison(test.op, test.left, test.right))
        return True


def _range_of(what: DerivedRelation) -> tuple[str, str, list[SumRelation]] | None:
    """Return how the sums of a look-up depend on its one input, if all do so by the same comparison alone.

    That is an axis, an operator and sums by the axis, of which the rows with `axis op input` are wanted.
    """
    if not what.is_lookup or what.keys or what.ends or len(what.inputs) != 1:
        return None
    (given,) = what.inputs
    ways: set[tuple[str, str]] = set()
    sums: list[SumRelation] = []
    for each in what.sums:
        free: list[Term] = []
        for monomial in monomials(each.term):
            mine = [factor for factor in monomial.factors if given in variables_of(factor)]
            if len(mine) != 1 or each.type.is_float:
                return None
            match compared_with(Var(given), mine[0]):
                case (Var(axis), op) if axis != given:
                    ways.add((axis, op))
                case _:
                    return None
            rest = [factor for factor in monomial.factors if factor is not mine[0]]
            free.append(Monomial(monomial.coefficient, tuple(rest)).term())
        sums.append(replace(each, term=sum_of(free)))
    if len(ways) != 1:
        return None
    ((axis, op),) = ways
    return axis, op, sums


def _row_sql(what: DerivedRelation, atom: Atom, bound: Mapping[str, str], context: _Context) -> str:
    """Return a query of the rows of a derived relation; one that is a look-up refers to the tables to its left."""
    given = dict(zip(what.parameters, atom.variables, strict=True))
    inputs = {name: bound[given[name]] for name in what.inputs}
    columns = _columns_of(what.numbers)
    inner = f"({_grouped_select(columns, what.keys, replace(context, outer=inputs))}) {context.prefix}g"
    names = {name: f"{context.prefix}g.{_quoted(name)}" for name in (*what.keys, *(c.name for c in columns))}
    if what.is_lookup:
        totals = [f"COALESCE(SUM({names[each.name]}), 0) AS {_quoted(each.name)}" for each in what.sums]
        totals += [column.total(names[column.name]) for column in columns if column.end]
        wanted = [f"{names[key]} IS NOT DISTINCT FROM {bound[given[key]]}" for key in what.keys]
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        inner = f"(SELECT {', '.join(totals)} FROM {inner}{where}) {context.prefix}h"
        names = {column.name: f"{context.prefix}h.{_quoted(column.name)}" for column in columns}
        names |= {key: bound[given[key]] for key in what.keys}
    parts = _Parts(Monomial(1, ()), replace(context, outer=names | inputs))
    shown = [f"{parts.bound[name]} AS {_quoted(name)}" for name in (*what.keys, *what.inputs)]
    shown += [f"{parts.scalar(scalar)} AS {_quoted(name)}" for name, scalar in what.columns]
    tests = factors_of(what.where)
    told = [parts.comparison(test.op, test.left, test.right) for test in tests if isinstance(test, Compare)]
    where = f" WHERE {' AND '.join(told)}" if told else ""
    lateral = "LATERAL " if what.is_lookup or inputs else ""
    return f"{lateral}(SELECT {', '.join(shown) or '1 AS one'} FROM {inner}{where})"


_WORDS = """
    anti asof at authorization binary by collation columns concurrently cross freeze full generated glob ilike inner
    is isnull join left like map natural notnull outer overlaps positional right semi similar struct tablesample
    try_cast tuple unpack verbose
"""
_RESERVED = RESERVED.union(_WORDS.split())
"""Words that DuckDB does not take for the name of a column, unless they are quoted."""


def _quoted(name: str) -> str:
    is_plain = name.isidentifier() and name.islower() and name.isascii() and name not in _RESERVED
    return name if is_plain else quoted(name)
