"""Makes a failing script smaller, step by step, as long as it still fails.

Everything works on the generator's own trees, and every candidate is tried in a fixed order, so that a seed always ends
in the same case. Candidates that are no SQL are refused by DuckDB, and so do not count as failing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from cumulus.catalog.events import UPSERT
from fuzz.forms import LITERALS
from fuzz.generator import Script
from fuzz.rows import is_possible
from fuzz.schema import Event, Table, Transaction
from fuzz.tree import Cte, Derived, Expr, Item, Join, Node, Order, Select, SetQuery, Source, TableRef, View, With, walk

Fails = Callable[[Script], bool]


def shrunk(script: Script, fails: Fails, attempts: int = 400) -> Script:
    """Return a smaller script for which `fails` still holds, after at most about so many calls of it."""
    left = [attempts]

    def tried(candidate: Script) -> bool:
        left[0] -= 1
        return fails(candidate)

    whole = replace(script, checks=frozenset(range(len(script.transactions))))
    script = whole if tried(whole) else script
    before = None
    while before != script and left[0] > 0:
        before = script
        for step in (_fewer_views, _fewer_events, _smaller_views, _fewer_events, _smaller_tables):
            script = _descended(script, step, tried, left)
    return script


def _descended(script: Script, step: Callable[[Script], Iterator[Script]], tried: Fails, left: list[int]) -> Script:
    """Take the first candidate of a step that fails, until none does."""
    found = True
    while found and left[0] > 0:
        found = False
        for candidate in step(script):
            if left[0] <= 0:
                break
            if tried(candidate):
                script, found = candidate, True
                break
    return script


# --- views and events -----------------------------------------------------------------------------------------------


def _fewer_views(script: Script) -> Iterator[Script]:
    """Yield scripts without some of the views, or with a view written into another."""
    for view in script.views:
        if len(script.views) > 1:
            used = _needed(script, view)
            if len(used) < len(script.views):
                yield replace(script, views=used)
    for view in reversed(script.views):
        rest = tuple(each for each in script.views if each is not view)
        if rest:
            yield replace(script, views=tuple(_inlined(each, view) for each in rest))


def _needed(script: Script, view: View) -> tuple[View, ...]:
    names = {view.name}
    for each in reversed(script.views):
        if each.name in names:
            names |= {node.name for node in walk(each) if isinstance(node, TableRef)}
    return tuple(each for each in script.views if each.name in names)


def _inlined(view: View, other: View) -> View:
    """Return a view with another one as derived tables."""

    def put(node: Node) -> Node:
        return Derived(other.query, node.alias) if isinstance(node, TableRef) and node.name == other.name else node

    found: View = _mapped(view, put)
    return found


def _mapped(node: Any, put: Callable[[Any], Any]) -> Any:
    """Return a tree with `put` applied to every node, from below."""
    changes: dict[str, Any] = {}
    for each in fields(node):
        value = getattr(node, each.name)
        if isinstance(value, tuple):
            new: Any = tuple(_mapped(child, put) if is_dataclass(child) else child for child in value)
        else:
            new = _mapped(value, put) if is_dataclass(value) else value
        if new != value:
            changes[each.name] = new
    return put(replace(node, **changes) if changes else node)


def _fewer_events(script: Script) -> Iterator[Script]:
    """Yield scripts without some of the events: halves first, single ones and pairs of insert and delete last."""
    yield from _with_events(script, [(event,) for transaction in script.transactions for event in transaction], "event")
    transactions = list(script.transactions)
    for size in (16, 8, 4, 2, 1):
        if size < len(transactions) or size == 1:
            for start in range(len(transactions) - size, -1, -size):
                yield from _with_events(script, transactions[:start] + transactions[start + size :])
    for place, transaction in enumerate(transactions):
        for index in range(len(transaction) if len(transaction) > 1 else 0):
            rest = transaction[:index] + transaction[index + 1 :]
            yield from _with_events(script, [*transactions[:place], rest, *transactions[place + 1 :]])
    for one, first in enumerate(transactions):
        for two in range(one + 1, len(transactions)):
            if len(first) == 1 and transactions[two] == ((-first[0][0], *first[0][1:]),):
                yield from _with_events(script, [t for i, t in enumerate(transactions) if i not in (one, two)])


def _with_events(script: Script, transactions: list[Transaction], mode: str = "") -> Iterator[Script]:
    """Yield the script with another stream, if it is one that can be."""
    mode = mode or script.mode
    if (tuple(transactions), mode) != (script.transactions, script.mode) and is_possible(script.tables, transactions):
        checks = frozenset(range(len(transactions)))
        yield replace(script, transactions=tuple(transactions), mode=mode, checks=checks)


# --- tables ---------------------------------------------------------------------------------------------------------


def _smaller_tables(script: Script) -> Iterator[Script]:
    """Yield scripts without a table, a column or a constraint."""
    used = {node.name for view in script.views for node in walk(view) if isinstance(node, TableRef)}
    for table in script.tables:
        others = tuple(each for each in script.tables if each is not table)
        is_referred = any(reference.parent == table.name for each in script.tables for reference in each.references)
        bound = {*table.key, *(name for each in table.references for name in each.columns)}
        for reference in table.references:
            left = tuple(each for each in table.references if each is not reference)
            yield _with_table(script, replace(table, references=left))
        if table.option:
            yield _with_table(script, replace(table, option=""))
        if table.name not in used and others and not is_referred:
            yield replace(script, tables=others, transactions=_without_table(script.transactions, table.name))
            continue
        upserts = any(sign == UPSERT for each in script.transactions for sign, _, _ in each)
        if table.key and not is_referred and not upserts:
            yield _with_table(script, replace(table, key=()))
        for place, column in enumerate(table.columns):
            if column.not_null and column.name not in table.key:
                columns = list(table.columns)
                columns[place] = replace(column, not_null=False)
                yield _with_table(script, replace(table, columns=tuple(columns)))
            if column.name not in bound and len(table.columns) > 1:
                columns = [each for each in table.columns if each is not column]
                smaller = _with_table(script, replace(table, columns=tuple(columns)))
                yield replace(smaller, transactions=_without_column(script.transactions, table.name, place))


def _with_table(script: Script, table: Table) -> Script:
    return replace(script, tables=tuple(table if each.name == table.name else each for each in script.tables))


def _without_table(transactions: tuple[Transaction, ...], name: str) -> tuple[Transaction, ...]:
    kept = (tuple(event for event in transaction if event[1] != name) for transaction in transactions)
    return tuple(transaction for transaction in kept if transaction)


def _without_column(transactions: tuple[Transaction, ...], name: str, place: int) -> tuple[Transaction, ...]:
    def cut(event: Event) -> Event:
        sign, table, row = event
        return (sign, table, row[:place] + row[place + 1 :]) if table == name else event

    return tuple(tuple(map(cut, transaction)) for transaction in transactions)


# --- queries --------------------------------------------------------------------------------------------------------


def _smaller_views(script: Script) -> Iterator[Script]:
    for place, view in enumerate(script.views):
        for smaller in _smaller(view):
            if smaller != view:
                yield replace(script, views=(*script.views[:place], smaller, *script.views[place + 1 :]))


def _smaller(node: Any) -> Iterator[Any]:
    """Yield smaller trees: what the node itself can do without first, then what is below it."""
    match node:
        case Expr():
            yield from _smaller_expr(node)
        case Select():
            yield from _smaller_select(node)
        case SetQuery():
            yield node.left
            yield node.right
        case With():
            yield from _smaller_with(node)
        case Join():
            if node.kind in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN"):
                yield replace(node, kind="JOIN")
            for place in range(len(node.on) if len(node.on) > 1 else 0):
                yield replace(node, on=node.on[:place] + node.on[place + 1 :])
        case Derived(Select(sources=(TableRef() as table,))):
            yield replace(table, alias=node.alias)
        case View() if node.order:
            yield replace(node, order=(), limit="", is_total=False)
            yield replace(node, limit="")
        case _:
            pass
    for each in fields(node):
        value = getattr(node, each.name)
        # Keys change together with the items that show them.
        shown = [key.expr for key in node.keys] if isinstance(node, Select) else []
        if each.name == "keys":
            continue
        if isinstance(value, tuple):
            for place, child in enumerate(value):
                if is_dataclass(child) and not isinstance(child, Order) and getattr(child, "expr", None) not in shown:
                    for smaller in _smaller(child):
                        yield replace(node, **{each.name: (*value[:place], smaller, *value[place + 1 :])})
        elif is_dataclass(value):
            for smaller in _smaller(value):
                yield replace(node, **{each.name: smaller})


def _smaller_expr(expr: Expr) -> Iterator[Expr]:
    """Yield what stands in an expression and has its kind, and then a constant; columns stay as they are."""
    yield from _operands(expr)
    if expr.parts:
        yield _constant(expr.kind)


def _operands(expr: Expr) -> Iterator[Expr]:
    found = [
        inner
        for part in expr.parts
        for inner in (walk(part) if isinstance(part, Expr) else ())
        if isinstance(inner, Expr) and inner.kind == expr.kind and inner != expr
    ]
    yield from dict.fromkeys(found)


def _constant(kind: str) -> Expr:
    return Expr("TRUE") if kind == "bool" else Expr(LITERALS.get(kind, LITERALS["float"])[1], kind=kind)


def _smaller_select(select: Select) -> Iterator[Select]:
    for source in _leaves(select.sources):
        if len(_leaves(select.sources)) > 1:
            yield from _without_source(select, source.alias)
    if select.where:
        yield replace(select, where=())
    if select.having:
        yield replace(select, having=())
    if select.distinct:
        yield replace(select, distinct=False)
    if select.grouping not in ("", "keys"):
        yield replace(select, grouping="keys", sets=())
    if select.grouping == "sets":
        for place in range(len(select.sets) if len(select.sets) > 1 else 0):
            yield replace(select, sets=select.sets[:place] + select.sets[place + 1 :])
    for key in select.keys if len(select.keys) > 1 and select.grouping != "sets" else ():
        keys = tuple(each for each in select.keys if each is not key)
        items = tuple(item for item in select.items if item.expr != key.expr)
        if items:
            yield replace(select, keys=keys, items=items)
    if select.grouping == "keys" and len(select.items) > len(select.keys):
        items = tuple(item for item in select.items if all(item.expr != key.expr for key in select.keys))
        if items:
            yield replace(select, grouping="", keys=(), items=items)
    for key in select.keys:
        others = [each.expr for each in select.keys]
        for smaller in (each for each in _operands(key.expr) if each not in others):
            yield _mapped(select, lambda node, old=key.expr, new=smaller: new if node == old else node)
    if any(key.way != "expression" for key in select.keys):
        yield replace(select, keys=tuple(replace(key, way="expression") for key in select.keys))
    for name in ("items", "where", "having"):
        parts: tuple[Item | Expr, ...] = getattr(select, name)
        for place in range(len(parts) if len(parts) > 1 else 0):
            yield replace(select, **{name: parts[:place] + parts[place + 1 :]})


def _leaves(sources: tuple[Source, ...]) -> list[TableRef | Derived]:
    found: list[TableRef | Derived] = []
    for source in sources:
        found += _leaves((source.left, source.right)) if isinstance(source, Join) else [source]
    return found


def _without_source(select: Select, alias: str) -> Iterator[Select]:
    """Yield a block without one of its sources: what is about it goes, or gets a constant in its place.

    Not if nothing would be left to group by: a constant there is a case of its own.
    """

    def put(node: Node) -> Node:
        return _constant(node.kind) if isinstance(node, Expr) and node.alias == alias else node

    def kept(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(each for each in parts if not _mentions(each, alias))

    def cut(source: Source) -> Source | None:
        if not isinstance(source, Join):
            return None if source.alias == alias else source
        left, right = cut(source.left), cut(source.right)
        if left is None or right is None:
            return right if left is None else left
        on = kept(source.on)
        return replace(source, left=left, right=right, on=on or (Expr("TRUE"),) if source.on else ())

    keys = kept(select.keys)
    if len(keys) < len(select.keys) and (select.sets or not keys):
        return
    sources = tuple(left for source in select.sources if (left := cut(source)) is not None)
    smaller = replace(select, sources=sources, where=kept(select.where), having=kept(select.having), keys=keys)
    if kept(select.items):
        yield replace(smaller, items=kept(select.items))
    yield _mapped(smaller, put)


def _mentions(node: Node, alias: str) -> bool:
    return any(isinstance(each, Expr) and each.alias == alias for each in walk(node))


def _smaller_with(query: With) -> Iterator[Any]:
    """Yield a query with a common table expression left out, or written as a derived table."""
    for cte in reversed(query.ctes):
        rest = tuple(each for each in query.ctes if each is not cte)

        def put(node: Node, cte: Cte = cte) -> Node:
            return Derived(cte.query, node.alias) if isinstance(node, TableRef) and node.name == cte.name else node

        body = _mapped(query.body, put)
        yield With(tuple(replace(each, query=_mapped(each.query, put)) for each in rest), body) if rest else body
