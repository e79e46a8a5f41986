"""The columnar fast path of an epoch: which tables are fired as Arrow columns, without moves per key.

That must be what their moves would do (`cumulus.epochs.bucket.moves`). Where code takes every row of a primary key in
its order, nothing is refused, and the key is left with the same row. So rows are dealt to *rounds*: the first of each
key, then the second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.events import DELETE, TRUNCATE, UPSERT
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Kind
from cumulus.engine.rows_in import is_required
from cumulus.epochs.intake.packing import Payload

_MOST_ROUNDS = 8
"""Keys with more rows are for those who look at one row after the other."""


def is_plain(relation: Relation, payloads: Sequence[Payload], *, updates: bool) -> bool:
    """Whether each row is whole, which a deletion need not be, none is an update unless `updates` may be, and none a
    truncation.
    """
    required = [column.name for column in relation.columns if is_required(relation, column)]
    if any(payload.rows.column(name).null_count for payload in payloads for name in required):
        return False
    if any(_has(payload, TRUNCATE) for payload in payloads):
        return False
    return updates or not any(_has(payload, UPSERT) for payload in payloads)


def only_comes(payloads: Sequence[Payload]) -> bool:
    """Whether every row is an insertion."""
    return not any(_has(payload, UPSERT) or _has(payload, DELETE) for payload in payloads)


def rounds(relation: Relation, payloads: Sequence[Payload]) -> list[pa.Table]:
    """Return the rows of a kept table dealt to rounds; none if they are too many.

    O(rows), and O(log rows) for each row whose key has another.
    """
    ordered = {"_seq" in payload.rows.column_names for payload in payloads}
    types = [relation.columns[place].type for place in relation.key_positions]
    if len(ordered) > 1 or any(each is not None and each.kind is Kind.INTERVAL for each in types):
        return []  # Arrow does not group intervals
    order = ["_seq"] if ordered == {True} else []
    columns = [*relation.column_names, "_op", *order]
    rows = pa.concat_tables(payload.rows.select(columns) for payload in payloads)
    if not relation.key:
        return [rows]
    keys = [f"_key{place}" for place in range(len(relation.key))]
    named = pa.table([rows.column(name) for name in relation.key], names=keys)
    counts = named.group_by(keys, use_threads=False).aggregate([([], "count_all")])
    if counts.num_rows == rows.num_rows:
        return [rows]
    several = counts.filter(pc.greater(counts.column("count_all"), 1))
    if pc.max(several.column("count_all")).as_py() > _MOST_ROUNDS:
        return []
    named = named.append_column("_at", pa.array(np.arange(rows.num_rows)))
    places = named.join(several, keys, join_type="left semi", use_threads=False).sort_by("_at")
    mine = rows.take(places.column("_at"))
    if order:  # a deletion comes before an insertion with its position
        sorting = pa.table({"seq": mine.column("_seq"), "op": mine.column("_op"), "at": places.column("_at")})
        places = places.take(pc.sort_indices(sorting, [(name, "ascending") for name in ("seq", "op", "at")]))
    dealt = np.zeros(rows.num_rows, np.int8)
    seen: dict[tuple[object, ...], int] = {}
    for at, *key in zip(*(places.column(name).to_pylist() for name in ("_at", *keys)), strict=True):
        dealt[at] = seen.get(tuple(key), 0)
        seen[tuple(key)] = dealt[at] + 1
    return [rows.filter(pa.array(dealt == number)) for number in range(int(dealt.max()) + 1)]


def _has(payload: Payload, operation: int) -> bool:
    return bool(pc.any(pc.equal(payload.rows.column("_op"), operation)).as_py())
