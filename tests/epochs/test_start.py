"""Views with rows over empty tables, from folders: there in every epoch, once, however many buckets there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.explain.layout.co_partitioning import lay_out
from cumulus.m3 import parse
from support.engines import engine_of
from support.oracle import Oracle, same_bag
from support.orders_stream import json_lines
from support.tiers import sampled

pytestmark = pytest.mark.usefixtures("each_engine")

TABLES = "CREATE TABLE r (a INT, b INT); CREATE TABLE s (b INT); CREATE TABLE p (b INT);\n"
VIEWS = {
    # Of s, which has no event until epoch 3, and of p, which has none.
    "late": "SELECT COUNT(*) AS k, SUM(x.m) AS y FROM (SELECT MAX(b) AS m FROM s) x",
    "never": "SELECT x.n FROM (SELECT COUNT(*) AS n FROM p) x",
    # Where r is spread, this lies in parts, and the others by its key.
    "parts": "SELECT b, a AS n FROM r UNION ALL SELECT NULL, COUNT(*) FROM s",
    "per_key": "SELECT a, COUNT(*) AS n FROM r GROUP BY a",
    "joined": "SELECT r.a, x.n FROM r JOIN (SELECT COUNT(*) AS n FROM s) x ON r.b >= x.n",
}
EPOCHS: list[list[tuple[int, str, tuple[Any, ...]]]] = [
    [(1, "r", (1, 0)), (1, "r", (2, 0)), (1, "r", (3, 1))],
    [(-1, "r", (1, 0)), (1, "r", (1, 5))],
    [(1, "s", (4,)), (1, "r", (4, 1))],
    [(-1, "s", (4,)), (-1, "r", (2, 0))],
]


def write(folder: Path) -> None:
    (folder / "p").mkdir(parents=True)
    names = {"r": ("a", "b"), "s": ("b",)}
    for number, events in enumerate(EPOCHS, 1):
        for table, columns in names.items():
            rows = [
                {**dict(zip(columns, row, strict=True)), "op": "i" if sign > 0 else "d"}
                for sign, relation, row in events
                if relation == table
            ]
            json_lines(folder / table / f"{number}.json", rows)


@pytest.mark.parametrize(
    ("layout", "buckets"),
    sampled([("one-bucket", 1), ("one-round", 3), ("one-round:r=a", 1), ("one-round:r=a", 3)], of=3),
)
def test_every_epoch_shows_them_once(tmp_path: Path, layout: str, buckets: int) -> None:
    write(tmp_path / "in")
    script = TABLES + "".join(f"CREATE VIEW {name} AS {select};\n" for name, select in VIEWS.items())
    program = compile_sql(script, rely=False)
    assert lay_out(program, {"r": ("a",)}).tag_text("parts") == "part"
    sources = sources_from([str(tmp_path / "in")], program)
    oracle = Oracle(TABLES)
    for number, events in enumerate(EPOCHS, 1):
        # A run of its own for each epoch: it restores what the last one left.
        with EmbeddedRun(
            program, sources, tmp_path / "out", make_engine=engine_of, layout=layout, buckets=buckets
        ) as run:
            step = run.step()
            assert step is not None
            assert run.identity.plan.buckets == (1 if layout == "one-bucket" else buckets)
        for event in events:
            oracle.apply(*event)
        for name, select in VIEWS.items():
            found = [tuple(row.values()) for row in query(tmp_path / "out", f"FROM {name}", number).to_pylist()]
            assert same_bag(found, oracle.rows(select)), (number, name)


def test_an_entry_starts_where_an_event_would_have_put_it() -> None:
    program = parse(
        """RELATION r(a INT, b INT); RELATION s(b INT);
        MAP same[b INT](n BIGINT) START (1: 7);
        MAP own[a INT](n BIGINT) START (1: 7), (2: 7);
        MAP part[](n BIGINT) START (: 7);
        ON +r(a, b) { own[a] += 1; part[] += b }
        ON +s(b) { same[b] += 1 }"""
    )
    layout = lay_out(program, {"r": ("a",)})
    assert {name: layout.tag_text(name) for name in layout.tags} == {"same": "same", "own": "local(a)", "part": "part"}
    spread = [layout.bucket_program(bucket, 4) for bucket in range(4)]
    assert [len(each.map("same").initial) for each in spread] == [1, 1, 1, 1]
    assert [[key for key, _ in each.map("own").initial] for each in spread] == [[], [(1,)], [(2,)], []]
    assert [len(each.map("part").initial) for each in spread] == [1, 0, 0, 0]
    assert lay_out(program, {}).bucket_program(0, 1) == program
