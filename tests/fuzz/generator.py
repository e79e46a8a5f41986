"""Random scripts from a seed: a schema, several views over it, a stream of transactions."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fuzz.constructs import CONSTRUCTS, constructs
from fuzz.keyed_schema import keyed_tables
from fuzz.keyed_stream import KeyedStream
from fuzz.queries import NESTING, ROUGH, SET_OPERATIONS, Columns, Queries
from fuzz.schema import Stream, Table, Transaction, random_tables
from fuzz.sources import Known
from fuzz.tree import Order, Query, View

MODES = ("event", "event", "call", "batch")
"""How transactions are applied: `Warehouse.apply` by event and by call, and the batch triggers."""
KEYED_MODES = (*("event",) * 3, *("call",) * 4, *("interpreted",) * 2, "batch")
"""As `MODES`, where tables refer to each other; "interpreted" is by call, too."""
KEYED_SHARE = 0.45

RARE = (
    "USING", "NATURAL", "CROSS JOIN", "theta join", "FULL JOIN", "RIGHT JOIN", "LIKE", "ILIKE", "IS NULL", "SUBSTRING",
    "SUBSTRING", "SUBSTRING", "UPPER/LOWER", "UPPER/LOWER", "||", "||", "string function", "date function", "EXTRACT",
    "DATE_TRUNC",
    "DATE_TRUNC", "INTERVAL", "CUBE", "ROLLUP", "GROUPING SETS", "scalar sub-query", "EXISTS", "NOT EXISTS",
    "NOT EXISTS", "IN (SELECT)", "NOT IN (SELECT)", "ANY", "ALL", "NOT IN (SELECT)", "ANY", "ANY", "ALL", "correlated",
    "sub-query in SELECT", "sub-query in HAVING", "sub-query in HAVING", "sub-query in HAVING", "CTE", "CTE used twice",
    *("sub-query in HAVING",) * 2, *("sub-query in a sub-query",) * 5, "LIMIT", "LIMIT", "IS NULL", "ALL",
    "LIKE", "UPPER/LOWER", "EXCEPT ALL", "EXCEPT ALL", "ANY", "DATE_TRUNC",
    *SET_OPERATIONS, *SET_OPERATIONS, *("INTERSECT", "INTERSECT ALL", "EXCEPT", "UNION", "UNION ALL") * 2,
)  # fmt: skip
"""What needs to be wanted to be met often enough."""


@dataclass(frozen=True)
class Script:
    """What one seed gives.

    Parameters
    ----------
    mode
        One of `MODES`.
    checks
        After which transactions the views are compared.
    """

    seed: int
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    transactions: tuple[Transaction, ...]
    mode: str
    checks: frozenset[int]


class Generator(Queries):
    """Makes the views of one script.

    Parameters
    ----------
    tables
        What the views are about.
    without
        Constructs that must not be used; without "scalar sub-query" there are no sub-queries at all.
    only
        Constructs of which every view is to have one; any if empty.
    """

    def __init__(
        self,
        draw: random.Random,
        tables: tuple[Table, ...],
        *,
        without: frozenset[str] = frozenset(),
        only: tuple[str, ...] = (),
    ) -> None:
        super().__init__(draw, without)
        self.only = only
        self.alias_count = 0
        self.of_alias: dict[str, str] = {}
        self.known = [Known(table.name, tuple((c.name, c.kind) for c in table.columns)) for table in tables]
        self.references = [(table.name, each) for table in tables for each in table.references]

    def views(self, count: int) -> tuple[View, ...]:
        """Return views, of which later ones may read earlier ones."""
        made: list[View] = []
        for index in range(count):
            view, columns = self._view(f"v{index}")
            made.append(view)
            # What a LIMIT leaves is for readers, not for other views.
            if not view.limit and "view over view" not in self.without:
                self.known.append(Known(view.name, columns, "view"))
        return tuple(made)

    def _view(self, name: str) -> tuple[View, Columns]:
        for _ in range(30):
            view, columns = self._any_view(name)
            if not self.only or not constructs(view).isdisjoint(self.only):
                break
        return view, columns

    def _any_view(self, name: str) -> tuple[View, Columns]:
        self.used: set[str] = set()
        weights = (0.1, 1.8, 3.9, 2.7, 1.5) if self.references else (0.8, 2.2, 3.7, 2.2, 0.9)
        self.room = self.draw.choices((1, 2, 3, 4, 5), weights)[0]
        self.nested = self.draw.choices((0, 1, 2, 3), (2.5, 4, 2, 1))[0]
        wanted = [self.one(self.only)] if self.only else [self.one(CONSTRUCTS), *self.draw.sample(RARE, 3)]
        self.want([each for each in wanted if each not in self.without])
        if self.wanted & {"sub-query in a sub-query"}:
            self.nested, self.room = 3, max(self.room, 4)
        elif any("sub-query" in each or each in NESTING for each in self.wanted):
            self.nested, self.room = max(self.nested, 1), max(self.room, 2)
        query, columns = self._query()
        return self._ordered(View(name, query), columns), columns

    def _query(self) -> tuple[Query, Columns]:
        weights = {"plain SELECT": 2.0, "grouped": 4.5, "one group": 1.0, "CTE": 0.8}
        weights |= dict.fromkeys(SET_OPERATIONS, 0.16)
        form = self.pick(weights)
        if form == "CTE":
            return self.with_ctes()
        if form in SET_OPERATIONS:
            self.wanted |= {form}
            return self.set_operation()
        exact = not self.wanted.isdisjoint({"LIMIT", "SELECT DISTINCT"})
        return self.block(form=form, exact=exact)

    def _ordered(self, view: View, columns: Columns) -> View:
        """Return the view with ORDER BY, and LIMIT where the order leaves nothing open."""
        if not self.chance(0.08, "ORDER BY"):
            return view
        names = [name for name, _ in columns]
        self.draw.shuffle(names)
        is_exact = not any(kind in ROUGH for _, kind in columns)
        if not is_exact or self.draw.random() < 0.2:
            names = [name for name, kind in columns if kind not in ROUGH][:1]
            order = tuple(self._order(name) for name in names)
            return View(view.name, view.query, order)
        limit = ""
        if self.chance(0.6, "LIMIT"):
            limit = f" LIMIT {self.one((1, 2, 3, 5))}" + (" OFFSET 1" if self.draw.random() < 0.25 else "")
        return View(view.name, view.query, tuple(self._order(name) for name in names), limit, is_total=True)

    def _order(self, name: str) -> Order:
        return Order(name, self.one(("", "", " DESC", " DESC NULLS FIRST", " NULLS FIRST", " DESC NULLS LAST")))

    def new_alias(self, name: str) -> str:
        if name and name not in self.used and self.draw.random() < 0.3:
            self.used.add(name)
            return name
        self.alias_count += 1
        return f"q{self.alias_count}"


def script_of(
    seed: int, *, only: tuple[str, ...] = (), without: frozenset[str] = frozenset(), keyed: bool = False
) -> Script:
    """Return the script of a seed; if `keyed`, one whose tables refer to each other."""
    draw = random.Random(f"script {seed}")
    is_keyed = keyed or random.Random(f"keys {seed}").random() < KEYED_SHARE
    tables = keyed_tables(draw) if is_keyed else random_tables(draw)
    views = Generator(draw, tables, only=only, without=without).views(draw.choice((2, 3, 4, 5)))
    mode = draw.choice(KEYED_MODES if is_keyed else MODES)
    single = mode == "event"
    if is_keyed:
        stream = KeyedStream(draw, tables, upserts=mode != "batch")
        transactions = stream.transactions(draw.randint(50, 80), single=single)
    else:
        transactions = Stream(draw, tables).transactions(draw.randint(36, 60), single=single)
    last = len(transactions) - 1
    checks = list(range(last + 1))
    if draw.random() < 0.8:
        checks = [*draw.sample(range(1, last), min(4, last - 1)), last]
    return Script(seed, tables, views, transactions, mode, frozenset(checks))
