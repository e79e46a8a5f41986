"""Files that hosts have alone, and clients that see a switch and no node: namespaces of this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.network_hosts import Host, Hosts, missing

pytestmark = [
    pytest.mark.net,
    pytest.mark.xdist_group("network"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
VIEWS = """
CREATE TABLE towns (town VARCHAR PRIMARY KEY, land VARCHAR);
CREATE TABLE sales (town VARCHAR, price INT);
CREATE TABLE visits (town VARCHAR, people INT);
CREATE VIEW sold AS SELECT land, SUM(price) AS s, COUNT(*) AS n FROM sales JOIN towns USING (town) GROUP BY land;
CREATE VIEW came AS SELECT town, SUM(people) AS s FROM visits GROUP BY town;
CREATE VIEW most AS SELECT town, MAX(people) AS most FROM visits GROUP BY town;
"""
READ = """
import json, sys, cumulus
place, count, *through = sys.argv[1:]
given = {"secret_file": "clients.secret", "insecure": True, "timeout_s": 12}
with cumulus.connect(place, **given, through="".join(through)) as client:
    receipt = client.insert("towns", [(f"t{at}", "ab"[at % 2]) for at in range(20)])
    wrong, before = 0, sum(row[2] for row in client.view("sold", "tentative").rows())
    for at in range(1, int(count) + 1):
        receipt = client.insert("sales", [(f"t{at % 20}", 1)])
        wrong += sum(row[2] for row in client.view("sold", "tentative").rows()) != before + at
    answer = client.view("sold", "tentative")
    told = {
        "wrong": wrong, "sold": sorted(answer.rows()), "note": str(answer).splitlines()[-1],
        "key": client.get("sold", "a", read="tentative").row,
        "slice": client.slice("sold", land="b", read="tentative").rows(),
        "parts": client.fold("sold", [], read="tentative").finish().to_pylist(),
        "committed": sorted(client.view("sold", after=receipt).rows()),
        "fresh": len(client.view("sold", max_staleness="20s").rows()),
    }
    print(json.dumps(told, default=str))
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Sequence[Host]]:
    """Three hosts, with an agent each."""
    with Hosts(tmp_path, 3) as found:
        for host in found:
            host.write("agents.secret", "of agents", is_secret=True)
            begin_agent(host)
        found[0].write("views.sql", VIEWS)
        yield found


def begin_agent(host: Host) -> None:
    words = ["--listen", f"{host.address}:7070", "--secret-file", "agents.secret", "--data", "data", "--insecure"]
    agent = host.start(sys.executable, "-m", "cumulus", "cluster", "agent", *words)
    assert agent.stdout is not None
    assert "the agent listens" in agent.stdout.readline()


def words(hosts: Sequence[Host], *more: object) -> list[object]:
    named = [word for host in hosts for word in ("--host", host.address)]
    given = ["--agents-secret", "agents.secret", "--insecure", "--trigger", "250ms"]
    return ["cluster", "start", "views.sql", "--home", "live", *named, *given, *more]


def failed(host: Host, *command: object) -> str:
    with pytest.raises(AssertionError) as told:
        host.cumulus(*command)
    return str(told.value)


def test_a_client_that_sees_a_switch_alone_reads_its_own_rows(hosts: Sequence[Host]) -> None:
    first, second, third = hosts
    places = [f"{name}={second.address}" for name in ("node0", "node1", "node2")]
    options = [word for each in (*places, f"switch0={first.address}") for word in ("--place", each)]
    first.cumulus(*words(hosts, "--nodes", 3, *options))
    third.write("clients.secret", first.run("cat", "live/checkpoint/secret"), is_secret=True)
    third.write("read.py", READ)
    third.lose_way_to(second)  # a client's network, in which no node is seen
    at = f"cluster://{first.address}"
    told = third.start(sys.executable, "read.py", at, "1")
    said, _ = told.communicate(timeout=120)
    assert told.returncode
    assert "no answer from node" in said
    assert 'through="switch"' in said, "the way out"
    found = json.loads(third.run(sys.executable, "read.py", at, "40", "switch").splitlines()[-1])
    assert found["wrong"] == 0
    assert found["sold"] == found["committed"]
    assert sum(row[2] for row in found["sold"]) == 40
    assert found["note"].endswith("read through switch0")
    assert found["key"] == found["sold"][0]
    assert found["parts"][0]["n"] == 40
    assert found["slice"][0][0] == "b"
    assert found["fresh"] == 2
    first.cumulus("cluster", "stop", "live")


@pytest.mark.slow
def test_switches_read_files_of_their_own_hosts(hosts: Sequence[Host]) -> None:
    first, second, third = hosts
    for host, table, rows in (
        (first, "towns", [{"town": "x", "land": "a"}, {"town": "y", "land": "b"}]),
        (second, "visits", [{"town": "x", "people": 3}, {"town": "x", "people": 5}]),
    ):
        put(host, table, "1.json", rows)
    three = ["--nodes", 2, "--switches", 3, "--from", f"towns={first.own}/in/towns"]
    visits = f"visits={first.own}/in/visits"
    told = failed(first, *words(hosts, *three, "--from", visits, "--read-at", f"{third.address}=visits"))
    assert f"{third.address}:7070: {first.own}/in/visits: the source of table 'visits' is not there" in told
    for wrong, why in (
        ("10.99.0.1=visits", "--read-at 10.99.0.1=visits: no --host 10.99.0.1 is given"),
        (f"{second.address}=vists", f"--read-at {second.address}=vists: there is no table 'vists'"),
        ("visits", "--read-at visits is none"),
    ):
        assert why in failed(first, *words(hosts, *three, "--from", visits, "--read-at", wrong))
    given = [*three, "--from", visits, "--read-at", f"{second.address}=visits", "--standby", 1]
    first.cumulus(*words(hosts, *given))
    wait_for_rows(first, "came", "x,8")
    put(second, "visits", "2.json", [{"town": "z", "people": 1}])
    put(first, "towns", "2.json", [{"town": "z", "land": "a"}])
    wait_for_rows(first, "came", "x,8 z,1")
    wait_for_rows(first, "most", "x,5 z,1")
    layout = json.loads(first.run("cat", "live/checkpoint/cluster.json"))["layout"]
    where = json.loads(first.run("cat", f"live/checkpoint/layout{layout}/hosts.json"))
    there = {name: (each["host"], each["standby"]) for name, each in where.items() if name.startswith("switch")}
    assert (f"{second.address}:7070", "") in there.values(), "it has no standby: nobody else has its files"
    second.cut()  # until its host is lost, and back
    put(second, "visits", "3.json", [{"town": "z", "people": 2}])
    first.python("import time; time.sleep(7)")
    second.mend()
    wait_for_rows(first, "came", "x,8 z,3")
    first.cumulus("cluster", "stop", "live")
    put(second, "visits", "4.json", [{"town": "y", "people": 4}])
    again = [*three, "--from", visits]
    told = failed(first, *words(hosts, *again, "--read-at", f"{third.address}=visits"))
    assert f"files of visits were read at {second.address}:7070, and --read-at says {third.address}:7070" in told
    first.run("mkdir", "-p", "in/visits")
    assert "the host of the home" in failed(first, *words(hosts, *again, "--read-at", f"{first.address}=visits"))
    together = ["--nodes", 2, "--switches", 1, "--from", f"towns={first.own}/in/towns", "--from", visits]
    assert f"--read-at {second.address}:7070=visits: switch0 reads towns, too" in failed(
        first, *words(hosts, *together)
    )
    first.cumulus(*words(hosts, *again))  # the home knows where
    wait_for_rows(first, "came", "x,8 y,4 z,3")
    first.cumulus("cluster", "stop", "live")


def put(host: Host, table: str, name: str, rows: Sequence[dict[str, object]]) -> None:
    host.run("mkdir", "-p", f"in/{table}")
    host.write(f"in/{table}/.{name}", "".join(json.dumps(each) + "\n" for each in rows))
    host.run("mv", f"in/{table}/.{name}", f"in/{table}/{name}")


def wait_for_rows(host: Host, view: str, rows: str) -> None:
    """Wait until these rows of a view are committed."""
    code = f"""
import time, cumulus
with cumulus.connect("live", timeout_s=60) as client:
    until = time.monotonic() + 60
    while True:
        try:
            found = " ".join(sorted(",".join(map(str, row)) for row in client.view({view!r}).rows()))
        except cumulus.errors.DelayError:
            found = ""
        if found == {rows!r}:
            break
        assert time.monotonic() < until, found
        time.sleep(0.1)
"""
    host.python(code)
