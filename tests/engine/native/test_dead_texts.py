"""Texts that no row names any more go: from memory while rows come and go, and from what is saved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulus
from cumulus.engine.native.values import text_sweep
from support.tiers import sampled

IDS = """
    CREATE TABLE r (id VARCHAR NOT NULL, g VARCHAR, x INTEGER);
    CREATE VIEW v AS SELECT id, SUM(x) AS s FROM r GROUP BY id;
    CREATE VIEW w AS SELECT g, COUNT(*) AS n FROM r GROUP BY g;
"""
ALL = """
    CREATE TABLE r (id VARCHAR NOT NULL, g VARCHAR, i INTERVAL, x INTEGER);
    CREATE TABLE t (id VARCHAR PRIMARY KEY, name VARCHAR);
    CREATE VIEW groups AS SELECT id, g, COUNT(*) AS n FROM r GROUP BY id, g;
    CREATE VIEW ends AS SELECT g, MIN(id) AS lo, MAX(id) AS hi, COUNT(DISTINCT id) AS d FROM r GROUP BY g;
    CREATE VIEW joined AS SELECT t.name, SUM(r.x) AS s FROM r JOIN t USING (id) GROUP BY t.name;
    CREATE VIEW some AS SELECT upper(g) AS u, COUNT(*) AS n FROM r WHERE id LIKE '%1' OR g = 'a' GROUP BY upper(g);
    CREATE VIEW spans AS SELECT i, COUNT(*) AS n FROM r GROUP BY i;
    CREATE VIEW named AS SELECT id, CASE WHEN name = 'a' THEN 'the literal' ELSE name END AS c FROM t;
""".replace("VIEW some", 'VIEW "some"')
VIEWS = ("groups", "ends", "joined", "some", "spans", "named")


def texts_of(wh: cumulus.Warehouse) -> Any:
    return wh._state.session.engine.code.dictionary  # type: ignore[attr-defined]


def size_of(folder: Path) -> int:
    return sum(os.path.getsize(each) for each in folder.rglob("*") if each.is_file())


def table_of(rows: list[tuple[str, str | None, int]]) -> pa.Table:
    ids, groups, numbers = zip(*rows, strict=True)
    return pa.table({"id": ids, "g": pa.array(groups, pa.string()), "x": pa.array(numbers, pa.int32())})


@pytest.mark.parametrize("way", sampled(["rows", "arrow"], of=2))
def test_memory_is_flat_while_ids_come_and_go(way: str, tmp_path: Path) -> None:
    """Twenty rounds of 50,000 ids: as many texts as in two rounds, and a limit that all together would exceed."""
    wh = cumulus.Warehouse(IDS, engine="native", memory_limit="60MB")
    wh.insert("r", [(f"stays {each}", f"g{each % 3}", each) for each in range(300)])
    most = 0
    for at in range(20):
        rows = [(f"round {at} id {each} of many", f"g{each % 5}", each) for each in range(50_000)]
        given = rows if way == "rows" else table_of(rows)
        wh.insert("r", given)
        wh.delete("r", given)
        most = max(most, len(texts_of(wh).values_of))
    assert most < 120_000
    expected = sorted((f"stays {each}", each) for each in range(300))
    assert sorted(wh.view("v").rows()) == expected
    wh.save(tmp_path / "saved")
    assert size_of(tmp_path / "saved") < 200_000
    for engine in ("native", "interpreter"):
        loaded = cumulus.Warehouse.load(tmp_path / "saved", engine=engine)
        assert sorted(loaded.view("v").rows()) == expected
        loaded.insert("r", [("new", "g1", 5)])
        assert loaded.view("v").get("new") == ("new", 5)
        assert loaded.view("v").get("stays 7") == ("stays 7", 7)
        loaded.close()
    wh.close()


def test_a_text_that_is_dead_is_not_saved(tmp_path: Path) -> None:
    wh = cumulus.Warehouse(IDS, engine="native")
    wh.insert("r", [("a secret that goes", "g", 1), ("stays", "g", 2)])
    wh.delete("r", [("a secret that goes", "g", 1)])
    wh.save(tmp_path / "saved")
    assert not any(b"a secret that goes" in each.read_bytes() for each in (tmp_path / "saved").rglob("maps.raw"))
    loaded = cumulus.Warehouse.load(tmp_path / "saved", engine="native")
    loaded.insert("r", [("a secret that goes", "h", 4)])
    assert sorted(loaded.view("v").rows()) == [("a secret that goes", 4), ("stays", 2)]
    loaded.save(tmp_path / "again")
    again = cumulus.Warehouse.load(tmp_path / "again", engine="interpreter")
    assert sorted(again.view("w").rows()) == [("g", 1), ("h", 1)]


def test_numbers_stay_while_somebody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_sweep, "_FEW", 1)
    wh = cumulus.Warehouse(IDS, engine="native")
    wh.insert("r", [(f"id {each}", "g", each) for each in range(50)])
    dictionary = texts_of(wh)

    class Reader:
        pass

    reader = Reader()
    dictionary.readers.add(reader)
    dictionary.sweep_at = 0
    wh.delete("r", [(f"id {each}", "g", each) for each in range(50)])
    dictionary.sweep_at = 0
    wh.insert("r", [("last", "g", 1), ("last", "g", 2)])
    assert len(dictionary.values_of) > 50
    del reader
    dictionary.sweep_at = 0
    wh.delete("r", [("last", "g", 1), ("last", "g", 2)])
    assert len(dictionary.values_of) <= 4


WORDS = st.sampled_from(["", "a", "b1", "c", "long " * 20, "ÿ\x00z", "d11", "e"])
SPANS = st.sampled_from([None, "1 day", "2 months", "90 seconds"])
ROWS = st.tuples(WORDS, WORDS | st.none(), SPANS, st.integers(-5, 5))
STEPS = st.lists(
    st.tuples(st.sampled_from(["list", "arrow", "one", "upsert", "away", "save"]), st.lists(ROWS, max_size=5))
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_views_do_not_see_a_sweep(steps: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Texts are swept before nearly each transaction; the interpreter, which has no numbers, says what is right."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_sweep, "_FEW", 0)
        native = cumulus.Warehouse(ALL, engine="native")
        model = cumulus.Warehouse(ALL, engine="interpreter")
        there: list[Any] = []
        for what, rows in steps:
            texts_of(native).sweep_at = 0
            if what == "save":
                native.save(folder / "one")
                native = cumulus.Warehouse.load(folder / "one", engine="native")
            elif what == "upsert":
                found = {row[0]: (row[0], row[1]) for row in rows}
                for wh in (native, model):
                    wh.upsert("t", list(found.values()))
            elif what == "away":
                gone, there = there[::2], there[1::2]
                for wh in (native, model):
                    wh.delete("r", gone)
            else:
                there += rows
                for wh in (native, model):
                    if what == "one":
                        for row in rows:
                            wh.insert("r", [row])
                    elif what == "arrow" and rows and all(row[2] is None for row in rows):
                        wh.insert("r", table_of([(row[0], row[1], row[3]) for row in rows]))
                    else:
                        wh.insert("r", rows)
            for view in VIEWS:
                key = repr
                assert sorted(native.view(view).rows(), key=key) == sorted(model.view(view).rows(), key=key), view
        native.close()
        model.close()
