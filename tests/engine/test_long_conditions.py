"""Many conditions in one view: the generated Python stays within what Python takes."""

from __future__ import annotations

import cumulus


def test_two_hundred_conditions_are_one_if() -> None:
    conditions = " AND ".join(f"(a = {place} OR b <> {place})" for place in range(200))
    wh = cumulus.Warehouse(
        f"""CREATE TABLE r (a INT NOT NULL, b INT NOT NULL);
            CREATE VIEW v AS SELECT COUNT(*) AS n FROM r WHERE {conditions}"""
    )
    wh.insert("r", [(1, 5), (2, 300), (5, 5)])
    assert wh.view("v").rows() == [(2,)]
