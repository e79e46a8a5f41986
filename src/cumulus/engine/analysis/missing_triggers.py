"""What every engine does where a program lacks the trigger that an event asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cumulus.algebra.float_sums import LARGEST
from cumulus.catalog.events import Row
from cumulus.errors import UsageError
from cumulus.m3.program import On, Program
from cumulus.scalars.python_code import canonical

_LARGE = 1e100
"""Products of three such numbers, and sums of billions of products of two, are within DOUBLE."""


def missing_trigger(sign: int, relation: str) -> UsageError:
    """Return the error that there is a trigger for the other kind of event only."""
    return UsageError(
        f"the program has no trigger ON {'+' if sign > 0 else '-'}{relation}",
        hint="Write one, or do not send such events.",
    )


def come_one_by_one(program: Program) -> frozenset[str]:
    """Return the relations with a batch trigger whose net change may as well be fired event by event.

    They have both single triggers, and every map has a definition, which says what it is after all of them.
    """
    if not all(definition.definitions for definition in program.maps):
        return frozenset()
    fired = {(trigger.on, trigger.relation) for trigger in program.triggers}
    return frozenset(name for _, name in fired if {(on, name) for on in On} <= fired)


def one_by_one(program: Program, relation: str, changes: Mapping[Row, int]) -> Iterator[tuple[int, Row]]:
    """Yield a net change as single events, deletions first.

    Raises
    ------
    UsageError
        If their order matters: a map has no definition that says what it is after all of them.
    """
    for definition in program.maps:
        if not definition.definitions:
            raise UsageError(
                f"{relation} has no ON BATCH trigger, and map {definition.name} has no definition",
                hint="Only maps with a definition may take a net change event by event; write ON BATCH, or send "
                "the events in their order.",
            )
    for sign in (-1, 1):
        for row, count in changes.items():
            for _ in range(count * sign):
                yield sign, row


def has_large_floats(changes: Mapping[Row, int]) -> bool:
    """Whether rows of a net change have a DOUBLE so large that sums of some of them may be beyond DOUBLE."""
    return any(type(value) is float and _LARGE < abs(value) <= LARGEST for row in changes for value in row)


def canonical_rows(changes: Mapping[Row, int]) -> dict[Row, int]:
    """Return a net change whose rows are keys: floats have one NaN and one zero."""
    rows: dict[Row, int] = {}
    for row, count in changes.items():
        row = tuple(map(canonical, row))
        rows[row] = rows.get(row, 0) + count
    return {row: count for row, count in rows.items() if count}
