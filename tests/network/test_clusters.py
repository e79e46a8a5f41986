"""A cluster on several hosts that share nothing: namespaces of this machine, whose cables can be pulled."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml

from cumulus.cluster.mode import RULES, Mode
from cumulus.workloads import changes, flights, shop
from cumulus_lab.workloads import benchmark
from support.benchmarks import small_stream
from support.network_hosts import Host, Hosts, missing, write_certificates

pytestmark = [
    pytest.mark.net,
    pytest.mark.xdist_group("network"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
ROOT = Path(__file__).parents[2]
VIEWS = """
CREATE TABLE products (id INT PRIMARY KEY, kind VARCHAR);
CREATE TABLE sales (id INT PRIMARY KEY, product INT REFERENCES products, price DECIMAL(9, 2));
CREATE VIEW kinds AS SELECT kind, SUM(price) AS s, COUNT(*) AS n FROM sales JOIN products ON product = products.id
  GROUP BY kind;
CREATE VIEW dearest AS SELECT product, MAX(price) AS most FROM sales GROUP BY product;
"""
SEND = """
import json, sys, cumulus
begin, count, place, *more = sys.argv[1:]
given = {"secret_file": more[0], "tls_ca": "ca.pem"} if more else {}
with cumulus.connect(place, timeout_s=90, **given) as client:
    if begin == "0":
        client.insert("products", [(number, "ab"[number % 2]) for number in range(10)])
    for at in range(int(begin), int(begin) + int(count)):
        if at % 10 == 9:
            receipt = client.delete("sales", [(at - 9, (at - 9) % 10, at - 9)])
        else:
            receipt = client.insert("sales", [(at, at % 10, at)])
    answer = client.view("kinds", after=receipt)
    key = [client.get("dearest", number).row for number in range(10)]
    tentative = client.view("kinds", read="tentative").rows()
    print(json.dumps([sorted(answer.rows()), sorted(tentative), key, answer.at], default=str))
"""
"""Sends sales, numbered from BEGIN, every tenth a deletion of an earlier one; reads what is committed then."""


def expected(count: int) -> list[list[object]]:
    """Return the rows of `kinds` after so many."""
    there = {at for at in range(count) if at % 10 != 9} - {at - 9 for at in range(count) if at % 10 == 9}
    found = []
    for kind in (0, 1):
        mine = [at for at in there if at % 2 == kind]
        found.append(["ab"[kind], f"{sum(mine)}.00", len(mine)])
    return found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Sequence[Host]]:
    """Three hosts with an agent each, and a secret and certificates for their links."""
    own, certificates = tmp_path / "own", tmp_path / "certificates"
    own.mkdir()
    certificates.mkdir()
    with Hosts(own, 3) as found:
        write_certificates(certificates, [host.address for host in found])
        for host in found:
            for name in ("ca.pem", f"{host.address}.pem", f"{host.address}.key"):
                host.write(name, (certificates / name).read_text(), is_secret=True)
            host.write("agents.secret", "of agents", is_secret=True)
            start_agent(host)
        found[0].write("views.sql", VIEWS)
        yield found


def start_agent(host: Host, secret: str = "agents.secret") -> None:
    tls = ["--tls-cert", f"{host.address}.pem", "--tls-key", f"{host.address}.key", "--tls-ca", "ca.pem"]
    words = ["--listen", f"{host.address}:7070", "--secret-file", secret, "--data", "data", *tls]
    agent = host.start(sys.executable, "-m", "cumulus", "cluster", "agent", *words)
    assert agent.stdout is not None
    assert "the agent listens" in agent.stdout.readline()


def start(hosts: Sequence[Host], *more: str, nodes: int = 3) -> str:
    options = [word for host in hosts for word in ("--host", f"{host.address}:7070")]
    options += ["--agents-secret", "agents.secret", "--tls-ca", "ca.pem", "--trigger", "250ms", *more]
    return hosts[0].cumulus("cluster", "start", "views.sql", "--home", "live", "--nodes", nodes, *options)


def send(host: Host, begin: int, count: int, place: str = "live", *secret: str) -> int:
    """Send sales, and check what is committed then; return the epoch."""
    told = host.run(sys.executable, "-c", SEND, str(begin), str(count), place, *secret)
    committed, tentative, rows, epoch = json.loads(told.splitlines()[-1])
    assert committed == expected(begin + count), told
    assert tentative == committed
    assert len(rows) == 10
    return int(epoch)


def log_of(host: Host) -> str:
    return host.run("cat", "live/checkpoint/cluster.log")


def machine_pids(host: Host) -> list[int]:
    """Return the forks of the agent's fork server, which have the names of their machines."""
    lines = host.command_lines()
    return [pid for pid, line in lines.items() if "cumulus.transport.fork_server" in line and is_fork(pid)]


def is_fork(pid: int) -> bool:
    try:
        return not psutil.Process(pid).name().startswith("python")
    except psutil.NoSuchProcess:
        return False


def wait_for(is_so: object, seconds: float = 60.0) -> None:
    assert callable(is_so)
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it has not come to be so"
        time.sleep(0.1)


def test_three_hosts_that_share_nothing_keep_views_together(hosts: Sequence[Host]) -> None:
    first, second, third = hosts
    start(hosts, "--place", f"node1={second.address}", "--place", f"node2={third.address}")
    assert [len(machine_pids(host)) for host in hosts] == [2, 2, 1]
    before = send(first, 0, 40)
    third.cut()
    time.sleep(3)
    third.mend()
    assert send(first, 40, 40) > before
    assert log_of(first).count("goes on after") <= 1, "TCP may need longer than the cut, and one reset loses nothing"
    # a client without the home, at another host
    second.write("clients.secret", first.run("cat", "live/checkpoint/secret"), is_secret=True)
    place = f"cluster://{second.address}:7070"
    assert send(second, 80, 20, place, "clients.secret") > before
    at = ["--at", f"{second.address}:7070", "--tls-ca", "ca.pem"]
    status = json.loads(second.cumulus("cluster", "status", *at, "--secret-file", "clients.secret", "--json"))
    assert sorted(status) == ["node0", "node1", "node2", "publisher", "switch0"]
    assert "stopped" in third.cumulus(
        "cluster", "stop", "--at", f"{third.address}:7070", "--tls-ca", "ca.pem", "--secret-file", "agents.secret"
    )
    assert not any(machine_pids(host) for host in hosts)
    assert first.run("cat", "live/checkpoint/ended.json").strip() == ""


@pytest.mark.kill
def test_machines_and_hosts_that_are_lost_come_back(hosts: Sequence[Host]) -> None:
    first, second, third = hosts
    started = partial(start, hosts, "--switches", "2", "--commit", "switches")
    started()
    done = 20
    send(first, 0, done)
    for host in (second, first, third):  # a machine, by its process
        *others, killed = [pid for each in (*hosts, host) for pid in machine_pids(each)]
        os.kill(killed, signal.SIGKILL)
        send(first, done, 10)
        done += 10
        now = [pid for each in hosts for pid in machine_pids(each)]
        assert {*others} - {*now} == {killed}, "the others go on"
    third.cut()  # a host, until its lease has run out
    wait_for(lambda: not machine_pids(third))
    wait_for(lambda: f"lost with its host {third.address}:7070" in log_of(first))
    rows = first.cumulus("query", "live", "SELECT SUM(n) AS n FROM kinds", "--csv")
    assert rows.split()[-1] == str(sum(row[2] for row in expected(done)))  # type: ignore[misc]  # they are numbers
    third.mend()
    send(first, done, 10)
    done += 10
    end_agent(second)  # a host that begins anew, with its folder
    start_agent(second)
    send(first, done, 10)
    done += 10
    for pid in [pid for pid, line in first.command_lines().items() if "live.daemon" in line]:
        os.kill(pid, signal.SIGKILL)  # the supervisor
    wait_for(lambda: not any(machine_pids(host) for host in hosts))
    started()
    send(first, done, 10)


@pytest.mark.kill
def test_a_standby_takes_the_place_of_a_host_that_is_lost(hosts: Sequence[Host]) -> None:
    first, second, third = hosts
    places = ["--place", f"switch0={third.address}", "--place", f"node0={third.address}"]
    start(hosts, *places, "--place", f"node1={second.address}", "--standby", "1", "--lease", "4s", nodes=2)
    send(first, 0, 40)
    wait_for(lambda: all(each["is_covered"] for each in residences(first).values() if each["standby"]))
    third.cut()
    time.sleep(2)
    third.mend()
    send(first, 40, 20)
    assert "moves to" not in log_of(first)
    third.cut()
    lost = time.monotonic()
    send(first, 60, 20)
    taken_s = time.monotonic() - lost
    assert f"node0 moves to its standby at {first.address}:7070" in log_of(first)
    assert f"switch0 moves to its standby at {first.address}:7070" in log_of(first)
    assert taken_s > 4, "it must have been lost for the lease"
    wait_for(lambda: not machine_pids(third))  # it ends what it has, though nobody can tell it to
    assert [residences(first)[name]["branch"] for name in ("switch0", "node0", "node1")] == [1, 1, 0]
    third.mend()
    wait_for(lambda: machine_pids(third) or residences(first)["node1"]["standby"] == f"{first.address}:7070")
    send(first, 80, 20)
    first.cumulus("cluster", "stop", "live")
    start(hosts, "--standby", "1", "--lease", "4s", nodes=2)  # where they are now
    send(first, 100, 20)
    assert [residences(first)[name]["host"] for name in ("switch0", "node0")] == [f"{first.address}:7070"] * 2
    epochs = first.run("ls", "live/epochs").split()
    assert len(epochs) == len(set(epochs))


def residences(host: Host, layout: int = 0) -> dict[str, dict[str, Any]]:
    folder = f"live/checkpoint/layout{layout}" if layout else "live/checkpoint"
    found: dict[str, dict[str, Any]] = json.loads(host.run("cat", f"{folder}/hosts.json"))
    return found


@pytest.mark.kill
def test_nodes_come_to_further_hosts_move_and_go_while_clients_send(hosts: Sequence[Host]) -> None:
    first, second, third = hosts
    first.cumulus("cluster", "start", "views.sql", "--home", "live", "--nodes", 1, "--trigger", "250ms")
    send(first, 0, 20)
    first.cumulus("cluster", "stop", "live")  # all on one computer until now
    start(hosts[:2], "--standby", "1", nodes=2)
    assert [len(machine_pids(host)) for host in hosts] == [4, 1, 0], "the first has the standby, too"
    send(first, 20, 20)
    second.write("clients.secret", first.run("cat", "live/checkpoint/secret"), is_secret=True)
    words = [sys.executable, "-c", SEND, "40", "400", f"cluster://{second.address}:7070", "clients.secret"]
    sending = second.start(*words)
    more = ["--nodes", 4, "--host", f"{third.address}:7070"]
    assert "live: 2 nodes → 4" in first.cumulus("cluster", "resize", "live", *more)
    where = {name: each["host"] for name, each in residences(first, layout=2).items()}
    assert where["node2"] == f"{third.address}:7070", "the host that has the fewest"
    assert sending.poll() is None, sending.communicate()[0]
    place = f"node1={third.address}"
    assert f"live: 4 nodes → 4, {place}" in first.cumulus("cluster", "resize", "live", "--place", place)
    assert residences(first, layout=3)["node1"]["host"] == f"{third.address}:7070"
    told, _ = sending.communicate(timeout=120)
    assert sending.returncode == 0, told
    assert json.loads(told.splitlines()[-1])[0] == expected(440), told
    send(first, 440, 20)
    assert "no --host 10.99.0.1 is given" in failed(first, "cluster", "resize", "live", "--place", "node0=10.99.0.1")
    assert "live: 4 nodes → 1" in first.cumulus("cluster", "resize", "live", "--nodes", 1)
    send(first, 460, 10)
    for host in filter(machine_pids, hosts):
        assert {path.split("/")[2] for path in folders(host)} <= {"layout4"}, "what nobody reads is removed"
    first.cumulus("cluster", "stop", "live")
    told = failed(first, "cluster", "start", "views.sql", "--home", "live")
    assert "what its machines have is on other hosts, and no --host is given" in told
    start(hosts, nodes=1)
    send(first, 470, 10)


def folders(host: Host) -> list[str]:
    return host.run("sh", "-c", "ls -d data/*/* 2> /dev/null || true").split()


def failed(host: Host, *words: object) -> str:
    with pytest.raises(AssertionError) as told:
        host.cumulus(*words)
    return str(told.value)


@pytest.mark.kill
def test_a_link_is_lost_after_seconds_of_silence_and_a_pair_that_cannot_meet_is_told(hosts: Sequence[Host]) -> None:
    first, second, third = hosts
    start(hosts, "--place", f"node0={second.address}", "--place", f"node1={third.address}", nodes=2)
    send(first, 0, 20)
    second.lose_way_to(third)
    with pytest.raises(AssertionError):  # not in time: nodes of a pair of hosts cannot hear each other
        first.python(
            "import cumulus; c = cumulus.connect('live', timeout_s=12); "
            "c.view('kinds', after=c.insert('sales', [(900, 1, 1), (901, 2, 1), (902, 3, 1)]))"
        )
    wait_for(lambda: "has lost its link to node" in log_of(first))
    wait_for(lambda: f"node1 at {third.address}:" in log_of(first))
    assert "has not been reached for 5 s" in log_of(first)
    time.sleep(8)
    assert log_of(first).count("the cluster goes on after") == 1, "one reset, and not one every five seconds"
    second.find_way_to(third)
    told = first.python("import cumulus; print(cumulus.connect('live', timeout_s=60).get('dearest', 1).row)")
    assert told
    first.python(
        "import cumulus; c = cumulus.connect('live', timeout_s=60); "
        "c.view('kinds', after=c.delete('sales', [(900, 1, 1), (901, 2, 1), (902, 3, 1)]))"
    )
    send(first, 20, 20)


@pytest.mark.slow
def test_pods_of_the_page_are_hosts_of_a_cluster(tmp_path: Path) -> None:
    """The commands of docs/kubernetes.yaml, on hosts with the names that Kubernetes gives."""
    service, pods = yaml.safe_load_all((ROOT / "docs" / "kubernetes.yaml").read_text())
    spec = pods["spec"]
    [container] = spec["template"]["spec"]["containers"]
    assert spec["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None", "it is headless"
    assert service["spec"]["selector"] == spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert {each["name"] for each in container["volumeMounts"]} == {"secret", "state"}
    assert container["command"] == ["cumulus", "cluster", "agent"]
    (tmp_path / "own").mkdir()
    domain = f"{spec['serviceName']}.default.svc.cluster.local"
    write_certificates(tmp_path, [f"*.{domain}"])
    with Hosts(tmp_path / "own", spec["replicas"]) as hosts:
        names = {f"{pods['metadata']['name']}-{number}.{domain}": host for number, host in enumerate(hosts)}
        for name, host in names.items():
            host.name({each: other.address for each, other in names.items()})
            host.write("agents.secret", "of agents", is_secret=True)
            for file, source in (("ca.pem", "ca.pem"), ("tls.pem", f"*.{domain}.pem"), ("tls.key", f"*.{domain}.key")):
                host.write(file, (tmp_path / source).read_text(), is_secret=True)
            given = [each.replace("$(POD)", name.partition(".")[0]) for each in container["args"]]
            words = [each.replace("/etc/cumulus/", "").replace("/var/lib/cumulus/", "") for each in given]
            agent = host.start(sys.executable, "-m", "cumulus", "cluster", "agent", *words)
            assert agent.stdout is not None
            assert "the agent listens" in agent.stdout.readline()
        first, second, _ = hosts
        first.write("views.sql", VIEWS)
        options = [word for name in names for word in ("--host", name)]
        options += ["--agents-secret", "agents.secret", "--tls-ca", "ca.pem", "--standby", "1", "--trigger", "250ms"]
        first.cumulus("cluster", "start", "views.sql", "--home", "live", "--nodes", 3, *options)
        send(first, 0, 20)
        second.write("clients.secret", first.run("cat", "live/checkpoint/secret"), is_secret=True)
        send(second, 20, 20, f"cluster://{list(names)[2]}", "clients.secret")
        first.cumulus("cluster", "stop", "live")


@pytest.mark.slow
def test_what_goes_between_hosts_cannot_be_read(hosts: Sequence[Host], tmp_path: Path) -> None:
    """Rows with a word of their own go over a cable on which all bytes are kept."""
    first, second, _ = hosts
    capture = f"""
import socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.bind(("eth0", 0))
print("ready", flush=True)
with open({str(tmp_path / "packets")!r}, "wb") as file:
    while True:
        file.write(tap.recv(65535))
        file.flush()
"""
    listening = second.start(sys.executable, "-c", capture)
    assert listening.stdout is not None
    assert listening.stdout.readline() == "ready\n"
    start(hosts)
    send(first, 0, 10)
    word = "a-word-of-its-own"
    first.python(
        f"import cumulus; c = cumulus.connect('live'); r = c.insert('products', [(99, {word!r})]); "
        f"r = c.insert('sales', [(999, 99, 1)]); assert {word!r} in str(c.view('kinds', after=r).rows())"
    )
    packets = (tmp_path / "packets").read_bytes()
    assert len(packets) > 10_000
    assert word.encode() not in packets


@pytest.mark.slow
def test_mistakes_are_told_before_anything_is_written(hosts: Sequence[Host]) -> None:
    first, second, third = hosts

    start(hosts)
    first.cumulus("cluster", "stop", "live")
    second.write("views.sql", VIEWS)
    named = [word for host in hosts for word in ("--host", f"{host.address}:7070")]
    words: list[object] = ["cluster", "start", "views.sql", "--home", "live", "--nodes", 3, *named]
    words += ["--agents-secret", "agents.secret", "--tls-ca", "ca.pem"]
    assert "the home of another cluster is there, on the first --host" in failed(second, *words)
    assert "what goes there could be read" in failed(first, *words[:-2])
    told = failed(first, *words, "--place", f"publisher={second.address}")
    assert "publisher writes the home, the first --host" in told
    start(hosts)
    assert "it serves the supervisor of cluster" in failed(
        first, *[{"live": "other"}.get(each, each) for each in words]
    )
    send(first, 0, 10)
    first.cumulus("cluster", "stop", "live")
    end_agent(third)
    third.write("other.secret", "another", is_secret=True)
    start_agent(third, secret="other.secret")
    assert f"the agent at {third.address}:7070 refuses: supervisor does not know the secret" in failed(first, *words)
    end_agent(third)
    for kind in ("pem", "key"):  # the certificate of another host
        third.write(f"{third.address}.{kind}", second.run("cat", f"{second.address}.{kind}"), is_secret=True)
    start_agent(third)
    assert "shows a certificate that is not trusted: IP address mismatch" in failed(first, *words)
    named = [word for host in hosts[:2] for word in ("--host", f"{host.address}:7070")]
    words = ["cluster", "start", "views.sql", "--home", "live", "--nodes", 3, *named]
    words += ["--agents-secret", "agents.secret", "--tls-ca", "ca.pem"]
    told = failed(first, *words)
    assert f"node1 has its state at {third.address}:7070, and no --host names it" in told
    start(hosts[:2], "--place", f"node1={second.address}")
    wait_for(lambda: "epoch 1 is committed, and not in the log" in log_of(first))


EVERY_EPOCH = """
import sys, time
from pathlib import Path
from cumulus.epochs.committed.manifest import newest_epoch
from cumulus_lab.experiments.equal_outputs import difference
whole, home = map(Path, sys.argv[1:])
end = time.monotonic() + 100
while newest_epoch(home) != newest_epoch(whole):
    assert time.monotonic() < end, newest_epoch(home)
    time.sleep(0.1)
assert not difference(whole, home), difference(whole, home)
print("the same", newest_epoch(whole))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shop", "flights", "q3", "q5", "q10"])
def test_each_epoch_is_that_of_the_embedded_host_in_every_mode(
    hosts: Sequence[Host], tmp_path: Path, name: str
) -> None:
    """Files are read at the first host; nodes are on all three."""
    first, files, suite = hosts[0], tmp_path / "in", benchmark("tpch")
    if name == "shop":
        shop.write(files)
        script = shop.sql()
    elif name == "flights":
        flights.write(files, epochs=2)
        for file in files.glob("*/*.parquet"):  # the switch of a central mode takes 10 ms for an event of these views
            if file.parent.name not in flights.STATIC:
                pq.write_table(pq.read_table(file).slice(0, 30), file)
        script = flights.sql()
    else:
        told, _ = small_stream("tpch", name, 160, 1, "rely")
        schemas = {table: suite.schema(table) for table in suite.query_columns(name, "used")}
        changes.write(files, changes.epochs(told, schemas, 1 + len(told) // 4))
        script = suite.sql(name, keys="foreign")
    first.write("views.sql", script)
    first.cumulus("run", "views.sql", "--from", files, "--out", "embedded", "--host", "embedded")
    for way in (*([mode] for mode in Mode), [Mode.CENTRAL_TARGET, "--dispatch", "directives"]):
        home, switches = "-".join(way), 1 if RULES[Mode(way[0])].needs_one_switch else 2
        options = [word for host in hosts for word in ("--host", f"{host.address}:7070")]
        options += ["--agents-secret", "agents.secret", "--tls-ca", "ca.pem", "--trigger", "100ms", "--mode", *way]
        options += ["--place", f"node1={hosts[1].address}", "--place", f"node2={hosts[2].address}", "--from", files]
        words = ("views.sql", "--home", home, "--nodes", 3, "--switches", switches)
        first.cumulus("cluster", "start", *words, *options)
        assert "the same" in first.run(sys.executable, "-c", EVERY_EPOCH, "embedded", home)
        first.cumulus("cluster", "stop", home)


def end_agent(host: Host) -> None:
    for pid in [pid for pid, line in host.command_lines().items() if "cluster agent" in line]:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not host.command_lines())
