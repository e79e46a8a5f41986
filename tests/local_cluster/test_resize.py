"""A cluster gets more nodes, and fewer, while clients send: every epoch is right, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import read_address
from cumulus.cluster.processes.cluster_settings import SETTINGS_FILE, read_settings
from cumulus.errors import DelayError, ProcessError, RemoteProtocolError
from support.live_load import LiveLoad, begin, running, settings_of


def resized(home: Path, nodes: int) -> str:
    result = CliRunner().invoke(app, ["cluster", "resize", str(home), "--nodes", str(nodes)])
    assert result.exit_code == 0, result.output
    assert nodes_of(home) == nodes
    return result.output


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, ["cluster", "resize", *words])
    assert result.exit_code != 0, result.output
    return f"{result.output}{result.exception}"


def nodes_of(home: Path) -> int:
    found = read_settings(home / "checkpoint")
    assert found is not None
    return found.nodes


def test_nodes_come_and_go_while_clients_send_and_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home):
        begin(home)
        with cumulus.connect(home, timeout_s=60) as reader, LiveLoad(home, timeout_s=60) as load:
            for nodes in (3, 1):
                load.wait_for_rows(30)
                before = len(reader.view("by_town", read="tentative").rows())
                assert f"nodes → {nodes}" in resized(home, nodes)
                load.wait_for_rows(10)
                assert len(reader.view("by_town", read="tentative").rows()) >= before
                assert reader.get("by_town", "town1", read="tentative").row
                machines = {"publisher", "switch0", "switch1", *(f"node{number}" for number in range(nodes))}
                assert set(read_address(home).machines) == machines == set(reader.status())
            assert "it has 1 nodes already" in resized(home, 1)
        load.settle()
        assert not load.failed, "nobody is told of it"
        daemon.stop(home)
        assert nodes_of(home) == 1
        daemon.start(settings_of(home))  # of two nodes
        assert nodes_of(home) == 2
        load.settle()
    assert load.check() > 3


def test_a_client_waits_for_machines_that_have_not_come_to_the_layout_of_the_card(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home):
        begin(home)
        card = home / "checkpoint" / SETTINGS_FILE
        mine = card.read_text()
        settings = json.loads(mine)
        with replaced(card, json.dumps(settings | {"layout": settings["layout"] + 1})):
            with (
                cumulus.connect(home, timeout_s=0.5) as client,
                pytest.raises((DelayError, RemoteProtocolError), match="switch0"),
            ):
                client.insert("sales", [(1, 1, 1)])
            with cumulus.connect(home, timeout_s=60) as client:
                timer = Timer(0.5, lambda: card.write_text(mine))
                timer.start()
                receipt = client.insert("sales", [(2, 1, 1)])
                assert client.view("different", after=receipt).rows() == [(1,)]
                timer.join()


@contextmanager
def replaced(path: Path, text: str) -> Iterator[None]:
    """Give a file another content for a while."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


def keys_of(home: Path) -> list[int]:
    with cumulus.connect(home, timeout_s=60) as client:
        status = client.status()
    return [int(facts["rows"]) for name, facts in sorted(status.items()) if name.startswith("node")]


def test_keys_move_to_a_node_and_are_dealt_out_evenly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home):
        begin(home)
        with LiveLoad(home, timeout_s=60) as load:
            sales = [(10**9 + number, number % 20, number) for number in range(3_000)]
            with cumulus.connect(home, timeout_s=60) as client:
                load.inserted |= dict.fromkeys(sales, client.insert("sales", sales).epoch)
            told = [move(home, "--move", "0-2047=node0", "--move", "2048-4095=node0")]
            first, second = keys_of(home)
            assert second < first / 20, "all that lies by a key is on node0"
            told.append(move(home, "--balance"))
            rows = keys_of(home)
            assert max(rows) < 1.1 * sum(rows) / len(rows)
            assert "2 nodes → 5" in resized(home, 5)
            rows = keys_of(home)
            assert max(rows) < 1.1 * sum(rows) / len(rows)
            load.wait_for_rows(10)
        load.settle()
        assert not load.failed
    load.check()
    assert "0-2047=node0, 2048-4095=node0" in told[0]
    assert "balanced" in told[1]


def test_tables_come_to_other_switches_while_clients_send(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home):
        begin(home)
        with cumulus.connect(home, timeout_s=60) as once, LiveLoad(home, timeout_s=60) as load:
            for number, switches in enumerate((3, 1, 2), 1):
                sale = (10**9 + number, 1, 5)
                load.inserted[sale] = once.insert("sales", [sale], once=("loader", number)).epoch
                load.wait_for_rows(20)
                told = move(home, "--switches", str(switches))
                assert f"switches → {switches}" in told
                names = {f"switch{number}" for number in range(switches)}
                assert names == {name for name in read_address(home).machines if name.startswith("switch")}
                assert once.insert("sales", [sale], once=("loader", number)).epoch == load.inserted[sale]
            load.wait_for_rows(10)
            assert "2 nodes → 3, 2 switches → 3" in move(home, "--nodes", "3", "--switches", "3")
        load.settle()
        assert not load.failed
    load.check()


def move(home: Path, *how: str) -> str:
    result = CliRunner().invoke(app, ["cluster", "resize", str(home), *how])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.kill
def test_nodes_may_be_asked_for_while_a_machine_that_died_starts_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running(home):
        begin(home)
        with LiveLoad(home, timeout_s=90) as load:
            for nodes, killed in ((3, "node1"), (1, "switch0"), (2, "publisher")):
                load.wait_for_rows(20)
                os.kill(read_address(home).pids[killed], signal.SIGKILL)
                time.sleep(0.1 * nodes)
                resized(home, nodes)
        load.settle()
        assert not load.failed
    load.check()


@pytest.mark.kill
def test_a_resize_that_is_killed_has_happened_or_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("CUMULUS_CRASH", "before-layout:1,after-layout:1")
    monkeypatch.setenv("CUMULUS_CRASH_DIR", str(tmp_path))
    with running(home):
        begin(home)
        with LiveLoad(home, timeout_s=60) as load:
            for nodes, after in ((4, 2), (3, 3)):
                load.wait_for_rows(30)
                assert "the cluster has ended without being stopped" in refused(str(home), "--nodes", str(nodes))
                assert nodes_of(home) == after
                (home / "checkpoint" / "resize.json").unlink()  # or it would be done when it starts
                live = settings_of(home)
                daemon.start(daemon.LiveSettings(**{**vars_of(live), "nodes": 0}))
                assert nodes_of(home) == after
                load.wait_for_rows(20)
        load.settle()
    load.check()
    assert len((tmp_path / "hits.log").read_text().splitlines()) == 2


def vars_of(live: daemon.LiveSettings) -> dict[str, object]:
    return {name: getattr(live, name) for name in live.__dataclass_fields__}


REFUSED = {
    "--move 0-9=node2": "there is no node2",
    "--move 0-9=node3 --nodes 3": "there is no node3",
    "--move 9-0=node1": "no such slots",
    "--move 4096=node1": "no such slots",
    "--move x=node1": "--move x=node1 is none",
    "--nodes 3 --host h2:7070": "all machines of this cluster are on this computer",
    "--place node0=h2": "all machines of this cluster are on this computer",
    "--split sales.none --switches 2": "sales has no column 'none'",
    "--split sales": "it names no column of a table",
    "--join sales": "it is not split",
    "--nodes 3 --timeout 1ms": "--timeout 1ms: this is no time of a second or more",
}


def test_what_stands_against_a_resize_is_told_and_the_cluster_goes_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "not the home of a cluster" in refused(str(home), "--nodes", "3")
    with running(home):
        begin(home)
        assert "nothing is asked for" in refused(str(home))
        assert "Invalid value for '--nodes'" in refused(str(home), "--nodes", "0")
        assert "--place node0 is none" in refused(str(home), "--place", "node0")
        with cumulus.connect(home, timeout_s=60) as client:
            processes = client.status()
        for words, told in REFUSED.items():
            assert told in refused(str(home), *words.split())
        with cumulus.connect(home, timeout_s=60) as client:
            assert {name: of["process"] for name, of in client.status().items()} == {
                name: of["process"] for name, of in processes.items()
            }, "machines were ended for what can be refused before"
        wish = home / "checkpoint" / "resize.json"
        with cumulus.connect(home, timeout_s=60) as client:
            assert client.view("different", after=client.insert("sales", [(1, 1, 1)])).rows() == [(1,)]
        wish.write_text("no wish at all")
        with cumulus.connect(home, timeout_s=60) as client:
            assert client.view("different", after=client.insert("sales", [(2, 1, 1)])).rows() == [(1,)]
        wish.write_text(json.dumps({"nodes": 3}))
        told = refused(str(home), "--nodes", "4")
        assert "another resize has been asked for" in told
    assert "the cluster is not running" in refused(str(home), "--nodes", "4")
    kept = read_settings(home / "checkpoint")
    assert kept is not None
    (kept.root / "hosts.json").write_text("{}")  # as if its machines had been elsewhere
    with pytest.raises(ProcessError, match="what its machines have is on other hosts, and no --host is given"):
        daemon.start(settings_of(home))
