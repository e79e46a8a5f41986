"""A server is sent batches of rows, and asked random questions with MEASURE in between: DuckDB says the same."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cumulus.errors import UsageError
from support.http_server import running
from support.oracle import Oracle, same_bag
from support.random_folds import FoldedView, folded_views
from support.random_measures import asked, counted
from support.random_tables import SCHEMA, Event, streams
from support.tiers import WHOLE

SERVERS, BATCHES, QUESTIONS = (190, 4, 15) if WHOLE else (3, 2, 4)


def ask_all(views: list[FoldedView], batches: list[list[Event]], data: st.DataObject, seen: Counter[str]) -> None:
    script = SCHEMA + "".join(f"{view.script.replace(' v ', f' v{n} ', 1)};\n" for n, view in enumerate(views))
    oracle, last = Oracle(SCHEMA), 0
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), script, keep="none") as server:
        client = server.client()
        for batch in batches:
            with client.transaction() as transaction:
                for sign, table, row in batch:
                    change = transaction.insert if sign > 0 else transaction.delete
                    change(table, [row])
                    oracle.apply(sign, table, row)
            for _ in range(QUESTIONS):
                which = data.draw(st.integers(0, len(views) - 1))
                question = data.draw(asked(views[which], f"v{which}"))
                try:
                    answer = client.query(question.measured)
                except UsageError as problem:
                    if "cannot be folded" not in str(problem):
                        raise
                    seen["refused"] += 1
                    continue
                assert answer.epoch is not None
                assert answer.epoch >= max(last, 1)
                last = answer.epoch
                wanted = oracle.database.execute(question.plain).fetchall()
                assert same_bag(answer.rows(), wanted), (script, question, answer.rows(), wanted)
                seen.update([*question.constructs, *question.kinds, "questions"])


@pytest.mark.slow
@pytest.mark.law
def test_answers_over_http_are_those_of_base_rows() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=SERVERS, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(
        views=st.lists(folded_views().map(counted), min_size=2, max_size=6),
        batches=st.lists(streams(), min_size=BATCHES, max_size=BATCHES),
        data=st.data(),
    )
    def law(views: list[FoldedView], batches: list[list[Event]], data: st.DataObject) -> None:
        ask_all([replace(view) for view in views], batches, data, seen)

    law()
    print(dict(seen))
    assert seen["questions"] > (10_000 if WHOLE else 10)
