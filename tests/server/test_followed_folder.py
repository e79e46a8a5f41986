"""The output folder of a run behind a server: what each epoch shows, and what changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cumulus.compiler import compile_sql
from cumulus.cubes import Cube
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.errors import DelayError, InputError, UsageError
from cumulus.server.answers import TableRows, WriteRequest
from cumulus.server.followed.folder import FollowedFolder
from cumulus.server.opening import open_source
from cumulus.server.settings import ServerSettings
from cumulus.views.folding import bounds_of
from support.cubes_of_orders import SCRIPT
from support.engines import engine_of
from support.orders_stream import OrdersStream

SQL = "SELECT nation, COUNT(*) FROM sales GROUP BY nation"


def bag(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_folder_is_followed_epoch_by_epoch(tmp_path: Path) -> None:
    program = compile_sql(SCRIPT, rely=False)
    stream = OrdersStream(tmp_path / "in", 5)
    for _ in range(4):
        stream.write(40)
    out = tmp_path / "out"
    with pytest.raises(InputError):
        open_source(tmp_path, ServerSettings(tmp_path / "data"))
    with EmbeddedRun(program, sources_from([str(tmp_path / "in")], program), out, make_engine=engine_of, keep=9) as run:
        steps = run.steps()
        next(iter(steps))
        source = open_source(out, ServerSettings(tmp_path / "data"))
        assert isinstance(source, FollowedFolder)
        told: list[int] = []
        source.listen(told.append)
        before = source.view("sales")
        assert before.at == source.at == 1
        at, changes = source.changes("SALES")
        assert at == 1
        shown = bag(before.table)
        for number in (2, 3, 4):
            next(iter(steps))
            source.wait_for(number, 10)
            for each in changes.take():
                for old, new in each.rows:
                    shown.update({old: -1} if new is None else {new: 1})
            found = source.view("sales")
            assert found.at == number
            assert +shown == bag(found.table)
    assert told == [2, 3, 4]
    assert bag(before.table) != bag(found.table)
    with pytest.raises(DelayError):
        source.wait_for(5, 0)
    nation = found.table["nation"][0].as_py()
    some = source.view("sales", columns=["Nation"], where=bounds_of({"nation": nation}), limit=1)
    assert some.table.to_pylist() == [{"nation": nation}]
    asked = source.query(SQL)
    assert asked.at == 4
    counted = Counter(found.table["nation"].to_pylist())
    assert bag(asked.table) == Counter(counted.items())
    rolled = Cube(source.cubes(), "sales").rollup("nation").arrow()
    assert sorted(map(repr, rolled["nation"].to_pylist())) == sorted(map(repr, counted))
    with pytest.raises(UsageError, match="does not exist"):
        source.query("FROM sales", only=["revenue"])
    with pytest.raises(UsageError, match="is only read here"):
        source.write(WriteRequest((TableRows("insert", "orders", []),)))
    assert source.epochs().table["at"].to_pylist() == [4, 3, 2, 1]
    assert source.errors().table.num_rows == 0
    assert source.errors("sales").at == 4
    refused = source.quarantine().table
    assert refused.column_names == ["at", "table", "reason", "row"]
    assert set(refused["at"].to_pylist()) <= {1, 2, 3, 4}
    assert refused.num_rows > 0
    assert source.status()["at"] == 4
    source.close()
