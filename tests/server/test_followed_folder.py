"""The output folder of a run behind a server, while the run goes on."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus import Cube, errors
from cumulus.cli.main import app
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import changed_rows
from cumulus.epochs.sources import sources_from
from cumulus.hosts import RowRequest
from cumulus.server.access import Role, UserFile
from cumulus.server.followed.folder_source import FollowedFolder
from cumulus.server.settings import ServerSettings
from cumulus.server.single_writer import SingleWriter
from support.cubes_of_orders import QUERIES, SCRIPT, SELECTIONS
from support.engines import engine_of
from support.http_server import Served, serving
from support.oracle import same_bag
from support.orders_stream import OrdersStream

REVENUE = "SELECT nation, SUM(price) AS s FROM customers JOIN orders USING (cid) JOIN lineitem USING (oid) GROUP BY 1"


class Run:
    """A run that goes an epoch further when it is told to, and the server of its folder."""

    def __init__(self, folder: Path, buckets: int = 3) -> None:
        self.stream = OrdersStream(folder / "in", 5, {**QUERIES, "revenue": REVENUE, "customers": "FROM customers"})
        program = compile_sql(SCRIPT, rely=False)
        self.out = folder / "out"
        layout = "one-bucket" if buckets == 1 else "one-round:orders=oid+lineitem=oid"
        sources = sources_from([str(folder / "in")], program)
        self.run = EmbeddedRun(
            program,
            sources,
            self.out,
            make_engine=engine_of,
            layout=layout,
            buckets=buckets,
            keep=3,
            publish=("customers",),
        )
        self.step()

    def step(self) -> int:
        """Commit an epoch."""
        self.stream.write(40)
        for _ in self.run.steps():
            pass
        return self.stream.epoch

    def close(self) -> None:
        self.run.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Served]]:
    """The folder of a run that has ended, and its server."""
    made = Run(tmp_path_factory.mktemp("still"), buckets=1)
    made.close()
    with serving(FollowedFolder(made.out), ServerSettings(made.out)) as found:
        yield made.out, found


@pytest.fixture
def served(run: Run) -> Iterator[Served]:
    with serving(FollowedFolder(run.out), ServerSettings(run.out)) as found:
        yield found


def rows_of(answer: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer.arrow().to_pylist()]


def test_every_epoch_is_shown_as_it_is_committed(run: Run, served: Served) -> None:
    answers = run.stream.answers
    with served.client() as client, served.http() as http:
        for epoch in (1, 2, 3):
            if epoch > 1:
                assert run.step() == epoch
            http.get("/v1/views/revenue/rows", params={"after": epoch}).raise_for_status()
            assert (served.site.source.at, client.view("revenue").at) == (epoch, epoch)
            assert same_bag(rows_of(client.view("revenue")), answers[epoch]["revenue"])
            nation, total = next(row for row in answers[epoch]["revenue"] if row[0] is not None)
            assert client.get("revenue", nation).row == (nation, total)
            assert client.get("revenue", 99).row is None
            assert rows_of(client.slice("revenue", nation=nation)) == [(nation, total)]
            asked = client.query("SELECT COUNT(*) AS n, SUM(s) AS s FROM revenue")
            sums = [row[1] for row in answers[epoch]["revenue"] if row[1] is not None]
            assert (asked.at, asked.rows()) == (epoch, [(len(answers[epoch]["revenue"]), sum(sums))])
            for column in ("cid", "length(repeat('x', cid))"):  # the second is computed in another process
                listed = client.query(f"SELECT {column} AS c, nation FROM customers")
                assert same_bag(rows_of(listed), answers[epoch]["customers"])
            measured = client.query("SELECT nation, MEASURE(n), MEASURE(s) FROM sales GROUP BY nation")
            assert same_bag(rows_of(measured), [row[:3] for row in answers[epoch]["0"]])
            rolled = Cube(client, "prices").rollup("third").slice(third=[1, 2])
            at = next(at for at, (view, *_) in enumerate(SELECTIONS) if view == "prices")
            assert (rolled.at, same_bag(rolled.rows(), answers[epoch][f"{at}"])) == (epoch, True)
        epochs = http.get("/v1/epochs").json()["rows"]
        assert [each["at"] for each in epochs] == [3, 2, 1]
        assert sum(each["events"] for each in epochs) == run.stream.events
        refused = http.get("/v1/quarantine").json()["rows"]
        assert len(refused) == run.stream.bad > 0
        assert all(each["reason"] for each in refused)
        assert http.get("/v1/errors").json()["rows"] == []
        assert http.get("/v1/stats").json()["problem"] == ""


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The objects of server-sent events."""
    for line in lines:
        if line.startswith("data:"):
            yield json.loads(line[5:])


@pytest.mark.slow
def test_a_subscriber_is_told_what_an_epoch_changes(run: Run, served: Served) -> None:
    with served.http() as http, http.stream("GET", "/v1/views/items/changes") as stream:
        told = events(stream.iter_lines())
        bag: dict[str, int] = {}
        for epoch in range(1, 4):
            message = next(told)
            assert message["at"] == epoch
            if epoch > 1:
                said = changed_rows(run.out, epoch, "items").num_rows
                assert len(message["rows"]) == said > 0
            for row in message["rows"]:
                change, key = row.pop("change"), json.dumps(row)
                bag[key] = bag.get(key, 0) + change
            now = http.get("/v1/views/items/rows").json()["rows"]
            assert sorted(key for key, count in bag.items() for _ in range(count)) == sorted(map(json.dumps, now))
            if epoch < 3:
                run.step()


@pytest.mark.slow
def test_what_was_read_of_a_cube_is_in_all_that_is_read_then(run: Run) -> None:
    with serving(FollowedFolder(run.out), ServerSettings(run.out)) as served, served.http() as http:
        for _ in range(3):
            run.step()
            told = http.post("/v1/cubes/sales/query", json={"by": []}).headers["X-Cumulus-At"]
            assert http.get("/v1/views/sales/rows?limit=1").headers["X-Cumulus-At"] == told


@pytest.mark.slow
def test_changes_go_on_where_epochs_are_gone(run: Run) -> None:
    source = FollowedFolder(run.out)
    try:
        at, changes = source.host.changes("revenue")
        before = {tuple(row.values()) for row in source.host.read(RowRequest("revenue")).table.to_pylist()}
        for _ in range(4):  # of which the first is dropped
            run.step()
        until = time.monotonic() + 10
        while source.at < 5 and time.monotonic() < until:
            time.sleep(0.01)
        told = changes.take()
        assert [(each.since, each.number, each.is_sum) for each in told] == [
            (at, 3, True),
            (3, 4, False),
            (4, 5, False),
        ]
        for each in told:
            before -= {row.old for row in each if row.old is not None}
            before |= {row.new for row in each if row.new is not None}
        assert same_bag(list(before), run.stream.answers[5]["revenue"])
        assert changes.take() == []
    finally:
        source.close()


def test_nothing_can_be_written(still: tuple[Path, Served]) -> None:
    _, served = still
    with served.client() as client, served.http() as http:
        with pytest.raises(errors.UsageError, match="takes rows from its sources alone") as problem:
            client.insert("customers", [(1, 1)])
        assert "--from" in problem.value.hint
        for path, body in (("execute", {"sql": "DROP VIEW revenue"}), ("snapshot", {})):
            answer = http.post(f"/v1/{path}", json=body)
            assert (answer.status_code, "output of a run" in answer.text) == (400, True), answer.text


def test_sql_reaches_no_file_and_no_view_of_others(still: tuple[Path, Served], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(still[0], out)
    (tmp_path / "other.csv").write_text("a\n1\n")
    token = UserFile(out).add("dora", Role.READER, ("revenue",))
    with serving(FollowedFolder(out), ServerSettings(out)) as served, served.client(token) as client:
        assert client.query("SELECT COUNT(*) FROM revenue").arrow().num_rows == 1
        files = list((out / "data" / "items").iterdir())
        for sql in (
            "SELECT * FROM items",
            "SELECT * FROM quarantine",
            "SELECT * FROM view_errors",
            "SELECT MEASURE(n) FROM sales",
            f"SELECT * FROM read_parquet('{files[0]}')",
            f"SELECT * FROM '{tmp_path / 'other.csv'}'",
            f"SELECT * FROM glob('{out}/*')",
        ):
            with pytest.raises(errors.UsageError):
                client.query(sql)


def test_what_is_served_is_told_from_what_is_there(still: tuple[Path, Served], tmp_path: Path) -> None:
    out, _ = still

    def said(*arguments: object) -> str:
        result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
        assert isinstance(result.exception, errors.CumulusError), result.output
        return result.exception.message

    assert "--data is for a script" in said(out, "--data", tmp_path / "data")
    assert "--sync, --keep is for a script" in said(out, "--sync", "off", "--keep", "all")
    assert "neither the output folder of a run" in said(tmp_path)
    (tmp_path / "s.sql").write_text("CREATE TABLE t (a INT);")
    assert "--data is missing" in said(tmp_path / "s.sql")


@pytest.mark.slow
def test_the_same_selections_say_the_same_everywhere(tmp_path: Path) -> None:
    """Of a warehouse, of folders with one bucket and with three, and of both behind servers."""
    runs = [Run(tmp_path / f"{buckets}", buckets) for buckets in (1, 3)]
    for each in runs:
        each.step()
    stream, warehouse = runs[0].stream, cumulus.Warehouse(SCRIPT)
    for table, rows in (
        ("customers", stream.customers.values()),
        ("orders", stream.orders.values()),
        ("lineitem", [row for row in stream.items if row[0] in stream.orders]),
    ):
        warehouse.insert(table, list(rows))
    keeper = SingleWriter(warehouse)
    with (
        serving(FollowedFolder(runs[1].out), ServerSettings(runs[1].out)) as folder,
        serving(keeper, ServerSettings(tmp_path / "data")) as kept,
        folder.client() as of_folder,
        kept.client() as of_kept,
    ):
        places = [warehouse, *(each.out for each in runs), of_folder, of_kept]
        for seed in range(8):
            found = [selected(Cube(place, "sales"), random.Random(seed)) for place in places]
            assert all(same_bag(each, found[0]) for each in found), seed
    for each in runs:
        each.close()


def selected(cube: Cube, chance: random.Random) -> list[tuple[Any, ...]]:
    """The rows of a random selection."""
    levels = chance.sample(["nation", "third"], chance.randrange(3))
    found = cube.rollup(*levels, measures=chance.sample(["n", "s", "mean", "spread"], 2))
    if levels and chance.random() < 0.5:
        found = found.totals()
    if chance.random() < 0.7:
        found = found.dice(nation=chance.choice([[1, None], cumulus.between(1, 3), [2]]))
    return list(found.rows())
