"""What a run on Spark refuses before it asks for a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cumulus.epochs.output.identity import STATE_FORMS, Checkpoint
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import MismatchError, UsageError
from cumulus.m3 import parse
from cumulus.spark import maintain
from support.orders_stream import PROGRAM

NO_SESSION: Any = None


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("hdfs://name/out", "there is no store of the kind hdfs"),
        ("s3://", "has no bucket"),
        ("s3://b/out", "checkpoint"),
    ],
)
def test_an_output_that_cannot_be_is_told(tmp_path: Path, out: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        maintain(NO_SESSION, parse(PROGRAM), tmp_path, out)


def test_state_of_another_form_is_refused(tmp_path: Path) -> None:
    program = parse(PROGRAM)
    made = Checkpoint(str(tmp_path), "spark")
    made.bind(program, BucketPlan)
    made.close()
    card = tmp_path / "cumulus.json"
    said = json.loads(card.read_text())
    assert said.pop("state") == STATE_FORMS["spark"]  # which the first form's cards do not have
    card.write_text(json.dumps(said))
    again = Checkpoint(str(tmp_path), "spark")
    with pytest.raises(MismatchError, match="keeps its state in another form"):
        again.bind(program, BucketPlan)
    again.close()
