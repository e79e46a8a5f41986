"""Many events at once: columns of words, and the order in which their rows come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cumulus.engine.native.intake.python_rows import DONE
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.language import I64, PTR, U8, Expr, Function, Local
from cumulus.engine.native.store.memory_layout import JOURNAL_USED, EventLane, event_words
from cumulus.engine.native.values.columns import ROWS_AHEAD

STREAM = "stream"
MOST_RELATIONS = 128
"""How many a byte can tell, beside the sign."""
_FEW = 4
"""Relations that an event is compared with one after the other."""
FAR = (ROWS_AHEAD, 4)
"""How many rows of a relation ahead of the one that is fired slots and rows are asked for."""


def stream_function(
    relations: Sequence[tuple[str, Sequence[EventLane]]],
    takes: Mapping[tuple[int, str], Function],
    fetches: Mapping[str, tuple[Function, Function]],
) -> Function:
    """Return the function that fires the triggers of events, one after another, until one is left to Python.

    Its parameters are `(context, from, to, kinds, columns, cursors, each)`: for each event a byte, twice the number of
    its relation and 1 more for an insertion; for each word that triggers use of each relation, in order, the address of
    its values; for each relation, which of its values comes next; whether each event is a transaction of its own. It
    returns the number of the event that is left, whose value the cursor has not passed; `to` if there is none.

    Parameters
    ----------
    relations
        Names and columns, in the order of their numbers.
    takes
        (sign, relation) → what takes an event.
    fetches
        Relation → `cumulus.engine.native.intake.prefetch.fetch_functions`.
    """
    names = ("from", "to", "kinds", "columns", "cursors", "each")
    types = (I64, I64, PTR, PTR, PTR, I64)
    with define(STREAM, [("context", PTR), *zip(names, types, strict=True)], I64) as body:
        context, start, end, kinds, columns, cursors, each = body.function.parameters
        numbered: list[tuple[int, str, range]] = []
        for number, (relation, lanes) in enumerate(relations):
            first = numbered[-1][2].stop if numbered else 0
            numbered.append((number, relation, range(first, first + event_words(lanes))))
        with body.counting(start, end) as at:
            kind = body.load(U8, kinds.at(at), 0, "kind")

            def fire(number: int, relation: str, words: range) -> None:
                cursor = body.load(I64, cursors, 8 * number, "cursor")
                for far, fetch in zip(FAR, fetches[relation], strict=True):
                    body.run(fetch, context, *values_at(body, columns, words, cursor + far))
                values = values_at(body, columns, words, cursor)
                for sign in (1, -1):
                    with body.when((kind & 1).eq(1 if sign > 0 else 0)):
                        done = body.call(takes[sign, relation], context, *values, hint="done")
                        body.leave_if(done.ne(DONE), at, likely=False)
                body.store(I64, cursors, 8 * number, cursor + 1)

            def choose(among: Sequence[tuple[int, str, range]]) -> None:
                """Write the choice of what a kind is of, by halves as long as they are many."""
                if len(among) > _FEW:
                    half = len(among) // 2
                    with body.when(kind < among[half][0] << 1):
                        choose(among[:half])
                    with body.otherwise():
                        choose(among[half:])
                    return
                for number, relation, words in among:
                    with body.when((kind >> 1).eq(number)):
                        fire(number, relation, words)

            choose(numbered)
            with body.when(each.ne(0)):
                body.store(I64, context, JOURNAL_USED, 0)
        body.leave(end)
    return body.function


def values_at(body: Body, columns: Expr, words: range, row: Expr) -> list[Local]:
    """Write the reading of the words of a row."""
    return [body.load(I64, body.load(PTR, columns, 8 * word).at(row << 3), 0, "value") for word in words]
