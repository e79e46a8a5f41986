"""Odd files on Spark: the same rows, quarantine and counts as in the embedded host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import UsageError
from cumulus.spark.pipeline import maintain
from support.engines import engine_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SQL = """
CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR, price DECIMAL(8,2));
CREATE TABLE marks (id INT, mark VARCHAR);
CREATE VIEW named AS SELECT name, COUNT(*) AS n, SUM(price) AS total FROM items GROUP BY name;
CREATE VIEW marked AS SELECT mark, COUNT(*) AS n FROM marks GROUP BY mark;
"""


def _write(folder: Path) -> None:
    (folder / "items").mkdir()
    (folder / "marks").mkdir()
    rows = [{"id": at, "name": f"n{at % 3}", "price": "BNI="} for at in range(6)]
    plain = [json.dumps({"before": None, "after": row, "op": "c", "source": {"lsn": row["id"]}}) for row in rows]
    nested = json.dumps(
        {"payload": {"before": rows[0], "after": rows[0] | {"name": "x"}, "op": "u", "source": {"lsn": 9}}}
    )
    odd = [
        "null",
        '{"id": 1, "name": "\\ud83d"}',
        "[" * 5000,
        '{"after": {"id": ' + "1" * 5000 + '}, "source": {"lsn": 8}}',
    ]
    (folder / "items" / "1.json").write_text("\n".join([*plain, nested, *odd, plain[0]]))
    emptied = [json.dumps({"op": "t", "source": {"lsn": 20}}), plain[1], json.dumps({"op": "m"})]
    more = json.dumps({"after": rows[5] | {"id": 7}, "op": "c", "source": {"lsn": 21}})
    (folder / "items" / "2.json").write_text("\n".join([*emptied, more]))
    (folder / "marks" / "1.csv").write_bytes(b'ID;Mark\n1;a\n2;caf\xe9\n3\n4;"b\n5;c\n')


@pytest.mark.slow
def test_odd_files_end_alike_in_both_hosts(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path)
    program = compile_sql(SQL, rely=False)
    log = f"items={tmp_path}/items,format=debezium,order=source.lsn,decimals=base64"
    sources = sources_from([log, f"marks={tmp_path}/marks,sep=;"], program)
    maintain(spark, program, {each.relation: each for each in sources}, tmp_path / "spark")
    with EmbeddedRun(program, sources, tmp_path / "embedded", make_engine=engine_of) as running:
        assert len(list(running.steps())) == 2
    spark_out, alone = tmp_path / "spark", tmp_path / "embedded"
    assert committed_epochs(spark_out) == committed_epochs(alone) == [1, 2]
    for epoch in (1, 2):
        for text in ("FROM named ORDER BY ALL", "FROM marked ORDER BY ALL", "FROM quarantine ORDER BY ALL"):
            assert query(spark_out, text, epoch).to_pylist() == query(alone, text, epoch).to_pylist()
        assert read_manifest(spark_out, epoch).totals == read_manifest(alone, epoch).totals
    totals = read_manifest(alone, 2).totals
    fates = ("applied", "repeated", "quarantined", "tombstones", "messages")
    assert totals["events"] == sum(totals[name] for name in fates)
    assert {name: totals[name] for name in fates[1:]} == {
        "repeated": 2,
        "quarantined": 6,
        "tombstones": 1,
        "messages": 1,
    }
    assert query(alone, "SELECT name, n::INT AS n FROM named").to_pylist() == [{"name": "n2", "n": 1}]


def test_a_remote_output_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path)
    with pytest.raises(UsageError, match="out s3://bucket/out: Spark's checkpoint needs a place of its own"):
        maintain(spark, compile_sql(SQL, rely=False), str(tmp_path), "s3://bucket/out")
    with pytest.raises(UsageError, match="this Spark has no Hadoop file system for s3a://"):
        maintain(spark, compile_sql(SQL, rely=False), str(tmp_path), "s3://bucket/out", "s3a://bucket/state")
    options = {"secret_access_key": "x"}
    with pytest.raises(UsageError, match="secret_access_key: Spark's workers are not sent credentials"):
        maintain(spark, compile_sql(SQL, rely=False), str(tmp_path), tmp_path / "out", storage=options)
