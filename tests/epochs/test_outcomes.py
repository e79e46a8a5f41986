"""What becomes of an epoch's outcome: rows, refusals and errors reach the manifest together."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow.parquet as pq

import cumulus
from cumulus.cluster.intake import _blame_views
from cumulus.cluster.machine_tasks import WriteOutputs
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.processes.cluster_settings import ClusterSettings
from cumulus.cluster.processes.tasks import StateFiles, SwitchTasks
from cumulus.compiler import compile_sql
from cumulus.epochs.bucket.outcome import Outcome, merged_outcomes
from cumulus.epochs.bucket.view_errors import FailedRow
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.manifest import Written
from cumulus.epochs.output.publish import write_outcome
from cumulus.epochs.output.sink import Sink

SOURCE = Path(cumulus.__file__).parent
ROW = FailedRow("v", "too large", 1, "r", "r.csv", 3, "k=1")


def failed(**more: object) -> Outcome:
    return Outcome(events=2, applied=2, errors=[ROW], error_counts={"v": 1}, **more)  # type: ignore[arg-type]


def test_an_outcome_is_written_whole(tmp_path: Path) -> None:
    written = write_outcome(failed(), 3, 7, "a", tmp_path)
    assert (written.bucket, written.counts["events"], written.view_error_counts) == (3, 2, {"v": 1})
    (row,) = pq.read_table(tmp_path / written.view_errors["v"]).to_pylist()
    assert (row["epoch"], row["message"], row["source"], row["position"]) == (7, "too large", "r.csv", 3)


def test_a_switch_writes_the_errors_of_its_intake(tmp_path: Path) -> None:
    program = compile_sql("CREATE TABLE r (k INTEGER); CREATE VIEW v AS SELECT k, COUNT(*) AS n FROM r GROUP BY k")
    settings = ClusterSettings(str(tmp_path), str(tmp_path), "c", "p", 1, 1, "auto", (), ())
    sink, states = Sink(tmp_path, "c", "p"), StateFiles("switch0", tmp_path)
    (written,) = SwitchTasks(settings, plan_cluster(program, 1, 1), 0, states).run(WriteOutputs(1, True, failed()))
    manifest, _ = sink.commit(1, [written])
    sink.close()
    assert manifest.view_error_totals == {"v": 1}
    assert pq.read_table(tmp_path / manifest.view_errors["v"][0]).num_rows == 1


def test_errors_count_where_another_bucket_counts_the_rows(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "c", "p")
    gate = write_outcome(Outcome(events=2, applied=2, poll=Poll(asked=1)), 0, 1, "a", tmp_path)
    switch = write_outcome(failed().errors_alone(), 2, 1, "a", tmp_path)
    manifest, _ = sink.commit(1, [gate, switch])
    sink.close()
    assert (manifest.counts["events"], manifest.counts["errors"], manifest.poll["asked"]) == (2, 1, 1)


def test_parts_of_an_epoch_keep_their_errors() -> None:
    assert merged_outcomes([failed(), failed()]).error_counts == {"v": 2}


def test_errors_of_an_intake_are_those_of_views() -> None:
    outcome = Outcome(
        errors=[ROW._replace(view="r net"), ROW._replace(view="r rows"), ROW._replace(view="s net", relation="s")],
        error_counts={"r net": 1, "r rows": 1, "s net": 1500},
    )
    tables = {"r net": "r", "r rows": "r", "s net": "s"}
    _blame_views(outcome, tables, {"r": frozenset({"v", "w"}), "s": frozenset({"w"}), "t": frozenset()})
    assert [(each.view, each.relation) for each in outcome.errors] == [("v", "r"), ("w", "r"), ("w", "s")]
    assert outcome.error_counts == {"v": 1, "w": 1501}


def test_only_one_function_makes_counts_of_an_outcome() -> None:
    """A report whose counts come from an outcome has its errors, since one function makes both."""
    assert Written.__dataclass_fields__["counts"]
    found = []
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        if "Written(" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Written":
                counts = call.args[2] if len(call.args) > 2 else None
                if not (isinstance(counts, ast.Dict) and not counts.keys) and not any(
                    each.arg is None for each in call.keywords
                ):
                    found.append(str(file.relative_to(SOURCE)))
    assert found == ["epochs/output/publish.py"]
