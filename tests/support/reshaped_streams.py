"""Random epochs over a small program with everything that a bucket remembers, and buckets that may be reshaped between
them: rows that wait, rows that come twice, sums of DOUBLE and of long decimals, tables without keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from cumulus.algebra.float_sums import read_stored
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.protocol import Engine
from cumulus.engine.snapshot import entries_of_table
from cumulus.epochs.bucket.contents import BucketContents
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import Reading, read_file
from cumulus.epochs.plan import BucketPlan, GroupPlan, layout_of
from cumulus.epochs.reshape import reshape
from cumulus.epochs.stages.contents import bucket_sets, part_counts, unpack_parts
from cumulus.epochs.stages.parts import Part, PartMaker, RowJudge, WholeBucket
from cumulus.explain.layout.co_partitioning import Layout, Merge
from cumulus.m3.program import Program
from cumulus.views import finish

_TABLES = """
    CREATE TABLE goods (g INT PRIMARY KEY, kind VARCHAR);
    CREATE TABLE orders (o INT PRIMARY KEY, g INT REFERENCES goods, place VARCHAR);
    CREATE TABLE items (o INT REFERENCES orders, price DECIMAL(6, 2), weight DOUBLE) WITH (keep = all);
    CREATE TABLE visits (place VARCHAR, n HUGEINT);
    CREATE VIEW by_kind AS SELECT kind, SUM(price) AS p, AVG(weight) AS w, COUNT(*) AS n
      FROM items JOIN orders USING (o) JOIN goods USING (g) GROUP BY kind;
    CREATE VIEW by_order AS SELECT o, SUM(price) AS p FROM items GROUP BY o;
    CREATE VIEW dear AS SELECT o, MAX(price) AS most FROM items GROUP BY o;
    CREATE VIEW kinds AS SELECT kind, COUNT(*) AS n FROM goods GROUP BY kind;
    CREATE VIEW weight AS SELECT SUM(weight) AS w, COUNT(*) AS n FROM items;
    CREATE VIEW visited AS SELECT place, SUM(n) AS n FROM visits GROUP BY place;
    CREATE VIEW everybody AS SELECT SUM(n) AS n FROM visits;
"""
PROGRAM = compile_sql(_TABLES, rely=False)
"""Where orders are spread, a deletion of goods is left to a vote."""
UNASKED = compile_sql(_TABLES.replace("g INT REFERENCES goods", "g INT"), rely=False)
"""No deletion is."""
_BY_ORDER = {"orders": ("o",), "items": ("o",)}
ASKED = (
    BucketPlan(2, {**_BY_ORDER, "visits": ("place",)}, by_key=("orders",)),
    BucketPlan(3, _BY_ORDER),
    BucketPlan(4, {**_BY_ORDER, "visits": ("n", "place")}, by_key=("orders",)),
    BucketPlan(1, _BY_ORDER, by_key=("orders",)),
)
"""Plans in which orders are spread."""
PLANS = (
    BucketPlan(),
    BucketPlan(3, {"visits": ("place",)}),
    BucketPlan(2),
    BucketPlan(2, {"goods": ("g",), "visits": ("place",)}, by_key=("goods",)),
    *ASKED,
)
_VIEWS = tuple(view.name for view in PROGRAM.shown_views)
JUDGED = (
    BucketPlan(2, {"goods": ("g",), "visits": ("place",)}, by_key=("goods",), groups=(GroupPlan(_VIEWS),)),
    BucketPlan(
        3,
        {**_BY_ORDER, "visits": ("place",)},
        by_key=("orders",),
        groups=(
            GroupPlan(("by_order", "dear", "weight"), 3, {"items": ("o",)}),
            GroupPlan(("by_kind", "kinds")),
            GroupPlan(("visited", "everybody"), 3, {"visits": ("place",)}),
        ),
    ),
)
"""Plans of judges, the second with a deletion of goods left to a vote."""
LARGE = str(10**38)
OF_KEPT = ("by_kind", "by_order", "dear", "kinds", "weight")
"""Views of tables whose rows are kept."""
_ORDER = {"goods": "seq", "orders": "seq", "items": "", "visits": ""}

Epoch = dict[str, list[dict[str, Any]]]


@st.composite
def epochs(draw: st.DrawFn, most: int = 7) -> list[Epoch]:
    """Return epochs: table → rows, with operations, some of them out of order, and some again."""
    found: list[Epoch] = []
    seq = 0
    told: list[tuple[str, dict[str, Any]]] = []
    loose: Counter[str] = Counter()
    for _ in range(draw(st.integers(3, most))):
        epoch: Epoch = {}
        for _ in range(draw(st.integers(0, 9))):
            table = draw(st.sampled_from(("goods", "orders", "orders", "items", "items", "visits", "again")))
            if table == "again":
                if told:
                    name, row = draw(st.sampled_from(told))
                    epoch.setdefault(name, []).append(row)
                continue
            row = draw(_ROWS[table])
            if table in ("goods", "orders"):
                seq += 1
                row |= {"op": draw(st.sampled_from("iiuud")), "seq": max(0, seq - draw(st.sampled_from((0, 0, 0, 3))))}
                if draw(st.integers(0, 30)) == 0:
                    row["op"] = "truncate"
                told.append((table, row))
            else:
                row |= {"op": "d" if loose[json.dumps(row)] and draw(st.booleans()) else "i"}
                loose[json.dumps({**row, "op": "i"})] += 1
            epoch.setdefault(table, []).append(row)
        found.append(epoch)
    return found


_FEW = st.integers(0, 4)
_ROWS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "goods": st.fixed_dictionaries({"g": _FEW, "kind": st.sampled_from(("x", "y", None))}),
    "orders": st.fixed_dictionaries({"o": _FEW, "g": _FEW | st.none(), "place": st.sampled_from(("p", "q"))}),
    "items": st.fixed_dictionaries(
        # Sums of these are exact in any order, and far above what is rounded away once large ones are gone.
        {"o": _FEW, "price": st.sampled_from(("1.50", "2.25")), "weight": st.sampled_from((0.25, 0.5, 2.0**20, None))}
    ),
    "visits": st.fixed_dictionaries(
        {"place": st.sampled_from(("p", "q", None)), "n": st.sampled_from(("1", "-3", LARGE))}
    ),
}


@dataclass
class Told:
    """What an epoch has come to: rows of views, refused rows, counts."""

    views: dict[str, list[Any]]
    refused: list[tuple[Any, ...]]
    counts: dict[str, int]


@dataclass
class Run:
    """Buckets of a plan, and what they have said after the last epoch."""

    folder: Path
    plan: BucketPlan
    make_engine: Callable[..., Engine]
    late_epochs: int = 10
    program: Program = PROGRAM
    epoch: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    poll: Poll = field(default_factory=Poll)

    def __post_init__(self) -> None:
        self.parts = self._parts()

    def _parts(self) -> list[list[Part]]:
        maker = PartMaker(self.program, self.plan, self.make_engine, self.late_epochs)
        counts = enumerate(part_counts(self.plan))
        return [[maker.make(stage, at) for at in range(count)] for stage, count in counts]

    def _dumps(self) -> list[bytes]:
        return [part.dump() for parts in self.parts for part in parts]

    def reshape(self, plan: BucketPlan) -> None:
        moved = iter(reshape(self.program, self.plan, self._dumps(), plan))
        self.plan = plan
        self.parts = self._parts()
        for parts in self.parts:
            for part in parts:
                part.load(next(moved))
        self.poll = Poll.merge(part.vote() for part in self.parts[0])

    def step(self, rows: Epoch) -> Told:
        self.epoch += 1
        packed = pack([self._reading(name, given) for name, given in rows.items()], self.plan)
        notice = pack_notice(self.poll.plain())
        coming = [[notice, mine] for mine in packed]
        for parts in self.parts:
            handed = [part.apply(self.epoch, mine) for part, mine in zip(parts, coming, strict=True)]
            coming = [list(each) for each in zip(*handed, strict=True)]
        judges = [part for part in self.parts[0] if isinstance(part, WholeBucket | RowJudge)]
        outcomes = [part.outcome for part in judges]
        self.poll = Poll.merge(each.poll for each in outcomes)
        counts = Counter[str]()
        for each in outcomes:
            counts.update(events=each.events, applied=each.applied, repeated=each.repeated, waiting=each.waiting)
            counts.update(refused=len(each.quarantine))
        self.totals.update({name: count for name, count in counts.items() if name != "waiting"})
        fates = sum(self.totals[name] for name in ("applied", "repeated", "refused"))
        assert self.totals["events"] == fates + counts["waiting"], (self.totals, counts)
        refused = [(row.relation, row.source, row.position, row.reason) for each in outcomes for row in each.quarantine]
        return Told(self.views(), sorted(refused), {name: counts[name] for name in ("events", "waiting", "repeated")})

    def _reading(self, name: str, rows: list[dict[str, Any]]) -> Reading:
        path = self.folder / "rows.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = FolderSource(name, "", "json", order=_ORDER[name])
        return read_file(source, self.program.relation(name), str(path), f"{name}/{self.epoch}")

    def rows(self) -> Epoch:
        """Return the kept rows of all buckets as insertions."""
        found: Epoch = {}
        program, plan = bucket_sets(self.program, self.plan)[0]
        states = unpack_parts(self.plan, self._dumps())[0]
        for name, kept in program.kept:
            tables = [state.maps[kept] for state in (states if name in plan.partitioned else states[:1])]
            rows = [each for table in tables for each in entries_of_table(program.map(kept), table)]
            names = self.program.relation(name).column_names
            found[name] = [dict(zip(names, map(_told, row), strict=True)) for row, (n,) in rows for _ in range(int(n))]
        return found

    def views(self) -> dict[str, list[Any]]:
        """Return the rows of all views, of all buckets together."""
        found = {}
        sets = zip(bucket_sets(self.program, self.plan), unpack_parts(self.plan, self._dumps()), strict=True)
        for (program, plan), states in sets:
            layout = layout_of(program, plan)

            def items(name: str, layout: Layout = layout, states: Sequence[BucketContents] = states) -> Any:
                definition = layout.program.map(name)
                tables = [entries_of_table(definition, state.maps[name]) for state in states]
                if len(tables) == 1 or layout.merge(name) is Merge.ANY:
                    tables = tables[:1]
                merged = layout.merged(name, tables)
                return [(key, read_stored(definition.values, stored)) for key, stored in merged.items()]

            for view in program.shown_views:
                rows = finish(program, view, items).to_pylist()
                found[view.name] = sorted((_rounded(row) for row in rows), key=repr)
        return found


def _told(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def _rounded(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return a row whose floats are equal if they differ by rounding alone."""
    return tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in row.values())
