"""Values that a change log leaves out: an update takes them from the row that is there, or it is quarantined."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.formats import lines
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from support.command_line import cumulus
from support.engines import engine_of
from support.tiers import one_mode_each, sampled

GONE = "__debezium_unavailable_value"
FORMS = [
    GONE,
    base64.b64encode(GONE.encode()).decode(),
    base64.b64encode(GONE.encode()).decode().rstrip("="),
    GONE.encode().hex(),
    [GONE],
    [GONE, GONE],
    [*GONE.encode()],
    {GONE: GONE},
    json.dumps([GONE]),
    json.dumps({GONE: GONE}),
    "b68a35a7-17ad-35b3-af2a-ae46edb4545a",  # Java's UUID.nameUUIDFromBytes
]
SCRIPT = """
CREATE TABLE t (id INT PRIMARY KEY, body VARCHAR, price DECIMAL(8, 2), day DATE, n INT NOT NULL, ok BOOLEAN);
CREATE VIEW v AS SELECT * FROM t;
"""
ROW = {"id": 1, "body": "long text", "price": "1.25", "day": 19000, "n": 1, "ok": True}
SHOWN = (1, "long text", "1.25", "2022-01-08", 1, True)


def message(op: str, after: Any = None, before: Any = None) -> str:
    return json.dumps({"before": before, "after": after, "op": op})


def run(tmp_path: Path, *epochs: Iterable[str], script: str = SCRIPT, options: str = "", **how: Any) -> None:
    (tmp_path / "in").mkdir(exist_ok=True)
    for at, rows in enumerate(epochs):
        (tmp_path / "in" / f"{at}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    program = compile_sql(script, rely=False)
    given = sources_from([f"t={tmp_path / 'in'}{options or ',format=debezium'}"], program)
    with EmbeddedRun(program, given, tmp_path / "out", make_engine=engine_of, **how) as running:
        for _ in running.steps():
            pass
    check_counts(tmp_path / "out")


def check_counts(out: Path) -> None:
    """Each event has one fate."""
    manifest = newest_manifest(out)
    assert manifest is not None
    totals = manifest.totals
    fates = ("applied", "repeated", "quarantined", "tombstones", "messages")
    assert totals["events"] == sum(totals[name] for name in fates) + manifest.counts["waiting"]


def rows_of(out: Path) -> list[tuple[Any, ...]]:
    found = query(out, "SELECT id, body, price::VARCHAR, day::VARCHAR, n, ok FROM v ORDER BY id").to_pylist()
    return [tuple(row.values()) for row in found]


def reasons(out: Path) -> list[str]:
    return [row["reason"] for row in query(out, "SELECT reason FROM quarantine ORDER BY ALL").to_pylist()]


@pytest.mark.parametrize("form", sampled(FORMS, of=2), ids=str)
@pytest.mark.usefixtures("each_engine")
def test_a_placeholder_keeps_the_value_of_each_type(tmp_path: Path, form: Any) -> None:
    updates = [message("u", ROW | {name: form}) for name in ("body", "price", "day", "n", "ok")]
    run(tmp_path, [message("c", ROW)], [*updates, message("u", ROW | {"body": form, "price": form, "n": 5})])
    assert rows_of(tmp_path / "out") == [(*SHOWN[:4], 5, True)]
    assert reasons(tmp_path / "out") == []


@pytest.mark.parametrize(("few", "schema"), one_mode_each((1, 10**9), (False, True)))
@pytest.mark.usefixtures("each_engine")
def test_many_updates_of_all_kinds(tmp_path: Path, few: int, schema: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line or by columns, with a schema or without: against the rows that a dict keeps."""
    monkeypatch.setattr(lines, "_FEW", few)
    wanted: dict[int, dict[str, Any]] = {}
    epochs: list[list[str]] = []
    for epoch in range(3):
        written = []
        for at in range(300):
            key = at % 100
            row = ROW | {"id": key, "n": 1000 * epoch + at, "body": None if at % 7 == 0 else f"text {at}"}
            if epoch == 0 and at < 100:
                op, after, before = "c", row, None
            else:
                op, after, before = "u", dict(row), dict(wanted[key]) if at % 3 == 0 else None
                left_out = [name for number, name in enumerate(("body", "price", "ok")) if (at >> number) % 2]
                for name in left_out:
                    row[name] = wanted[key][name]
                    if at % 2:
                        after[name] = GONE
                    else:
                        del after[name]
            wanted[key] = row
            envelope = {"before": before, "after": after, "op": op}
            written.append(json.dumps({"schema": {"type": "struct"}, "payload": envelope} if schema else envelope))
        epochs.append(written)
    run(tmp_path, *epochs)
    assert reasons(tmp_path / "out") == []
    found = {row[0]: row for row in rows_of(tmp_path / "out")}
    assert found == {key: (key, row["body"], *SHOWN[2:4], row["n"], row["ok"]) for key, row in wanted.items()}


def test_null_is_a_value(tmp_path: Path) -> None:
    """A field that is NULL is written; only one that is not there is kept."""
    run(tmp_path, [message("c", ROW)], [message("u", ROW | {"body": None, "ok": None, "n": 2})] * 200)
    assert rows_of(tmp_path / "out") == [(1, None, *SHOWN[2:4], 2, None)]


def test_no_row_to_keep_from(tmp_path: Path) -> None:
    missing = {name: value for name, value in ROW.items() if name != "body"}
    run(
        tmp_path,
        [
            message("u", missing),  # no row with this key
            message("c", ROW | {"body": GONE}),  # a new row has no old value
            message("u", ROW | {"id": GONE}),
            message("c", ROW),
            message("u", ROW | {"id": 2, "body": GONE}, ROW | {"body": GONE}),  # another key, and before has none
        ],
    )
    assert rows_of(tmp_path / "out") == [SHOWN]
    found = reasons(tmp_path / "out")
    assert [reason.split(":")[0] for reason in found] == ["body", "body", "body", "id"]
    assert all("has no row to take the value from" in reason for reason in found)


def test_the_old_row_of_the_message_has_it(tmp_path: Path) -> None:
    """Also where no rows are kept."""
    script = SCRIPT.replace(" PRIMARY KEY", "")
    run(tmp_path, [message("c", ROW)], [message("u", ROW | {"body": GONE, "n": 5}, ROW)], script=script)
    assert rows_of(tmp_path / "out") == [(*SHOWN[:4], 5, True)]


def test_without_kept_rows_it_is_quarantined(tmp_path: Path) -> None:
    for script in (SCRIPT.replace(" PRIMARY KEY", ""), SCRIPT.replace("BOOLEAN)", "BOOLEAN) WITH (keep = none)")):
        folder = tmp_path / str(len(script))
        folder.mkdir()
        run(
            folder,
            [message("c", ROW)],
            [
                message("u", ROW | {"body": GONE, "n": 5}),
                message("u", ROW | {"body": GONE, "n": 6}, ROW | {"body": GONE}),
                message("d", None, ROW | {"body": GONE}),
            ],
            script=script,
        )
        assert rows_of(folder / "out") == [SHOWN]
        assert len(reasons(folder / "out")) == 3


def test_a_deletion_does_not_mind_what_is_left_out(tmp_path: Path) -> None:
    rows = [ROW | {"id": at} for at in range(3)]
    run(
        tmp_path,
        [message("c", row) for row in rows],
        [message("d", None, rows[0] | {"body": GONE}), message("d", None, rows[1] | {"body": GONE, "n": 99})],
    )
    assert [row[0] for row in rows_of(tmp_path / "out")] == [1, 2]
    assert ["other values" in reason for reason in reasons(tmp_path / "out")] == [True]


def test_a_message_older_than_a_column(tmp_path: Path) -> None:
    """Neither row has the column: NULL in both where no rows are kept, else the kept value."""
    old = {name: value for name, value in ROW.items() if name != "body"}
    log = [message("c", old), message("u", old | {"n": 2}, old)]
    for name, script in (("kept", SCRIPT), ("not kept", SCRIPT.replace(" PRIMARY KEY", ""))):
        (tmp_path / name).mkdir()
        run(tmp_path / name, log, script=script)
        assert rows_of(tmp_path / name / "out") == [(1, None, *SHOWN[2:4], 2, True)]


def test_another_placeholder_and_none(tmp_path: Path) -> None:
    log = [message("c", ROW)], [message("u", ROW | {"body": "(gone)", "n": 2})] * 100
    for option, body in (("(gone)", "long text"), ("none", "(gone)"), ("other", "(gone)")):
        (tmp_path / option).mkdir()
        run(tmp_path / option, *log, options=f",format=debezium,unavailable={option}")
        assert rows_of(tmp_path / option / "out") == [(1, body, *SHOWN[2:4], 2, True)]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_plain_rows_where_a_placeholder_is_declared(tmp_path: Path, kind: str) -> None:
    """Flat rows, as Debezium's ExtractNewRecordState writes them."""
    (tmp_path / "in").mkdir()
    script = "CREATE TABLE t (id INT PRIMARY KEY, body VARCHAR, n INT); CREATE VIEW v AS SELECT * FROM t"
    for epoch, (body, op) in enumerate((("long", "c"), (GONE, "u"))):
        rows = [{"id": at, "body": f"{body} {at}" if body != GONE else GONE, "n": epoch, "op": op} for at in range(200)]
        path = tmp_path / "in" / f"{epoch}.{kind}"
        match kind:
            case "csv":
                cells = ["id,body,n,op", *(",".join(map(str, row.values())) for row in rows)]
                path.write_text("\n".join(cells))
            case "jsonl":
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            case _:
                pq.write_table(pa.Table.from_pylist(rows), path)
    program = compile_sql(script, rely=False)
    for option, wanted in ((f",unavailable={GONE}", "long 7"), ("", GONE)):
        out = tmp_path / f"out{len(option)}"
        given = sources_from([f"t={tmp_path / 'in'}{option}"], program)
        with EmbeddedRun(program, given, out, make_engine=engine_of) as running:
            for _ in running.steps():
                pass
        assert query(out, "SELECT body, n FROM v WHERE id = 7").to_pylist() == [{"body": wanted, "n": 1}]
        assert reasons(out) == []


HOSTS = {
    "one bucket": ("embedded",),
    "three buckets": ("embedded", "--layout", "one-round", "--buckets", "3"),
    "cluster": ("cluster", "--nodes", "2", "--switches", "2"),
}
SPREAD = """
CREATE TABLE t (id INT PRIMARY KEY, body VARCHAR, n INT NOT NULL, k INT NOT NULL);
CREATE VIEW v AS SELECT k, COUNT(*) AS rows, SUM(n) AS n, MIN(body) AS first, MAX(body) AS last FROM t GROUP BY k;
"""


@pytest.mark.parametrize("host", HOSTS)
def test_all_hosts(tmp_path: Path, host: str) -> None:
    """The rows are spread by `k`, which is no key: a bucket keeps its rows' values, and nothing is lost silently."""
    (tmp_path / "v.sql").write_text(SPREAD)
    (tmp_path / "in").mkdir()
    rows = [{"id": at, "body": f"text {at:03}", "n": at, "k": at % 7} for at in range(210)]
    epochs = [
        [message("c", row) for row in rows],
        [message("u", row | {"body": GONE, "n": 1000 + row["n"]}) for row in rows],
        [message("u", {"id": row["id"], "n": 2000 + row["n"], "k": row["k"]}) for row in rows],
        [message("d", None, row | {"body": GONE, "n": 2000 + row["n"]}) for row in rows[::2]],
        [message("u", {"id": 999, "n": 1, "k": 1})],
    ]
    for at, written in enumerate(epochs):
        (tmp_path / "in" / f"{at}.jsonl").write_text("\n".join(written))
    command = ("run", "v.sql", "--from", "t=in,format=debezium", "--out", "out", "--host", *HOSTS[host])
    ended = cumulus(*command, folder=tmp_path)
    assert ended.returncode == 0, ended
    out = tmp_path / "out"
    check_counts(out)
    left = [row for row in rows if row["id"] % 2]
    wanted = []
    for k in range(7):
        mine = [row for row in left if row["k"] == k]
        texts = [row["body"] for row in mine]
        wanted.append((k, len(mine), sum(2000 + row["n"] for row in mine), min(texts), max(texts)))
    found = query(out, "SELECT k, rows, n, first, last FROM v ORDER BY k").to_pylist()
    assert [tuple(v if isinstance(v, str) else int(v) for v in row.values()) for row in found] == wanted
    assert len(reasons(out)) == 1


def test_in_several_buckets_a_row_that_would_move_is_quarantined_or_right(tmp_path: Path) -> None:
    """The bucket that gets the row has no value to keep, and the one that has it is not its home any more."""
    (tmp_path / "v.sql").write_text(SPREAD)
    (tmp_path / "in").mkdir()
    rows = [{"id": at, "body": f"text {at:03}", "n": 1, "k": at % 7} for at in range(70)]
    moved = [{"id": row["id"], "n": 1, "k": row["k"] + 1} for row in rows]
    unsaid = [{"id": row["id"], "n": 1} for row in rows]
    for at, epoch in enumerate(([message("c", row) for row in rows], [message("u", row) for row in (*moved, *unsaid)])):
        (tmp_path / "in" / f"{at}.jsonl").write_text("\n".join(epoch))
    command = ("run", "v.sql", "--from", "t=in,format=debezium", "--out", "out", "--host", *HOSTS["three buckets"])
    ended = cumulus(*command, folder=tmp_path)
    assert ended.returncode == 0, ended
    check_counts(tmp_path / "out")
    shown = query(tmp_path / "out", "SELECT SUM(rows) AS rows, MIN(first) AS first FROM v").to_pylist()
    assert (int(shown[0]["rows"]), shown[0]["first"]) == (70, "text 000")
    manifest = newest_manifest(tmp_path / "out")
    assert manifest is not None
    assert 0 < manifest.totals["quarantined"] < 140
