"""Many events at once: columns of words, in the order in which the events came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cumulus.engine.native.body import define
from cumulus.engine.native.kernel import I64, PTR, U8, Function
from cumulus.engine.native.lanes import Lane

EVENTS = "events"


def events_function(
    relations: Sequence[tuple[str, tuple[Lane, ...]]], triggers: Mapping[tuple[int, str], Function]
) -> Function:
    """Return the function that fires the triggers of events, one after another, until one makes a firing useless.

    Its parameters are `(context, count, kinds, columns, cursors)`: how many events; for each a byte, twice the number
    of its relation and 1 more for an insertion; for each word of each relation, in order, the address of its values;
    for each relation, which of its values comes next. It returns how many events it has fired.

    Parameters
    ----------
    relations
        Names and columns, in the order of their numbers.
    triggers
        (sign, relation) → the function.
    """
    parameters = [("context", PTR), ("count", I64), ("kinds", PTR), ("columns", PTR), ("cursors", PTR)]
    with define(EVENTS, parameters, I64) as body:
        context, count, kinds, columns, cursors = body.function.parameters
        with body.counting(0, count) as at:
            kind = body.load(U8, kinds.at(at), 0, "kind")
            first = 0
            for number, (relation, lanes) in enumerate(relations):
                words = sum(lane.words for lane in lanes)
                with body.when((kind >> 1).eq(number)):
                    cursor = body.load(I64, cursors, 8 * number, "cursor")
                    body.store(I64, cursors, 8 * number, cursor + 1)
                    for sign in (1, -1):
                        trigger = triggers.get((sign, relation))
                        if trigger is None:
                            continue
                        with body.when((kind & 1).eq(1 if sign > 0 else 0)):
                            values = [
                                body.load(I64, body.load(PTR, columns, 8 * (first + word)).at(cursor << 3), 0, "value")
                                for word in range(words)
                            ]
                            status = body.call(trigger, context, *values, hint="status")
                            with body.when(status.ne(0), likely=False):
                                body.leave(at)
                first += words
        body.leave(count)
    return body.function
