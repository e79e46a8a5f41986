"""How much of the work of a program the heaviest of its buckets gets: rows of tables, by what a row costs.

Rows and different values come from `Statistics`; what is not known is guessed, and the guesses are these: facts refer
to dimensions, and each table referred to makes one four times as large; a key of one column has many values, any other
column a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cumulus.explain.cost import CostClass, Costs
from cumulus.explain.layout.co_partitioning import Columns, Partitioned
from cumulus.explain.layout.shared_keys import references
from cumulus.explain.sizes import Statistics
from cumulus.m3.dataflow import reachable
from cumulus.m3.program import On, Program

KEEPING = 8
"""What a row of a table with kept rows costs before any view: it is looked up, judged and stored."""
FEW = 100
"""Different values of a column that is no key alone, if nobody says how many."""
MANY = 1 << 20
_READS = {CostClass.CONSTANT: 1, CostClass.LOGARITHMIC: 2, CostClass.SLICE: 8, CostClass.SCAN: 64}


@dataclass(frozen=True)
class Loads:
    """The weights of a program's tables, and how evenly columns spread them.

    Parameters
    ----------
    weights
        Table with triggers → its rows, times what a row costs.
    costs
        Table → what a row costs.
    """

    program: Program
    statistics: Statistics
    weights: Mapping[str, float]
    costs: Mapping[str, float]

    def heaviest(self, partitioned: Partitioned, buckets: int) -> float:
        """Return the share of all work that the heaviest of some buckets gets, from ``1 / buckets`` to 1."""
        total = sum(self.weights.values())
        if not total or not partitioned:
            return 1.0
        found = sum(
            weight * (self.share(table, partitioned[table], buckets) if table in partitioned else 1.0)
            for table, weight in self.weights.items()
        )
        return found / total

    def row_share(self, table: str) -> float:
        """Return the part of a table's weight that its bare rows are."""
        return 1.0 / self.costs[table]

    def share(self, table: str, columns: Columns, buckets: int) -> float:
        """Return the share of a table's rows that the heaviest bucket of its columns gets, as is to be expected.

        Of d values thrown into b buckets the fullest has about ``1/b + sqrt(2 ln(b) (1/b) (1 - 1/b) / d)`` of them;
        a single value that many rows have may be more.
        """
        values = self.distinct(table, columns)
        even = 1.0 / buckets
        spread = even + math.sqrt(2 * math.log(buckets) * even * (1 - even) / values)
        commonest = min(self.statistics.commonest.get((table, column), 0.0) for column in columns)
        return min(1.0, max(spread, commonest, 1.0 / values))

    def distinct(self, table: str, columns: Columns) -> int:
        """Return how many different values some columns have together, at least 1."""
        relation = self.program.relation(table)
        rows = self.statistics.rows.get(table) or MANY
        if relation.key and {*relation.key} <= {*columns}:
            return rows
        keys = [relation.key, *(reference.columns for reference in relation.foreign_keys)]
        own = {key[0] for key in keys if len(key) == 1}
        found = 1
        for column in columns:
            known = self.statistics.distinct.get((table, column))
            found *= max(1, known if known is not None else MANY if column in own else FEW)
        return max(1, min(found, rows))


def loads_of(program: Program, statistics: Statistics) -> Loads:
    """Return the loads of a program's tables: rows that nobody has counted are guessed, in proportion."""
    streams = {trigger.relation for trigger in program.triggers}
    guessed = _guessed_rows(program)
    known = [(statistics.rows[name], guessed[name]) for name in streams if statistics.rows.get(name)]
    scale = sum(rows for rows, _ in known) / sum(guess for _, guess in known) if known else 1.0
    costs = _row_costs(program)
    weights = {
        name: (float(statistics.rows[name]) if name in statistics.rows else guessed[name] * scale) * costs[name]
        for name in sorted(streams)
    }
    return Loads(program, statistics, weights, costs)


def _guessed_rows(program: Program) -> dict[str, float]:
    """Guess relative sizes: facts refer to dimensions, and each relation referred to makes one four times as large."""
    parents = references(program)
    return {relation: 4.0 ** len(reachable(parents, [relation]) - {relation}) for relation in parents}


def _row_costs(program: Program) -> dict[str, float]:
    """Return table → what one inserted row costs: reading it, keeping it, and the look-ups and loops of statements."""
    costs = Costs(program)
    kept = dict(program.kept)
    found = {relation.name: 1.0 + (KEEPING if relation.name in kept else 0) for relation in program.relations}
    for trigger in program.triggers:
        if trigger.on is On.INSERT or (trigger.on is On.BATCH and not program.is_batch_form(trigger)):
            for statement in trigger.statements:
                cost = costs.statement(trigger, statement)
                found[trigger.relation] += 1 + sum(_READS.get(read.cost, 1) for read in cost.reads)
    return found
