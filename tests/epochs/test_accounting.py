"""Rows in are rows applied, repeated, waiting or quarantined, or records that say nothing: in every format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus.catalog.events import POSITION_COLUMN
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.engines import make_engine
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.formats import lines
from cumulus.epochs.intake.packing import pack, pack_notice
from cumulus.epochs.intake.reading import Reading, read_file
from cumulus.epochs.output.query import query
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError
from support.engines import engine_of

PROGRAM = compile_sql(
    """
    CREATE TABLE parents (id INT PRIMARY KEY, name VARCHAR);
    CREATE TABLE children (id INT PRIMARY KEY, parent INT REFERENCES parents (id), x DECIMAL(6,2));
    CREATE TABLE bag (id INT, x DECIMAL(6,2)) WITH (keep = all);
    CREATE TABLE loose (id INT, name VARCHAR) WITH (keep = none);
    CREATE VIEW per AS SELECT parent, COUNT(*) AS n, SUM(x) AS s FROM children GROUP BY parent;
    CREATE VIEW names AS SELECT name, COUNT(*) AS n FROM parents GROUP BY name;
    CREATE VIEW bags AS SELECT id, COUNT(*) AS n FROM bag GROUP BY id;
    CREATE VIEW loosely AS SELECT id, COUNT(*) AS n FROM loose GROUP BY id;
    """,
    rely=False,
)
PLANS = [
    BucketPlan(),
    BucketPlan(2, {"parents": ("id",), "children": ("parent",)}),
    BucketPlan(2, {"children": ("id",)}),
    BucketPlan(3),
]
CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

IDS = st.integers(0, 2)
OPS = st.sampled_from(["i", "i", "i", "u", "d", "truncate", "?"])
BROKEN = st.one_of(
    st.sampled_from(
        [
            b"",
            b" ",
            b"null",
            b"{}",
            b"[" * 500,
            b'{"id": 1, "name": "\\ud83d"}',
            b'{"id": "x"}',
            b"\xef\xbb\xbf",
            b"\x00",
            b'{"id": ' + b"9" * 4500 + b"}",
            b'{"id": 1, "name": "\xff"}',
            b'{"payload": null}',
            b'{"id": 1',
            b"1,2,3,4",
        ]
    ),
    st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"").replace(b'"', b"")),
)


@st.composite
def fields(draw: st.DrawFn, table: str) -> dict[str, Any]:
    row: dict[str, Any] = {"id": draw(IDS)}
    names = PROGRAM.relation(table).column_names
    if "parent" in names:
        row["parent"] = draw(st.one_of(st.none(), IDS))
    if "x" in names:
        row["x"] = draw(st.sampled_from([1, 2.5, "3.75", 1.234, None]))
    if "name" in names:
        row["name"] = draw(st.sampled_from(["a", "é", None]))
    return row


@st.composite
def json_file(draw: st.DrawFn, table: str) -> bytes:
    has_order = draw(st.booleans())

    def line() -> bytes:
        row = draw(fields(table)) | {"op": draw(OPS)} | ({"seq": draw(st.integers(0, 5))} if has_order else {})
        return json.dumps(row).encode()

    return b"\n" + b"\n".join(
        draw(BROKEN) if draw(st.integers(0, 5)) == 0 else line() for _ in range(draw(st.integers(0, 8)))
    )


@st.composite
def debezium_file(draw: st.DrawFn, table: str) -> bytes:
    def line() -> bytes:
        sides = [draw(st.one_of(st.none(), fields(table))) for _ in range(2)]
        op = draw(st.sampled_from("ccccuudrtm?"))
        envelope = {"before": sides[0], "after": sides[1], "op": op, "source": {"lsn": draw(st.integers(0, 9))}}
        message = draw(st.sampled_from([envelope, {"payload": envelope}, {"schema": None, "payload": envelope}]))
        return json.dumps(message).encode()

    return b"\n" + b"\n".join(
        draw(BROKEN) if draw(st.integers(0, 5)) == 0 else line() for _ in range(draw(st.integers(0, 8)))
    )


@st.composite
def csv_file(draw: st.DrawFn, table: str) -> bytes:
    names = [*PROGRAM.relation(table).column_names, "op"]

    def line() -> bytes:
        row = draw(fields(table)) | {"op": draw(OPS)}
        return ",".join("" if row[name] is None else str(row[name]) for name in names).encode()

    body = [draw(BROKEN) if draw(st.integers(0, 5)) == 0 else line() for _ in range(draw(st.integers(0, 8)))]
    return b"\n".join([",".join(names).encode(), *body]) + b"\n"


@st.composite
def parquet_file(draw: st.DrawFn, table: str) -> bytes:
    rows = [draw(fields(table)) | {"op": draw(OPS)} for _ in range(draw(st.integers(0, 8)))]
    names = [*PROGRAM.relation(table).column_names, "op"]
    columns = {name: [None if row[name] is None else str(row[name]) for row in rows] for name in names}
    made = pa.BufferOutputStream()
    pq.write_table(pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()}), made)
    data: bytes = made.getvalue().to_pybytes()
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


MADE = {"json": json_file, "debezium": debezium_file, "csv": csv_file, "parquet": parquet_file}


@st.composite
def epochs(draw: st.DrawFn) -> list[list[tuple[str, str, bytes]]]:
    """Files of some epochs: table, format, and what is in them."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        files = []
        for table in ("parents", "children", "bag", "loose"):
            kind = draw(st.sampled_from(sorted(MADE)))
            if draw(st.booleans()):
                files.append((table, kind, draw(MADE[kind](table))))
        found.append(files)
    return found


def records_in(kind: str, data: bytes, reading: Reading) -> int:
    """Return how many records a file has, counted another way."""
    if kind == "parquet":
        return int(pq.read_metadata(pa.BufferReader(data)).num_rows)
    if kind == "csv":
        return sum(1 for line in data.split(b"\n")[1:] if line)
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    return sum(1 for line in data.split(b"\n") if line.strip().removeprefix(b"\xef\xbb\xbf").strip())


@settings(max_examples=30, deadline=None, suppress_health_check=CHECKS)
@given(files=epochs(), plan=st.sampled_from(PLANS))
def test_each_row_has_one_fate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Sequence[Any], plan: BucketPlan
) -> None:
    check_fates(tmp_path, monkeypatch, files, plan)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=CHECKS)
@given(files=epochs(), plan=st.sampled_from(PLANS))
def test_each_of_many_rows_has_one_fate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Sequence[Any], plan: BucketPlan
) -> None:
    check_fates(tmp_path, monkeypatch, files, plan)


def check_fates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Sequence[Any], plan: BucketPlan) -> None:
    monkeypatch.setattr(lines, "_FEW", 2)
    buckets = [Bucket(PROGRAM, plan, at, partial(make_engine, "interpreter"), 2) for at in range(plan.buckets)]
    totals = Outcome()
    refused = ignored = 0
    poll = Poll()
    for epoch, each in enumerate(files, 1):
        payloads = [[pack_notice(poll.plain())] for _ in buckets]
        for table, kind, data in each:
            path = tmp_path / f"1.{'json' if kind == 'debezium' else kind}"
            path.write_bytes(data)
            source = FolderSource(table, "", kind, order="source.lsn" if kind == "debezium" else "seq")
            relation, label = PROGRAM.relation(table), f"{table}/{epoch}"
            if kind == "parquet" and (data[-4:] != b"PAR1" or len(data) < 12):
                with pytest.raises(InputError, match="not a whole Parquet file"):
                    read_file(source, relation, str(path), label)
                continue
            reading = read_file(source, relation, str(path), label)
            positions = set(reading.rows.column(POSITION_COLUMN).to_pylist()) | {
                row.position for row in reading.rejected
            }
            assert len(positions) + sum(reading.ignored.values()) == records_in(kind, data, reading)
            for mine, payload in zip(payloads, pack([reading], plan), strict=True):
                mine.append(payload)
        outcomes = [bucket.apply(epoch, mine) for bucket, mine in zip(buckets, payloads, strict=True)]
        poll = Poll.merge(outcome.poll for outcome in outcomes)
        for outcome in outcomes:
            assert outcome.applied >= 0
            totals.events += outcome.events
            totals.applied += outcome.applied
            totals.repeated += outcome.repeated
            refused += len(outcome.quarantine)
            ignored += sum(outcome.ignored.values())
        waiting = sum(outcome.waiting for outcome in outcomes)
        assert totals.events == totals.applied + totals.repeated + refused + ignored + waiting


ITEMS = """
CREATE TABLE items (id INT PRIMARY KEY, x INT);
CREATE TABLE tags (tag VARCHAR) WITH (keep = all);
CREATE TABLE notes (note VARCHAR);
CREATE VIEW total AS SELECT COUNT(*) AS n, SUM(x) AS s FROM items;
CREATE VIEW tagged AS SELECT tag, COUNT(*) AS n FROM tags GROUP BY tag;
CREATE VIEW noted AS SELECT note, COUNT(*) AS n FROM notes GROUP BY note;
"""


def write(path: Path, rows: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def message(op: str, lsn: int, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}


@pytest.mark.usefixtures("each_engine")
def test_a_truncation_takes_all_rows_away(tmp_path: Path) -> None:
    items, tags, notes = (tmp_path / name for name in ("items", "tags", "notes"))
    write(items / "1.json", [message("c", at, {"id": at, "x": at}) for at in range(5)])
    write(
        items / "2.json",
        [message("c", 12, {"id": 7, "x": 70}), message("t", 11), message("u", 10, {"id": 1, "x": 1}), message("t", 11)],
    )
    write(
        items / "3.json",
        [message("t", 11), message("c", 4, {"id": 9, "x": 9}), message("c", 13, {"id": 1, "x": 3}), None],
    )
    write(tags / "1.json", [{"tag": "a"}, {"tag": "a"}, {"tag": "b"}])
    write(tags / "2.json", [{"tag": "a"}, {"op": "truncate"}, {"tag": "c"}, {"tag": "b"}, {"tag": "b"}])
    write(notes / "1.json", [{"note": "a"}])
    write(notes / "2.json", [{"op": "truncate"}])
    write(notes / "3.json", [{"note": "b"}])
    program = compile_sql(ITEMS, rely=False)
    given_ = [f"items={items},format=debezium,order=source.lsn", f"tags={tags}", f"notes={notes}"]
    out = tmp_path / "out"
    told = []
    for _ in range(2):  # the second run replays the log
        with EmbeddedRun(program, sources_from(given_, program), out, make_engine=engine_of) as running:
            told.extend(running.steps())
    totals = [query(out, "SELECT n::INT AS n, s::INT AS s FROM total", epoch).to_pylist() for epoch in (1, 2, 3)]
    assert totals == [[{"n": 5, "s": 10}], [{"n": 1, "s": 70}], [{"n": 2, "s": 73}]]
    tagged = query(out, "SELECT tag, n::INT AS n FROM tagged ORDER BY tag").to_pylist()
    assert tagged == [{"tag": "b", "n": 2}, {"tag": "c", "n": 1}]
    [refused] = query(out, "SELECT relation, position, reason, row FROM quarantine").to_pylist()
    assert (refused["relation"], refused["position"], refused["row"]) == ("notes", 1, "truncate notes")
    assert refused["reason"].startswith("truncation: the rows of notes are not kept")
    for epoch in committed_epochs(out):
        manifest = read_manifest(out, epoch)
        known = manifest.totals
        fates = ("applied", "repeated", "quarantined", "tombstones", "messages")
        assert known["events"] == sum(known[name] for name in fates) + manifest.counts["waiting"]
    assert (known["events"], known["repeated"], known["tombstones"]) == (33, 3, 1)
