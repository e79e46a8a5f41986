"""Files that switches read on hosts of their own: what the publisher tells, and who is where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.cluster.machine_tasks import ListFiles, Listing, Unreadable
from cumulus.cluster.messages import EpochRefused, EpochTold, EpochTurn
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.processes.cluster_hosts import HostSettings
from cumulus.cluster.processes.cluster_settings import ClusterSettings, settings_of
from cumulus.cluster.processes.home import Home, reader_hosts
from cumulus.cluster.processes.host_places import HostPlaces
from cumulus.cluster.processes.tasks import StateFiles, SwitchTasks, check_sources, looks_of
from cumulus.cluster.publisher import Publisher
from cumulus.cluster.resets import Reset
from cumulus.cluster.switches.files_elsewhere import FileLook, FilesAsked, FilesFound, LookingSwitch
from cumulus.compiler import compile_sql
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError, MismatchError, RemoteProtocolError, UsageError
from cumulus.machine import Completed, Effect, Input, Lost, Perform, Received, Send, Tick
from support.orders_stream import json_lines

PROGRAM = compile_sql(
    "CREATE TABLE a (x INT); CREATE TABLE b (x INT); CREATE TABLE c (x INT);"
    "CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM a GROUP BY x; CREATE VIEW w AS SELECT SUM(x) AS s FROM b;"
    "CREATE VIEW y AS SELECT SUM(x) AS s FROM c;",
    rely=False,
    enforced=False,
)
BEFORE: dict[str, dict[str, Any]] = {"a": {"last": "1", "count": 1}, "b": {"last": "2", "count": 2}}


def sent(effects: list[Effect], kind: type) -> list[tuple[str, Any]]:
    return [(each.to, each.message) for each in effects if isinstance(each, Send) and isinstance(each.message, kind)]


def test_an_epoch_is_told_when_all_have_said_what_there_is() -> None:
    look = FileLook({"switch1": ["b"], "switch2": ["c"]})
    asked = list(look.begin(3, BEFORE))
    assert asked == [
        Send("switch1", FilesAsked(3, {"b": {"last": "2", "count": 2}})),
        Send("switch2", FilesAsked(3, {})),
    ]
    look.take("switch1", FilesFound(3, {"b": ["3"]}, {"b": {"last": "3", "count": 3}}, 4))
    look.note_here(None)
    assert not look.is_over
    assert [each.to for each in look.again()] == ["switch2"]
    look.take("switch2", FilesFound(2, {"c": ["9"]}, {}, 0))
    assert not look.is_over, "it was asked that in an earlier incarnation"
    look.take("switch2", FilesFound(3, {}, {"c": {"last": "", "count": 0}}, 0))
    assert look.is_over
    assert look.left == 4
    listing = look.result(BEFORE)
    assert listing is not None
    assert listing.files == {"b": ["3"]}
    assert listing.progress == {
        "a": {"last": "1", "count": 1},
        "b": {"last": "3", "count": 3},
        "c": {"last": "", "count": 0},
    }
    list(look.begin(4, BEFORE))
    look.note_here(Listing({"a": ["2"]}, {"a": {"last": "2", "count": 2}}, True))
    for switch in ("switch1", "switch2"):
        look.take(switch, FilesFound(4, {}, {}, 0))
    listing = look.result(BEFORE)
    assert listing == Listing({"a": ["2"]}, {**BEFORE, "a": {"last": "2", "count": 2}}, True)
    list(look.begin(5, BEFORE))
    look.note_here(None)
    for switch in ("switch1", "switch2"):
        look.take(switch, FilesFound(5, {}, {}, 0))
    assert look.result(BEFORE) is None, "there is nothing new"


@pytest.mark.parametrize(("switch", "tables"), [("switch1", ["c"]), ("switch0", ["b"]), ("switch1", ["b", "a"])])
def test_a_switch_tells_of_its_own_tables_alone(switch: str, tables: list[str]) -> None:
    look = FileLook({"switch1": ["b"]})
    list(look.begin(1, {}))
    with pytest.raises(RemoteProtocolError, match="that it does not read"):
        look.take(switch, FilesFound(1, {table: ["x"] for table in tables}, {}, 0))


def test_the_publisher_waits_for_a_switch_and_asks_again_after_a_reset() -> None:
    publisher = Publisher(1, 2, "watcher", 0, {}, 1000, elsewhere={"switch1": ["b"]})
    effects = publisher.step([Tick(0)])
    assert sent(effects, FilesAsked) == [("switch1", FilesAsked(1, {}))]
    [listing] = [each.task for each in effects if isinstance(each, Perform)]
    assert isinstance(listing, ListFiles)
    assert publisher.step([Completed(listing, Listing({"a": ["1"]}, {"a": {"last": "1", "count": 1}}, False))]) == []
    assert publisher.step([Tick(5000)]) == [], "it looks for nothing else meanwhile"
    again = publisher.step([Lost("switch1"), Received("supervisor", Reset(0))])
    assert sent(again, FilesAsked) == [("switch1", FilesAsked(1, {}))]
    effects = publisher.step([Received("switch1", FilesFound(1, {"b": ["7"]}, {"b": {"last": "7", "count": 1}}, 2))])
    assert sent(effects, EpochTurn)[0][1].files == {"a": ["1"], "b": ["7"]}
    stale = FilesFound(1, {"b": ["8"]}, {"b": {"last": "8", "count": 2}}, 0)
    effects = publisher.step([Received("switch1", stale)])
    assert not sent(effects, EpochTurn), "it had been asked twice"
    assert sent(effects, EpochTold) == []


def test_what_a_switch_cannot_read_ends_the_cluster_as_at_the_home() -> None:
    publisher = Publisher(1, 1, "watcher", 0, {}, 1000, elsewhere={"switch0": ["b"]})
    publisher.step([Tick(0)])
    effects = publisher.step([Received("switch0", EpochRefused(1, "h2:7070: no", "way out"))])
    [given_up] = [each.task for each in effects if isinstance(each, Perform)]
    assert given_up.problem == Unreadable("h2:7070: no", "way out")


class Silent:
    def __init__(self) -> None:
        self.heard: list[Input] = []

    def step(self, inputs: Any) -> list[Effect]:
        self.heard += inputs
        return []

    def check(self) -> None:
        """Nothing needs to hold."""


def settings_for(folder: Path, read_at: dict[str, str], switches: int = 3) -> ClusterSettings:
    sources = tuple(FolderSource(name, str(folder / name)) for name in "abc")
    shape = (str(folder / "out"), str(folder / "home"), "x", "x", 2, switches, "eventual", ())
    return ClusterSettings(*shape, sources, read_at=tuple(sorted(read_at.items())))


def test_a_switch_says_what_is_there_or_what_is_the_matter_on_its_host(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, {"b": "h2:7070"})
    assert settings_of(settings.plain()) == settings
    plan = plan_cluster(PROGRAM, 2, 3)
    switch = plan.tables.switch_of["b"]
    json_lines(tmp_path / "b" / "1.json", [{"x": 1}])
    json_lines(tmp_path / "b" / "2.json", [{"x": 2}])
    tasks = SwitchTasks(settings, plan, switch, StateFiles("s", tmp_path))
    inner = Silent()
    machine = LookingSwitch(inner, "publisher")
    [wanted] = machine.step([Received("publisher", FilesAsked(1, {})), Tick(3)])
    assert isinstance(wanted, Perform)
    assert inner.heard == [Tick(3)]
    [answer] = machine.step([Completed(wanted.task, tasks.run(wanted.task))])
    assert isinstance(answer, Send)
    found = answer.message
    assert isinstance(found, FilesFound)
    assert (found.files, found.left, found.progress["b"]["last"]) == ({"b": ["1.json"]}, 1, "1.json")
    assert looks_of(settings, plan, plan.tables.switch_of["a"]) == []
    looks = looks_of(settings, plan, switch)
    (tmp_path / "b" / "1.json").unlink()
    (tmp_path / "b" / "2.json").unlink()
    (tmp_path / "b").rmdir()
    refused = tasks.run(wanted.task)
    assert isinstance(refused, EpochRefused)
    assert refused.message.startswith(f"h2:7070: {tmp_path / 'b'}: the source of table 'b' cannot be listed")
    with pytest.raises(InputError, match=r"h2:7070: .*: the source of table 'b' is not there"):
        check_sources(settings, looks)


AGENTS = HostSettings(("h1", "h2:7171", "h3"), {}, "secret", insecure=True)


def test_each_switch_that_reads_files_is_where_these_are(tmp_path: Path) -> None:
    plan = plan_cluster(PROGRAM, 2, 3)
    of = {table: f"switch{plan.tables.switch_of[table]}" for table in "abc"}
    readers = reader_hosts(settings_for(tmp_path, {"b": "h2:7171", "c": "h3:7070"}), plan)
    assert readers == {of["a"]: "", of["b"]: "h2:7171", of["c"]: "h3:7070"}
    placed = AGENTS.placed(["publisher", "switch0", "switch1", "switch2", "node0"], readers)
    assert (placed["publisher"], placed[of["a"]], placed[of["b"]]) == (("h1", 7070), ("h1", 7070), ("h2", 7171))
    assert placed[of["c"]] == ("h3", 7070)
    other = HostSettings(AGENTS.agents, {of["b"]: "h3"}, "secret", insecure=True)
    with pytest.raises(UsageError, match=f"--place {of['b']}=h3: {of['b']} reads files of this host, h2:7171"):
        other.placed(["publisher", "switch0", "switch1", "switch2"], readers)
    with pytest.raises(UsageError, match="no --host h9:7070 is given"):
        AGENTS.placed(["publisher", "switch0"], {"switch0": "h9:7070"})
    one = plan_cluster(PROGRAM, 2, 1)
    for at, why in (
        ({"b": "h2:7171"}, "--read-at h2:7171=b: switch0 reads a, too, at the host of the home"),
        ({"a": "h2:7171"}, "--read-at h2:7171=a: switch0 reads b, too, at the host of the home"),
        ({"a": "h2:7171", "b": "h3:7070", "c": "h2:7171"}, "--read-at h3:7070=b: switch0 reads a, too, at h2:7171"),
    ):
        with pytest.raises(UsageError) as raised:
            reader_hosts(settings_for(tmp_path, at, 1), one)
        assert raised.value.message == why
    assert reader_hosts(settings_for(tmp_path, dict.fromkeys("abc", "h2:7171"), 1), one) == {"switch0": "h2:7171"}


def test_a_switch_that_reads_files_of_its_host_has_no_standby(tmp_path: Path) -> None:
    places = HostPlaces(tmp_path, [("h1", 1), ("h2", 1), ("h3", 1)], bound=["switch0"])
    places.settle({"switch0": ("h2", 1), "node0": ("h2", 1)})
    places.choose(())
    assert list(places.standbys()) == ["node0"]
    assert not places.lacks(())
    assert (places.host_of("switch0"), places.host_of("switch7")) == ("h2:1", "")


def opened(tmp_path: Path, read_at: list[tuple[str, str]]) -> ClusterSettings:
    sources = tuple(FolderSource(name, str(tmp_path / name)) for name in "abc")
    out = tmp_path / "out"
    with Home(PROGRAM, sources, out, None, mode=Mode.EVENTUAL, nodes=1, switches=3, read_at=read_at) as home:
        return home.settings


def test_a_home_goes_on_reading_where_it_was(tmp_path: Path) -> None:
    assert opened(tmp_path, [("b", "h2:1")]).read_at == (("b", "h2:1"),)
    assert opened(tmp_path, []).read_at == (("b", "h2:1"),)
    settings = opened(tmp_path, [("b", "h3:1"), ("a", "")])
    assert settings.read_at == (("b", "h3:1"),), "nothing was read yet"
    sink = Sink(Path(settings.out), settings.checkpoint, settings.program)
    taken = {"last": "1", "count": 1}
    sink.commit(1, [], {"b": taken, "c": taken, "a": {"last": "", "count": 0}}, {}, 100)
    sink.close()
    for wrong, why in (
        (("b", "h2:1"), "files of b were read at h3:1, and --read-at says h2:1"),
        (("b", ""), "files of b were read at h3:1, and --read-at says the host of the home"),
        (("c", "h2:1"), "files of c were read at the host of the home, and --read-at says h2:1"),
    ):
        with pytest.raises(MismatchError, match=why):
            opened(tmp_path, [wrong])
    assert opened(tmp_path, [("a", "h2:1"), ("b", "h3:1")]).read_at == (("a", "h2:1"), ("b", "h3:1"))


def test_nobody_looks_here_for_files_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    found = sources_from(["in"], PROGRAM, whole=False, elsewhere=["b"])
    assert [(each.relation, each.path) for each in found] == [("a", "in/a"), ("b", str(tmp_path / "in" / "b"))]
    found = sources_from(["elsewhere"], PROGRAM, whole=False, elsewhere=["b"])
    assert [each.path for each in found] == [str(tmp_path / "elsewhere" / "b")]
    [only] = sources_from(["c=far/c,format=csv"], PROGRAM, whole=False, elsewhere=["c"])
    assert (only.path, only.format) == (str(tmp_path / "far" / "c"), "csv")
    with pytest.raises(UsageError, match="another host reads folders and files alone"):
        sources_from(["c=view:out/v"], PROGRAM, whole=False, elsewhere=["c"])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("h1=a", "is about another host, and there is no --host"),
        ("=a", "--read-at =a is none"),
        ("a", "--read-at a is none"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(tmp_path: Path, given: str, why: str) -> None:
    (tmp_path / "p.sql").write_text("CREATE TABLE a (x INT); CREATE VIEW v AS SELECT COUNT(*) AS n FROM a;")
    words = ["cluster", "start", str(tmp_path / "p.sql"), "--home", str(tmp_path / "live"), "--read-at", given]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UsageError)
    assert why in result.exception.message
    assert not (tmp_path / "live").exists()
