"""A client that reads through a switch of a running cluster: it reads what it has sent, and waits for nobody else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.cluster import codec
from cumulus.cluster.clients.query_messages import Query, QueryAnswer
from cumulus.cluster.live.address import read_address
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.messages import StatusTold
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.errors import DelayError, NotRunningError, UsageError
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.greeting import Credentials

pytestmark = pytest.mark.xdist_group("live")
SCRIPT = """
CREATE TABLE people (p INT PRIMARY KEY, town VARCHAR);
CREATE TABLE sales (p INT, price DECIMAL(9,2), weight DOUBLE);
CREATE VIEW by_town AS SELECT town, SUM(price) AS a, COUNT(*) AS n FROM sales JOIN people USING (p) GROUP BY town;
CREATE VIEW by_person AS SELECT p, MAX(price) AS most, SUM(weight) AS w FROM sales GROUP BY p;
CREATE VIEW sums AS SELECT p, SUM(weight) AS w FROM sales GROUP BY p;
CREATE VIEW different AS SELECT COUNT(DISTINCT town) AS n FROM people;
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("through")
    (folder / "views.sql").write_text(SCRIPT)
    words = ["cluster", "start", folder / "views.sql", "--home", folder / "home", "--nodes", 3, "--trigger", "500ms"]
    result = CliRunner().invoke(app, [*map(str, words), "--dead-after", "60s", "--engine", "interpreter"])
    assert result.exit_code == 0, result.output
    yield folder / "home"
    with suppress(NotRunningError):
        CliRunner().invoke(app, ["cluster", "stop", str(folder / "home")])


@pytest.fixture
def client(home: Path) -> Iterator[ClusterClient]:
    with cumulus.connect(home, through="switch") as made:
        yield made


def test_a_client_reads_all_that_it_has_sent_at_once(client: ClusterClient) -> None:
    client.insert("people", [(at, "xy"[at % 2]) for at in range(20)] + [(99, None)])
    for at in range(1, 41):
        client.insert("sales", [(at % 20, at, 0.5), (99, 1, None)])
        assert sum(row[2] for row in client.view("by_town", "tentative").rows()) == 2 * at
    token = client.delete("sales", [(99, 1, None)])
    answer = client.view("by_town", "tentative")
    assert str(answer).endswith("read through switch0")
    assert sum(row[2] for row in answer.rows()) == 79
    assert answer.versions.keys() == {"switch0"}
    assert client.get("by_town", None, read="tentative").row == next(row for row in answer.rows() if row[0] is None)
    assert client.slice("by_person", p=99, read="tentative").rows() == [(99, 1, None)]
    assert client.get("by_person", 1234, read="tentative").row is None
    assert client.fold("by_town", [], read="tentative").finish().to_pylist()[0]["n"] == 79
    # what the publisher is asked goes through the switch, too
    assert sorted(client.view("by_town", after=token).rows(), key=repr) == sorted(answer.rows(), key=repr)
    assert client.view("different", "tentative").rows() == [(2,)], "gated: its committed rows"
    assert client.view("by_town", max_staleness="20s").rows()
    assert {name for name, facts in client.status().items() if "problem" in facts} == set()


def test_what_there_is_not_is_one_readable_error(home: Path) -> None:
    for name in ("node0", "switch9", "x"):
        with pytest.raises(UsageError, match=f"has no '{name}' to read through") as raised:
            cumulus.connect(home, through=name)
        assert raised.value.hint == "through= is one of switch0; or 'switch': the first that is reached."


def test_a_stranger_that_asks_and_answers_what_it_may_not_stops_nobody(home: Path, client: ClusterClient) -> None:
    address, settings = read_address(home), read_settings(home / "checkpoint")
    assert settings is not None
    me = Credentials("stranger", settings.agreed, address.read_secret())
    for message in (QueryAnswer(1, StatusTold(1, {})), Query(1, "node0", QueryAnswer(1, None))):
        link = ClientConnection(me, "switch0", address.machines["switch0"], address.incarnation, time.monotonic() + 10)
        link.send(codec.encode(message), time.monotonic() + 10)
        with suppress(ConnectionError):
            link.receive(time.monotonic() + 1)
        link.close()
    client.insert("people", [(500, "z")])
    assert client.view("by_town", "tentative").rows() is not None


@pytest.mark.kill
def test_who_asks_a_node_that_hangs_waits_alone(home: Path) -> None:
    address = read_address(home)
    with cumulus.connect(home, through="switch0", timeout_s=60) as client:
        token = client.insert("sales", [(1, 1, 1.0)])
        client.view("by_town", after=token)  # nothing is open: no mark is waited for
        nodes = {row[0]: owner_of(client, row[0]) for row in client.view("sums").rows()}
        hung = nodes[1]
        other = next(person for person, node in nodes.items() if node != hung)
        os.kill(address.pids[hung], signal.SIGSTOP)
        try:
            errors: list[DelayError] = []

            def ask() -> None:
                with (
                    cumulus.connect(home, through="switch", timeout_s=3) as asking,
                    pytest.raises(DelayError) as raised,
                ):
                    asking.get("sums", 1, read="tentative")
                errors.append(raised.value)

            threads = [Thread(target=ask) for _ in range(6)]
            for thread in threads:
                thread.start()
            time.sleep(1)
            begin = time.monotonic()
            assert client.get("sums", other, read="tentative").row is not None
            assert time.monotonic() - begin < 1.5
            for thread in threads:
                thread.join()
            said = sorted(error.message.partition("in time: ")[2] for error in errors)
            assert said == ["it has not answered"] * 4 + [f"{hung} has not answered 4 queries that came before"] * 2
            assert all(f"no answer from {hung} through switch0" in error.message for error in errors)
        finally:
            os.kill(address.pids[hung], signal.SIGCONT)
        assert client.get("sums", 1, read="tentative").row is not None


def owner_of(client: ClusterClient, person: int) -> str:
    plan = getattr(client, "_layout").plan  # noqa: B009
    [map] = plan.division.spread.view("sums").maps
    return f"node{plan.layout.owner_of(map, (person,))}"


@pytest.mark.kill
def test_a_node_and_a_switch_that_are_killed_come_back(home: Path) -> None:
    with cumulus.connect(home, through="switch", timeout_s=60) as client:
        before = sum(row[2] for row in client.view("by_town", "tentative").rows())
        for at, name in enumerate(("node1", "switch0"), 1):
            client.insert("sales", [(1, 1, 1.0)])
            os.kill(read_address(home).pids[name], signal.SIGKILL)
            assert sum(row[2] for row in client.view("by_town", "tentative").rows()) == before + at
