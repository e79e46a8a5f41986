"""CREATE STRICT VIEW: a view that must be kept by changes alone, or not compile.

A strict view is refused if a part of it is computed anew (`:=`), or if an event makes a statement scan a whole map
because it depends on a nested aggregate which entries count, so that no domain of the change could be found. A scan
that a plain join asks for, such as one with nothing but an inequality, is what the view says; it is no reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from cumulus.errors import UnsupportedError
from cumulus.explain.cost import CostClass, Costs, StatementCost
from cumulus.explain.view_costs import reasons_of
from cumulus.m3.program import Program
from cumulus.sql.ast import CreateView, Derived, Select, SetOperation, SqlCall, Subquery, TableRef
from cumulus.sql.source import SqlText

_NAMES = {"exists": "EXISTS (SELECT …)", "in": "IN (SELECT …)", "any": "ANY (SELECT …)", "all": "ALL (SELECT …)"}
_ENDS = ("min", "max")


def check_strict(program: Program, views: Iterable[CreateView], source: SqlText) -> None:
    """Refuse those of all views of a script that are strict and not kept by changes alone by its program.

    Raises
    ------
    UnsupportedError
        Naming the construct, its place, and the statement.

    Examples
    --------
    >>> from cumulus.compiler import compile_sql
    >>> view = "CREATE STRICT VIEW v AS SELECT a FROM r WHERE a < (SELECT SUM(a) FROM r)"
    >>> try:
    ...     program = compile_sql(f"CREATE TABLE r (a INT); {view}")
    ... except UnsupportedError as problem:
    ...     print(problem.feature, "at column", problem.column)
    a sub-query at column 83
    """
    strict = [view for view in views if view.strict]
    if not strict:
        return
    costs = Costs(program)
    for view in strict:
        for cost in costs.of_view(program.view(str(view.name))):
            if is_refused(cost):
                raise _refusal(view, cost, source)


def is_refused(cost: StatementCost) -> bool:
    """Whether a statement has no place behind a strict view."""
    is_anew = cost.cost is CostClass.REEVALUATION
    return is_anew or any(read.cost is CostClass.SCAN and read.nested for read in cost.reads)


def _refusal(view: CreateView, cost: StatementCost, source: SqlText) -> UnsupportedError:
    what, at = _construct(view, cost.trigger.relation)
    reason = next(
        reason for reason in reasons_of(cost) if cost.cost is CostClass.REEVALUATION or ": the nested term " in reason
    )
    return UnsupportedError(
        f"{view.name} is STRICT, but {what} is not kept by changes alone: "
        f"on a change of {cost.trigger.relation}, {reason}",
        feature=what,
        hint="Leave out STRICT, or write the view without it.",
        **source.place(at if at >= 0 else view.at),
    )


def _construct(view: CreateView, relation: str) -> tuple[str, int]:
    """Return the construct of a view that a change of a relation gets into, and its place.

    That is the first nested query that reads the relation; without one the first nested query; else a MIN or MAX.
    """
    nested = [node for node in _nodes(view.query) if isinstance(node, (Subquery, Derived))]
    reading = [
        node for node in nested if any(isinstance(n, TableRef) and n.name == relation for n in _nodes(node.query))
    ]
    for node in (*reading, *nested):
        if isinstance(node, Derived):
            return "a query in FROM", node.at
        return _NAMES.get(node.kind, "a sub-query"), node.at
    for node in _nodes(view.query):
        match node:
            case SetOperation(op, _):
                return op.upper(), node.at
            case SqlCall(name) if name.lower() in _ENDS:
                return name.upper(), node.at
            case Select(distinct=True):
                return "SELECT DISTINCT", node.at
            case _:
                continue
    return "its query", view.at


def _nodes(node: Any) -> Iterator[Any]:
    """Yield a node of a parsed query and all below it, in the order of the text."""
    if isinstance(node, tuple):
        for item in node:
            yield from _nodes(item)
    elif is_dataclass(node):
        yield node
        for each in fields(node):
            yield from _nodes(getattr(node, each.name))
