"""What keys that hold save: deltas that can only be zero, and joins that only look up a parent.

When a parent comes or goes, no child that refers to it is there. `FOREIGN KEY … RELY` promises that
(docs/architecture.md, "RELY"); where the host keeps and checks both tables, its session sees to it ("Enforced keys").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import NULL_VALUE, Atom, Batch, Compare, Term, Var
from cumulus.calculus.delta import RelationChange
from cumulus.catalog.schema import ForeignKey
from cumulus.catalog.schema import Relation as Table
from cumulus.m3.dataflow import reachable


def mark_enforced(tables: Mapping[str, Table], rely: bool, keeps: Callable[[Table], bool]) -> dict[str, Table]:
    """Return the tables, with the references marked that the host enforces.

    Parent and child are kept and the parent's key is checked, so each child finds exactly one parent. A parent that
    `changes` often is changed by statements of its own instead, and so are tables that refer to each other in a
    circle, or to themselves: no order of their rows has parents first. Rows of a static child cannot make way.

    Parameters
    ----------
    rely
        Whether those that somebody promises need no mark.
    keeps
        Whether the rows of a table are kept.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> parent = Table("c", (Column("cid"),), key=("cid",))
    >>> child = Table("o", (Column("oid"), Column("cid")), foreign_keys=(ForeignKey(("cid",), "c", ("cid",)),))
    >>> mark_enforced({"c": parent, "o": child}, True, lambda table: True)["o"].foreign_keys[0].enforced
    True
    """
    parents = {name: [each.parent for each in table.foreign_keys] for name, table in tables.items()}

    def is_enforced(child: Table, reference: ForeignKey) -> bool:
        parent = tables[reference.parent]
        checked = bool(parent.key) and not parent.key_rely and parent.changes != "often"
        moves = not child.static and child.name not in reachable(parents, [parent.name])
        return checked and moves and not (reference.rely and rely) and keeps(parent) and keeps(child)

    def marked(table: Table) -> Table:
        return replace(
            table, foreign_keys=tuple(replace(each, enforced=is_enforced(table, each)) for each in table.foreign_keys)
        )

    return {name: marked(table) for name, table in tables.items()}


def trusting(tables: Mapping[str, Table], rely: bool) -> dict[str, Table]:
    """Return the tables with the references alone that hold: those that are enforced, and with `rely` the promised."""

    def known(table: Table) -> Table:
        holds = (each for each in table.foreign_keys if each.enforced or (rely and each.rely))
        return replace(table, foreign_keys=tuple(holds))

    return {name: known(table) for name, table in tables.items()}


def is_zero(factors: Iterable[Term], change: RelationChange, tables: Mapping[str, Table]) -> bool:
    """Whether a monomial of a delta joins the changed parent with a child that refers to it.

    Parameters
    ----------
    tables
        `trusting`.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> parent = Table("c", (Column("cid"),), key=("cid",))
    >>> child = Table("o", (Column("oid"), Column("cid")), foreign_keys=(ForeignKey(("cid",), "c", ("cid",), True),))
    >>> is_zero([Atom("o", ("x", "e"))], RelationChange("c", +1, ("e",)), {"c": parent, "o": child})
    True
    """
    parts = list(factors)
    batches = (part for part in parts if isinstance(part, Batch) and part.name == change.relation)
    rows = [change.variables] if change.sign else [batch.variables for batch in batches]
    return any(
        # A row that refers to itself, or goes in one batch with its parent, is still there when the parent goes.
        child.name != change.relation or change.sign > 0
        for row in rows
        for child, _ in children_of(Atom(change.relation, row), parts, tables)
    )


def without_lookups(keys: Iterable[str], factors: list[Term], tables: Mapping[str, Table]) -> list[Term]:
    """Drop atoms of trusted parents of which only the key is used: each row finds exactly one.

    An enforced reference need not hold inside of a transaction. A row that is there without its parent counts for
    nothing in all maps alike; it would count in those that had lost the parent.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> from cumulus.catalog.types import INTEGER
    >>> parent = Table("c", (Column("cid"), Column("n")), key=("cid",))
    >>> reference = ForeignKey(("cid",), "c", ("cid",), True)
    >>> child = Table("o", (Column("oid"), Column("cid", INTEGER, True)), foreign_keys=(reference,))
    >>> atoms = [Atom("c", ("c", "n")), Atom("o", ("o", "c"))]
    >>> [str(atom) for atom in without_lookups(["c"], atoms, {"c": parent, "o": child})]
    ['o(o, c)']
    """
    wanted = frozenset(keys)
    kept = list(factors)
    for atom in factors:
        if not isinstance(atom, Atom) or len(set(atom.variables)) != len(atom.variables):
            continue
        table = tables[atom.name]
        own = {name for name, column in zip(atom.variables, table.columns, strict=True) if column.name not in table.key}
        others = [factor for factor in kept if factor is not atom]
        if not table.key or own & wanted or any(own & variables_of(factor) for factor in others):
            continue
        guard = _child_guard(atom, others, tables)
        if guard is not None:
            kept = others + [test for test in guard if test not in others]
    return kept


def _child_guard(atom: Atom, others: Iterable[Term], tables: Mapping[str, Table]) -> list[Term] | None:
    """Return the guards under which a child among `others` stands for `atom`; None if there is no such child."""
    for other, reference in children_of(atom, others, tables):
        if not reference.enforced:
            child = tables[other.name]
            nullable = [name for name in reference.columns if not child.columns[child.position(name)].not_null]
            return [Compare("<>", Var(other.variables[child.position(name)]), NULL_VALUE) for name in nullable]
    return None


def children_of(atom: Atom, others: Iterable[Term], tables: Mapping[str, Table]) -> Iterator[tuple[Atom, ForeignKey]]:
    """Yield the atoms among `others` that refer to `atom`, and by which reference."""
    parent = tables[atom.name]
    at = {column: atom.variables[parent.position(column)] for column in parent.key}
    for other in others:
        if isinstance(other, Atom):
            for reference in _trusted_references(tables[other.name], atom.name):
                if _referring_variables(other, reference, tables) == at:
                    yield other, reference


def _trusted_references(child: Table, parent: str) -> Iterator[ForeignKey]:
    return (reference for reference in child.foreign_keys if reference.parent == parent)


def _referring_variables(atom: Atom, reference: ForeignKey, tables: Mapping[str, Table]) -> dict[str, str]:
    """Return the parent's key columns with the atom's variables that refer to them."""
    child, parent = tables[atom.name], tables[reference.parent]
    columns = reference.parent_columns or parent.key
    return {
        theirs: atom.variables[child.position(mine)] for mine, theirs in zip(reference.columns, columns, strict=True)
    }
