"""Statements that loop alike, written as one loop.

The value columns of a map come from terms that differ in little: `q[g].n += m[x, g].n`, `q[g].s += m[x, g].s * p`. Both
visit the same rows of `m`, and both change the same entries of `q`; so what they have in common is written once, and
inside it what each of them adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from cumulus.algebra.terms import Apply, Cast, Const, MapRead, Term, Var, factors_of
from cumulus.m3.program import Statement
from cumulus.scalars.python_code import may_raise


@dataclass(frozen=True, slots=True)
class FusedStatements:
    """Statements that add to different value columns of the same entries of one map.

    Parameters
    ----------
    common
        The factors of all of them; a read of a map stands for the row that it visits.
    reads, scalars
        For each statement what it reads of these rows, in the order of the reads in `common`; and its own factors,
        which cannot fail.
    """

    statements: tuple[Statement, ...]
    common: tuple[Term, ...]
    reads: tuple[tuple[MapRead, ...], ...]
    scalars: tuple[tuple[Term, ...], ...]

    @property
    def map(self) -> str:
        """What is added to."""
        return self.statements[0].map

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the entries."""
        return self.statements[0].keys


def fuse_loops(statements: Iterable[Statement]) -> list[FusedStatements]:
    """Return statements in groups, each as large as it can be, in the order of their first ones.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse('''RELATION r(a INT); MAP m[a INT, b INT](n INT, s INT); MAP q[b INT](n INT, s INT, t INT);
    ... ON +r(a) { q[b].n += m[a, b].n; q[b].s += m[a, b].s * a; q[b].t += m[a, b].s * m[b, a].n }''')
    >>> [[each.column for each in group.statements] for group in fuse_loops(program.triggers[0].statements)]
    [['n', 's'], ['t']]
    """
    groups: dict[object, list[list[Statement]]] = {}
    order: list[list[Statement]] = []
    for statement in statements:
        similar = groups.setdefault(_skeleton(statement), [])
        for group in similar:
            if statement.column not in {each.column for each in group}:
                group.append(statement)
                break
        else:
            similar.append([statement])
            order.append(similar[-1])
    return [_fused(group) for group in order]


def _skeleton(statement: Statement) -> object:
    """Return what two statements share if they can be fused."""
    parts: list[object] = []
    for factor in factors_of(statement.term):
        if is_row(factor):
            parts.append((factor.map, factor.keys, factor.state))
        elif not _is_own(factor):
            parts.append(factor)
    return (statement.map, statement.keys, tuple(parts))


def is_row(factor: Term) -> TypeGuard[MapRead]:
    """Whether a factor stands for a number in a row."""
    return isinstance(factor, MapRead) and factor.state != "CHANGED"


def _is_own(factor: Term) -> bool:
    """Whether a factor is a number that only its statement needs to know, and that can always be computed."""
    return isinstance(factor, (Const, Var, Apply, Cast)) and not may_raise(factor)


def _fused(group: Sequence[Statement]) -> FusedStatements:
    if len(group) == 1:
        return FusedStatements(tuple(group), tuple(factors_of(group[0].term)), ((),), ((),))
    factors = [factors_of(statement.term) for statement in group]
    return FusedStatements(
        tuple(group),
        tuple(factor for factor in factors[0] if not _is_own(factor)),
        tuple(tuple(filter(is_row, each)) for each in factors),
        tuple(tuple(factor for factor in each if _is_own(factor)) for each in factors),
    )
