"""`cumulus bench spark --floor` and `--first-epoch`: the product beside a stateful query that does nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def told(*arguments: str) -> list[dict[str, Any]]:
    command = [str(Path(sys.executable).with_name("cumulus")), "bench", "spark", "--sf", "0.01", "--json", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_both_queries_take_turns(tmp_path: Path) -> None:
    *rows, last = told("--floor", "--batch", "500", "--epochs", "6", "--cache", str(tmp_path))
    assert [row["epoch"] for row in rows] == [2, 3, 4, 5, 6]
    for row in rows:
        assert row["events"] == 500
        # Nothing of the other one's is in a turn: its stages are within, and leave time for the rest.
        for who in ("", "floor_"):
            trigger = row[f"{who or 'trigger_'}ms"]
            assert 0 < row[f"{who}task_ms"] <= row[f"{who}stateful_ms"] + 1
            assert 0 < row[f"{who}outside_ms"] < trigger
            assert row[f"{who}reading_ms"] + row[f"{who}stateful_ms"] + row[f"{who}outside_ms"] <= trigger + 3
    assert last["summary"]["medians"]["ratio"] > 0


def test_first_epochs_take_turns(tmp_path: Path) -> None:
    *rows, last = told("--first-epoch", "--batch", "500", "--repetitions", "1", "--cache", str(tmp_path))
    assert [row["what"] for row in rows] == ["product", "floor"]
    assert all(0 < row["session_ms"] < row["query_ms"] < row["done_ms"] for row in rows)
    assert last["summary"]["ratio"] > 0
