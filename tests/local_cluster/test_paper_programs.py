"""The papers' programs as a user runs them on a cluster: planned, over folders, and live, event after event.

Their maps have no definitions: what is right is what a warehouse has after the same events, one by one, in the order of
versions.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cumulus
from cumulus.cli.main import app
from cumulus.cluster.live.address import read_address
from cumulus.cluster.live.client import ClusterClient
from cumulus.epochs.output.query import query
from cumulus.errors import CumulusError
from cumulus.hosts import WriteReceipt
from support.paper_programs import CIRCLES, PROGRAMS, Event, one_by_one, random_events, write_epochs
from support.tiers import one_mode_each, sampled

pytestmark = pytest.mark.xdist_group("paper programs")  # processes of clusters, one after the other


def run(*arguments: object) -> str:
    """Run a command as `cumulus` does; what it prints."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def rows_of(out: Path, view: str) -> list[tuple[object, ...]]:
    """Return the rows of a view in an output folder, sorted."""
    found = query(out, f'SELECT * FROM "{view}" ORDER BY ALL')
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize(("place", "order"), one_mode_each([*PROGRAMS, *CIRCLES], ("clock", "switch"), of=6))
def test_a_run_over_folders_has_the_views_of_its_events_one_by_one(place: str, order: str, tmp_path: Path) -> None:
    """Events of an epoch come switch by switch, on each table by table: one file of a table is one block."""
    text, draw = (PROGRAMS | CIRCLES)[place], random.Random(f"{place} {order}")
    file = tmp_path / "paper.m3"
    file.write_text(text)
    parts = write_epochs(tmp_path / "in", random_events(text, 60, draw), text, 3)
    switches = 2
    plan = json.loads(run("cluster", "plan", file, "--nodes", 2, "--switches", switches, "--json"))
    assert plan["gated"]["views"] == []
    switch_of = {each["name"]: each["switch"] for each in plan["tables"]}
    run(
        *("run", file, "--from", tmp_path / "in", "--out", tmp_path / "out", "--host", "cluster", "--nodes", 2),
        *("--switches", switches, "--files-per-epoch", 1, "--order", order),
    )
    tables = list(switch_of)
    blocks = {name: [to for to in tables if switch_of[to] == switch_of[name]].index(name) for name in tables}
    place_of = {name: (blocks[name] if order == "clock" else 0, switch_of[name], blocks[name]) for name in tables}
    ordered = [event for part in parts for event in sorted(part, key=lambda event: place_of[event[1]])]
    expected = one_by_one(text, ordered)
    for view in expected.views:
        assert rows_of(tmp_path / "out", view) == sorted(expected.view(view).rows()), view


@contextmanager
def live(folder: Path, text: str, *arguments: object) -> Iterator[Path]:
    """Run a cluster."""
    file, home = folder / "paper.m3", folder / "home"
    file.write_text(text)
    run("cluster", "start", file, "--home", home, "--trigger", "200ms", *arguments)
    try:
        yield home
    finally:
        run("cluster", "stop", home)


class Sent:
    """Events that were sent one by one, and in which order they are by their versions."""

    def __init__(self, switch_of: dict[str, int]) -> None:
        self._switch_of = switch_of
        self._blocks: dict[tuple[int, int], int] = {}
        self._placed: list[tuple[tuple[int, int, int], Event]] = []

    def send(self, client: ClusterClient, event: Event) -> WriteReceipt:
        """Send an event; return what the client is told."""
        sign, relation, row = event
        token = (client.insert if sign > 0 else client.delete)(relation, [row])
        switch = self._switch_of[relation]
        at = self._blocks[token.epoch, switch] = self._blocks.get((token.epoch, switch), -1) + 1
        self._placed.append(((token.epoch, at, switch), event))
        return token

    @property
    def ordered(self) -> list[Event]:
        """All events in the order of versions."""
        return [event for _, event in sorted(self._placed)]


def kill(home: Path, machine: str) -> None:
    """Kill a machine; while all start anew its number may be that of a process which has ended."""
    until = time.monotonic() + 60
    while True:
        with suppress(ProcessLookupError):
            return os.kill(read_address(home).pids[machine], signal.SIGKILL)
        assert time.monotonic() < until, f"{machine} does not come back"
        time.sleep(0.01)


@pytest.mark.parametrize("place", sampled([*list(PROGRAMS)[1:], *CIRCLES], of=8))
def test_clients_of_two_switches_have_the_views_of_their_events_one_by_one(place: str, tmp_path: Path) -> None:
    """Also after a node and a switch were killed, and after all have been stopped and started again."""
    text, draw = (PROGRAMS | CIRCLES)[place], random.Random(place)
    events = random_events(text, 90, draw)
    fixed = ("--nodes", 2, "--switches", 2)
    with live(tmp_path, text, *fixed) as home:
        plan = json.loads(run("cluster", "plan", tmp_path / "paper.m3", *fixed, "--json"))
        sent = Sent({each["name"]: each["switch"] for each in plan["tables"]})
        with cumulus.connect(home, timeout_s=60) as one, cumulus.connect(home, timeout_s=60) as other:
            for event in events[:40]:
                sent.send(draw.choice((one, other)), event)
            for machine, event in zip(("node1", "switch1"), events[40:42], strict=True):
                kill(home, machine)
                sent.send(one, event)
            for event in events[42:60]:
                last = sent.send(one, event)
            compare(one, text, sent, last)
    with live(tmp_path, text, *fixed) as home, cumulus.connect(home) as client:
        for event in events[60:]:
            last = sent.send(client, event)
        compare(client, text, sent, last)


def compare(client: ClusterClient, text: str, sent: Sent, last: WriteReceipt) -> None:
    """Compare the committed views that have all that was sent with those of a warehouse."""
    expected = one_by_one(text, sent.ordered)
    for view in expected.views:
        assert sorted(client.view(view, after=last).rows()) == sorted(expected.view(view).rows()), view


def test_a_deletion_without_a_trigger_is_refused_with_the_reason(tmp_path: Path) -> None:
    """And one whose trigger does nothing is an event that changes nothing."""
    text = PROGRAMS["semester paper, example 2.1"].replace("RELATION R", "RELATION N(A INT); RELATION R")
    text += " ON +N(A) { m2[A] += 0; } ON -N(A) { }"
    file, out = tmp_path / "paper.m3", tmp_path / "out"
    file.write_text(text)
    for name, lines in (("R", "op,A,B\n+,1,1\n-,1,1\nc,2\n+,1,2\nu,1,2\n"), ("N", "op,A\n-,1\n-,2\n")):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "1.csv").write_text(lines)
    told = run("run", file, "--from", tmp_path / "in", "--out", out, "--host", "cluster", "--nodes", 2)
    assert "7 events, 4 applied, 3 quarantined" in told
    refused = [row for path in out.rglob("quarantine/**/*.parquet") for row in pq.read_table(path).to_pylist()]
    assert {(row["relation"], row["position"]) for row in refused} == {("R", 2), ("R", 3), ("R", 5)}
    reasons = {row["position"]: row["reason"] for row in refused}
    assert reasons[2] == "the program has no trigger ON -R, and its maps have no definitions"
    assert reasons[5] == "an update needs the old row, and R has no primary key"
    expected = one_by_one(text, [(1, "R", (1, 1)), (1, "R", (1, 2))])
    assert rows_of(out, "m1") == expected.view("m1").rows() == [(13,)]


ORDERED = "VIEW v(s HUGEINT) FROM q SELECT s; MAP q[](s HUGEINT); MAP p[](s HUGEINT);"
NOT_IN_ORDER = {
    "a condition": (
        f"RELATION r(a INT, x INT); {ORDERED} ON +r(a, x) {{ q[] += {{p[] > 2}} * x; p[] += x; }}",
        "",
        r"map q has no definition.*: q is gated\. A statement of ON \+r puts p into a condition",
    ),
    "a gated view beside": (
        f"""RELATION r(a INT, x INT); {ORDERED} MAP m[](n BIGINT) COUNT n = SUM[](r(a, x)); MAP e[](n BIGINT);
        VIEW w(n BIGINT) FROM e SELECT n;
        ON +r(a, x) {{ q[] += p[] * x; p[] += x; m[] += 1; e[] := EXISTS(m[]); }}""",
        "",
        r"map q has no definition.* is gated\. ",
    ),
    "all gated": (
        f"RELATION r(a INT, x INT); {ORDERED} ON +r(a, x) {{ q[] += p[] * x; p[] += x; }}",
        "--mode gated",
        r"map q has no definition.*: q is gated\. All is gated, as asked for",
    ),
    "a primary key": (
        f"RELATION r(a INT NOT NULL, x INT) KEY (a); {ORDERED} ON +r(a, x) {{ q[] += p[] * x; p[] += x; }}",
        "",
        "map q has no definition.*table r has a primary key",
    ),
    "kept rows": (
        f"""RELATION r(a INT, x INT) KEPT k; {ORDERED} MAP k[a INT, x INT](n BIGINT) COUNT n;
        ON +r(a, x) {{ q[] += p[] * x; p[] += x; k[a, x] += 1; }} ON -r(a, x) {{ k[a, x] += -1; }}""",
        "",
        "map q has no definition.*table r keeps its rows",
    ),
    "a circle (semester paper, example 3.2)": (
        f"RELATION r(a INT, x INT); {ORDERED} ON +r(a, x) {{ q[] += p[]; }} ON -r(a, x) {{ p[] += q[]; }}",
        "--mode ticks",
        "the maps feed each other in a circle.*: q → p → q",
    ),
}


@pytest.mark.parametrize("name", NOT_IN_ORDER)
def test_what_has_no_order_is_refused_by_name_before_anything_is_written(name: str, tmp_path: Path) -> None:
    text, options, reason = NOT_IN_ORDER[name]
    file, home, out = tmp_path / "hand.m3", tmp_path / "home", tmp_path / "out"
    file.write_text(text)
    (tmp_path / "in" / "r").mkdir(parents=True)
    sentences = set()
    for command in (
        f"cluster plan {file} --nodes 2",
        f"cluster start {file} --home {home} --nodes 2",
        f"run {file} --from {tmp_path / 'in'} --out {out} --host cluster --nodes 2",
    ):
        with pytest.raises(CumulusError, match=reason) as refused:
            run(*command.split(), *options.split())
        sentences.add(str(refused.value).removeprefix("the cluster cannot start: "))
    assert len(sentences) == 1, sentences
    assert not out.exists()
