"""A cluster that runs on, in processes of its own: started, asked, fed, killed in part, stopped, started again."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.cli.recheck import recheck_folder
from cumulus.cluster import codec
from cumulus.cluster.live.address import read_address
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.messages import EpochCommit, EpochReady
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.epochs.output.query import query
from cumulus.errors import (
    ClosedError,
    DelayError,
    InputError,
    LockedError,
    NotRunningError,
    ProcessError,
    RemoteProtocolError,
    StoreError,
    UnknownNameError,
    UsageError,
    ValueTypeError,
)
from cumulus.hosts import WriteReceipt
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.framing import FrameKind, header
from cumulus.transport.greeting import Credentials
from cumulus.views.consistency import Consistency
from support.orders_stream import json_lines

pytestmark = pytest.mark.xdist_group("live")  # one worker has what is made once

SCRIPT = """
CREATE TABLE people (p INT PRIMARY KEY, town VARCHAR);
CREATE TABLE sales (p INT NOT NULL, amount DECIMAL(9,2) NOT NULL);
CREATE VIEW by_town AS SELECT town, SUM(amount) AS a, COUNT(*) AS n FROM sales JOIN people USING (p) GROUP BY town;
CREATE VIEW by_person AS SELECT p, town, AVG(amount) AS a FROM sales JOIN people USING (p) GROUP BY p, town;
CREATE VIEW total AS SELECT SUM(amount) AS a FROM sales;
CREATE VIEW best AS SELECT p, SUM(amount) AS a FROM sales GROUP BY p ORDER BY a DESC, p LIMIT 1;
CREATE VIEW different AS SELECT COUNT(DISTINCT town) AS n FROM people;
CREATE CUBE sold DIMENSION place (town, p) KEEP (town) AS
SELECT town, p, AVG(amount) AS mean, MAX(amount) AS most FROM sales JOIN people USING (p) GROUP BY town, p;
"""


def run(*arguments: object) -> str:
    """Run a command as `cumulus` does; what it prints."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def start(home: Path, *arguments: object) -> None:
    script = home.parent / "live.sql"
    script.write_text(SCRIPT)
    fixed = ("--nodes", 2, "--switches", 2, "--trigger", "100ms", "--engine", "interpreter")
    run("cluster", "start", script, "--home", home, *fixed, *arguments)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("live")
    json_lines(folder / "data" / "people" / "1.json", [{"p": 1, "town": "x"}, {"p": 2, "town": "y"}])
    start(folder / "home", "--from", f"people={folder / 'data' / 'people'}")
    yield folder / "home"
    with suppress(NotRunningError):
        run("cluster", "stop", folder / "home")


@pytest.fixture(scope="module")
def tokens(home: Path) -> tuple[WriteReceipt, WriteReceipt]:
    """The tokens of the first rows and of the last ones that are there before any test."""
    with cumulus.connect(home) as client:
        first = client.insert("sales", [(1, "1.50"), (2, 3)])
        client.upsert("PEOPLE", {"p": [2, 3], "town": ["z", "z"]})
        last = client.insert("sales", [{"p": 3, "amount": 4}, {"p": 3, "amount": 4}])
        client.view("total", after=last)
    return first, last


@pytest.fixture
def client(home: Path, tokens: tuple[WriteReceipt, WriteReceipt]) -> Iterator[ClusterClient]:
    with cumulus.connect(home) as made:
        yield made


def settled(client: ClusterClient, view: str, rows: list[object]) -> None:
    """Wait until the tentative rows of a view are these."""
    until = time.monotonic() + 10
    while (found := sorted(client.view(view, "tentative").rows())) != rows:
        assert time.monotonic() < until, (view, found, rows)
        time.sleep(0.01)


def test_rows_are_tentative_at_once_and_committed_with_their_epoch(
    client: ClusterClient, tokens: tuple[WriteReceipt, WriteReceipt]
) -> None:
    first, last = tokens
    assert last.epoch >= first.epoch
    rows = {name: sorted(client.view(name, after=last).rows()) for name in client.views}
    assert [[str(each) for each in row] for row in rows["by_town"]] == [["x", "1.50", "1"], ["z", "11.00", "3"]]
    assert [(p, town, float(a)) for p, town, a in rows["by_person"]] == [(1, "x", 1.5), (2, "z", 3.0), (3, "z", 4.0)]
    assert (float(rows["total"][0][0]), rows["different"]) == (12.5, [(2,)])
    assert [(p, float(a)) for p, a in rows["best"]] == [(3, 8.0)]
    for name, committed in rows.items():
        settled(client, name, committed)
        tentative = client.view(name, "tentative")
        if name == "different":  # it is gated
            assert tentative.epoch
            assert "committed, epoch" in repr(tentative)
        else:
            assert tentative.epoch is None
            assert set(tentative.versions) <= {"switch0", "switch1"}
            assert "tentative, up to" in repr(tentative)


def test_keys_and_slices_are_read_alone(client: ClusterClient) -> None:
    for read in ("tentative", "committed"):
        assert client.get("by_town", "z", read=read).row == client.slice("by_town", town="z", read=read).row
        assert client.get("by_town", "nowhere", read=read).row is None
        assert client.slice("by_person", town="z", read=read).arrow().num_rows == 2
        assert client.slice("by_person", p=3, read=read).row == client.get("by_person", 3, "z", read=read).row
        assert client.slice("by_town", n=3, read=read).rows() == client.get("by_town", "z", read=read).rows()
        assert client.slice("by_town", town=None, read=read).rows() == []
        assert client.slice("best", p=1, read=read).rows() == []  # it is not the first of all
        assert client.get("total", read=read).row is not None
    with pytest.raises(UsageError, match="gave 2 rows"):
        client.slice("by_person", town="z").row  # noqa: B018


def test_cubes_are_folded_by_nodes_and_from_the_last_epoch(
    client: ClusterClient, tokens: tuple[WriteReceipt, WriteReceipt]
) -> None:
    assert "sold" in client.views
    assert "sold by town" not in client.views
    settled(client, "sold", sorted(client.view("sold", after=tokens[1]).rows()))
    for read in Consistency:
        found = client.fold("sold", ["town"], read=read)
        assert sorted(tuple(row.values()) for row in found.finish().to_pylist()) == [
            ("x", 1.5, Decimal("1.50")),
            ("z", 11 / 3, Decimal("4.00")),
        ]
        assert (found.consistency, found.choice.view) == (read, "sold by town")
        assert (found.at is None) == (read == "tentative")
        found = client.fold("SOLD", [], {"p": [2, 3], "town": "z"}, ["mean"], read=read)
        assert found.finish().to_pylist() == [{"mean": 11 / 3}]
        shown = cumulus.Cube(client, "sold").rollup("town").reading(read=read)
        assert sorted(map(tuple, shown.rows())) == [("x", 1.5, Decimal("1.50")), ("z", 11 / 3, Decimal("4.00"))]
    assert cumulus.Cube(client.home, "sold").rollup("town").reading(at=tokens[1].epoch).arrow().num_rows == 2
    assert client.fold("by_town", [], read="tentative", columns=["n"]).finish().to_pylist() == [{"n": 4}]
    with pytest.raises(UsageError, match=r"view by_town of .* is no cube"):
        client.fold("by_town", [])
    with pytest.raises(UsageError, match="do not say how old they are"):
        client.fold("sold", [], read="tentative", max_staleness="1s")


def test_what_is_asked_wrongly_is_told(client: ClusterClient, home: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="there is no table sale\nTables: people, sales"):
        client.insert("sale", [(1, 2)])
    with pytest.raises(ValueTypeError, match=r"sales.amount"):
        client.insert("sales", [(1, 2), (1, "much")])
    with pytest.raises(UsageError, match="sales has no primary key"):
        client.upsert("sales", [(1, 2)])
    with pytest.raises(UnknownNameError, match="there is no view towns"):
        client.view("towns")
    with pytest.raises(UsageError, match=r"by_person is looked up by \(p, town\), 1 values"):
        client.get("by_person", 1)
    with pytest.raises(UsageError, match=r"by_person.p: .*\nIt is a INTEGER"):
        client.slice("by_person", p="one")
    with pytest.raises(UsageError, match="unknown read 'dirty'"):
        client.view("total", "dirty")
    with pytest.raises(UsageError, match="do not say how old"):
        client.view("total", "tentative", max_staleness="1s")
    for most in ("-1s", "yesterday", "once"):
        with pytest.raises(UsageError, match=f"max_staleness='{most}' is no time"):
            client.view("total", max_staleness=most)
    for token in (7, "7", (1, 1)):
        with pytest.raises(UsageError, match="is no receipt of a write"):
            client.view("total", after=token)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not the home of a cluster"):
        cumulus.connect(tmp_path)
    with pytest.raises(LockedError, match="runs already"):
        start(home)
    with pytest.raises(StoreError, match="--home /proc/nowhere cannot be written: No such file"):
        run("cluster", "start", home.parent / "live.sql", "--home", "/proc/nowhere")
    other = cumulus.connect(home)
    other.close()
    with pytest.raises(ClosedError, match="the client is closed"):
        other.view("total")


def test_who_does_not_know_the_secret_is_refused(home: Path) -> None:
    secret = home / "checkpoint" / "secret"
    known = secret.read_bytes()
    secret.write_bytes(b"something else")
    try:
        with (
            cumulus.connect(home) as stranger,
            pytest.raises(RemoteProtocolError, match=r"does not know the secret\n.*address.json"),
        ):
            stranger.insert("sales", [(1, 1)])
    finally:
        secret.write_bytes(known)
    assert secret.stat().st_mode & 0o077 == 0


def test_who_knows_the_secret_and_sends_nonsense_loses_its_own_link(client: ClusterClient, home: Path) -> None:
    address, settings = read_address(home), read_settings(home / "checkpoint")
    assert settings is not None
    nonsense = [codec.encode(EpochCommit(7)), codec.encode(EpochReady(7, ())), [b"nonsense"], [b"[" * 100_000]]
    for machine, place in address.machines.items():
        for number, pieces in enumerate(nonsense):
            me = Credentials(f"stranger{number}", settings.program.encode(), address.read_secret())
            link = ClientConnection(me, machine, place, address.incarnation, time.monotonic() + 10)
            link.send(pieces, time.monotonic() + 10)
            with pytest.raises(ConnectionResetError):
                link.receive(time.monotonic() + 10)
            link.close()
        with socket.create_connection(place) as half:
            half.sendall(header(FrameKind.HELLO, 100, address.incarnation) + b"half of it")
    assert set(client.status()) == set(address.machines)
    assert read_address(home).incarnation == address.incarnation


def test_a_client_belongs_to_one_process(client: ClusterClient) -> None:
    number = os.fork()
    if not number:
        try:
            client.insert("sales", [(1, 1)])
        except UsageError as problem:
            os._exit(7 if "forked from" in str(problem) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 7


def test_no_rows_are_no_rows_and_what_came_from_clients_is_not_rechecked(client: ClusterClient, home: Path) -> None:
    assert client.insert("sales", []).rows == 0
    assert client.view("total", after=client.insert("sales", [])).rows()
    with pytest.raises(UsageError, match="takes rows from clients, which no source has"):
        recheck_folder(home, None, [], [], 0)


def test_a_token_is_waited_for_and_staleness_is_not(client: ClusterClient, home: Path) -> None:
    assert client.view("total", max_staleness="30s").epoch
    late = cumulus.connect(home, timeout_s=0.3)
    token = client.insert("sales", [(1, 1)])
    with late, pytest.raises(DelayError, match=f"epoch {token.epoch + 1000} was not committed within 0.3 s"):
        late.view("total", after=type(token)(token.epoch + 1000, 1))
    after = client.delete("sales", [(1, 1)])
    assert client.view("total", after=after).epoch == after.epoch or client.view("total").epoch > after.epoch


def test_status_says_how_all_machines_are(home: Path) -> None:
    text = run("cluster", "status", home)
    assert "5 views spread, 1 gated (different)" in text
    words = (
        "publisher",
        "switch1",
        "node1",
        "interpreter",
        "rows",
        "overlay rows",
        "history rows",
        "bytes",
        "lag epochs",
    )
    for word in (
        *words,
        "corrections",
        "late share",
        "gated share",
        "log bytes",
        "sync ms",
        "credit bytes",
        "behind ms",
    ):
        assert word in text
    assert all(str(pid) in text for pid in read_address(home).pids.values())


@pytest.mark.kill
def test_a_process_that_is_killed_comes_back_and_nothing_is_lost_or_doubled(client: ClusterClient, home: Path) -> None:
    (before,) = client.view("total", after=client.insert("sales", [(1, 1)])).rows()[0]
    sent: list[int] = []

    def feed() -> None:
        with cumulus.connect(home, timeout_s=60) as mine:
            for _ in range(40):
                sent.append(mine.insert("sales", [(1, 1)]).rows)
                time.sleep(0.01)

    feeder = Thread(target=feed)
    feeder.start()
    for name, number in (("node0", signal.SIGKILL), ("switch0", signal.SIGTERM), ("switch1", signal.SIGKILL)):
        time.sleep(0.2)
        address = read_address(home)
        os.kill(address.pids[name], number)
        until = time.monotonic() + 60
        while read_address(home).incarnation == address.incarnation:
            assert time.monotonic() < until
            time.sleep(0.05)
    feeder.join()
    assert sum(sent) == 40
    last = cumulus.connect(home, timeout_s=60).insert("sales", [(1, 1)])
    (total,) = client.view("total", after=last).rows()[0]
    assert total == before + 41
    settled(client, "total", [(total,)])
    assert query(home, "FROM total").to_pylist() == [{"a": total}]


def test_rows_under_a_name_count_once_whichever_client_sends_them_also_after_a_kill(home: Path) -> None:
    rows = [(1, "0.25")] * 3
    with cumulus.connect(home) as one, cumulus.connect(home) as other:
        before = other.view("total", after=one.insert("sales", [(1, 0)])).rows()[0][0]
        first = one.insert("sales", rows, once=("loader", 1))
        assert other.insert("SALES", rows, once=("loader", 1)).at == first.at
        switches = {name: pid for name, pid in read_address(home).pids.items() if name.startswith("switch")}
        for pid in switches.values():
            os.kill(pid, signal.SIGKILL)
        assert other.insert("sales", rows, once=("loader", 1)).rows == 3
        last = other.insert("sales", rows, once=("loader", 2))
        assert one.view("total", after=last).rows()[0][0] == before + 6 * Decimal("0.25")


def test_a_stopped_cluster_says_so_and_goes_on_when_it_is_started_again(client: ClusterClient, home: Path) -> None:
    rows = {name: client.view(name).rows() for name in client.views}
    run("cluster", "stop", home)
    for asked in (
        lambda: cumulus.connect(home),
        lambda: client.insert("sales", [(1, 1)]),
        lambda: run("cluster", "stop", home),
    ):
        with pytest.raises(NotRunningError, match="is not running\nStart it"):
            asked()
    (home.parent / "other.sql").write_text(SCRIPT.replace("COUNT(*)", "MAX(amount)"))
    with pytest.raises(ProcessError, match=r"cannot start: .*the program has changed"):
        run("cluster", "start", home.parent / "other.sql", "--home", home, "--nodes", 2, "--switches", 2)
    start(home, "--from", f"people={home.parent / 'data' / 'people'}")
    with cumulus.connect(home) as again:
        for name in rows:
            assert sorted(again.view(name).rows()) == sorted(rows[name])
            settled(again, name, sorted(rows[name]))
        token = again.insert("sales", [(2, 100)])
        assert again.get("by_person", 2, "z", after=token).row[2] > 50
