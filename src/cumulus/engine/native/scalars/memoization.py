"""What Python functions gave, remembered by code: most columns have few different values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.language import I64, Expr, i64
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import MapLayout
from cumulus.engine.native.store.row_layout import LIVE, address

_MOST = 1 << 16
"""So many values are remembered before all are forgotten."""
_FAILED = 2


def remember_call(
    body: Body, record: Expr, store: MapLayout, keys: Sequence[Expr], call: Callable[[], list[Expr]]
) -> list[Expr]:
    """Write the look-up of what a call gave for some words, and the call where that is not known.

    Parameters
    ----------
    store
        Of outcomes and results: see `cumulus.engine.native.code.program_writer.ProgramWriter.call`.
    call
        Writes the call; its outcome, and the words of its result. What failed is not remembered.
    """
    shape = store.shape
    found = [body.local(I64, "known") for _ in range(store.marks)]
    row = body.call(shape.find, record, *keys, hint="row")
    with body.when(row.ne(0), likely=True):
        place = body.let(address(body, shape, record, row), "place")
        for word, target in enumerate(found):
            body.set(target, body.load(I64, place, shape.value(word)) - (0 if word else 1))
    with body.otherwise():
        for target, value in zip(found, call(), strict=True):
            body.set(target, value)
        with body.when(found[0].ne(_FAILED)):
            with body.when(body.load(I64, record, LIVE) >= i64(_MOST), likely=False):
                body.call(shape.clear, record)
            new = body.let(body.call(shape.put, record, *keys, hint="new") & ROW, "new")
            with body.when(new.ne(0), likely=True):  # without memory nothing is remembered
                at = body.let(address(body, shape, record, new), "at")
                for word, value in enumerate(found):
                    body.store(I64, at, shape.value(word), value + (0 if word else 1))
    return [*found]
