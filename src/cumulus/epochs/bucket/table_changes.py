"""What an epoch brings to the rows of tables and takes from them, as the files of published tables say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import DELETE, INSERT, OP_COLUMN, Row
from cumulus.catalog.schema import Relation
from cumulus.epochs.bucket.net_changes import NetChange


@dataclass(frozen=True, slots=True)
class TableChange:
    """What an epoch has changed in a table.

    Parameters
    ----------
    came
        The rows that are there afterwards and were not, each as often as it came.
    gone
        With a primary key: the keys whose rows went, were replaced, or were not there. Without: the rows that went,
        each as often as it went.
    """

    relation: Relation
    came: pa.Table
    gone: pa.Table


class TableChanges:
    """Collects what an epoch changes in some tables.

    Parameters
    ----------
    relations
        The tables.
    """

    def __init__(self, relations: Iterable[Relation]) -> None:
        self._relations = {each.name: each for each in relations}
        self._came: dict[str, list[pa.Table]] = {}
        self._gone: dict[str, list[pa.Table]] = {}

    def add(self, rounds: Mapping[str, Sequence[pa.Table]], net_changes: Iterable[NetChange]) -> None:
        """Take what was fired as columns, and net changes of other keys."""
        for name, tables in rounds.items():
            if name in self._relations:
                self._add_rounds(self._relations[name], tables)
        came: dict[str, list[Row]] = {}
        gone: dict[str, list[Row]] = {}
        for each in net_changes:
            if each.relation in self._relations:
                if each.removed is not None:
                    gone.setdefault(each.relation, []).extend([each.removed] * each.count)
                if each.added is not None:
                    came.setdefault(each.relation, []).extend([each.added] * each.count)
        for found, rows in ((self._came, came), (self._gone, gone)):
            for name, mine in rows.items():
                found.setdefault(name, []).append(table_of(self._relations[name].columns, mine))

    def _add_rounds(self, relation: Relation, rounds: Sequence[pa.Table]) -> None:
        """Take the rows of a table: a key is in each round once, and is left as the last one leaves it."""
        rows = pa.concat_tables(each.select([*relation.column_names, OP_COLUMN]) for each in rounds)
        operations = rows.column(OP_COLUMN)
        gone = rows.filter(pc.not_equal(operations, INSERT) if relation.key else pc.equal(operations, DELETE))
        if len(rounds) > 1:
            places = pa.array(np.arange(rows.num_rows))
            named = rows.select(list(relation.key)).append_column("at", places)
            named = named.rename_columns([*(f"key{at}" for at in range(len(relation.key))), "at"])
            last = named.group_by(named.column_names[:-1], use_threads=False).aggregate([("at", "max")])
            rows = rows.take(last.column("at_max"))
        self._came.setdefault(relation.name, []).append(
            rows.filter(pc.not_equal(rows.column(OP_COLUMN), DELETE)).select(list(relation.column_names))
        )
        self._gone.setdefault(relation.name, []).append(gone)

    def end(self) -> list[TableChange]:
        """Return what was collected, and begin anew."""
        found = [self._change(each) for name, each in self._relations.items() if name in {**self._came, **self._gone}]
        self._came, self._gone = {}, {}
        return found

    def _change(self, relation: Relation) -> TableChange:
        came, gone = (
            pa.concat_tables(
                [table_of(relation.columns, []), *(each.select(list(relation.column_names)) for each in mine)],
                promote_options="permissive",
            )
            for mine in (self._came.get(relation.name, []), self._gone.get(relation.name, []))
        )
        return TableChange(relation, came, gone.select(list(relation.key)) if relation.key else gone)
