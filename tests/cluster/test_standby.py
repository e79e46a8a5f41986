"""Standbys: what they keep of a machine, when that may take the machine's place, and where machines move to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.cluster.machine_tasks import SaveState
from cumulus.cluster.messages import EpochReady, RowsAccepted
from cumulus.cluster.processes.cluster_settings import ClusterSettings
from cumulus.cluster.processes.copy_files import (
    OwnLogTasks,
    StandbyTasks,
    branch_of,
    remove_older_layouts,
    take_over,
)
from cumulus.cluster.processes.host_places import HostPlaces, rename_hosts
from cumulus.cluster.processes.tasks import StateFiles
from cumulus.cluster.resets import Reset
from cumulus.cluster.senders import Senders
from cumulus.cluster.standby.copied_machine import AckPolicy, CopiedMachine
from cumulus.cluster.standby.copies import (
    CopyForget,
    CopyHeld,
    CopyKept,
    CopyMessage,
    CopyOffered,
    CopyReady,
    CopyRecord,
    CopyState,
    CopyWhole,
    KeepCopies,
    ReadOwnLog,
)
from cumulus.cluster.standby.standby import Standby
from cumulus.durable.log_files import RecordLog, read_records
from cumulus.errors import StoreError, UsageError
from cumulus.machine import Append, Completed, Effect, Forget, Input, Perform, Received, Recovered, Send
from cumulus.transport.machine_spec import SUPERVISOR
from support.tiers import examples

HOSTS = [("h1", 1), ("h2", 1), ("h3", 1)]
ACCEPTED, READY = RowsAccepted(1, 1), EpochReady(1, ())


def keep(tasks: StandbyTasks, *messages: CopyMessage) -> list[CopyHeld | CopyKept | None]:
    return tasks.run(KeepCopies([("node0", each) for each in messages]))


def log_of(folder: Path) -> tuple[int, list[bytes]]:
    log = RecordLog(folder / "log")
    found = log.recover()
    log.close()
    return found


WHOLE = CopyWhole(0, {"3": b"state"}, 5, [b"five", b"six"])


class Scripted:
    """A machine that does what it is told to do, by messages that are effects."""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        return [each.message for each in inputs if isinstance(each, Received) and not isinstance(each.message, Reset)]

    def check(self) -> None:
        """Nothing needs to hold."""


def copied(ack: AckPolicy = "standby", records: Sequence[bytes] = ()) -> CopiedMachine:
    machine = CopiedMachine("node0", Scripted(), 0, 0, ack)
    machine.step([Recovered(1, records)])
    return machine


def told(machine: CopiedMachine, *effects: Effect) -> list[Effect]:
    found = machine.step([Received("anybody", each) for each in effects])
    machine.check()
    return found


def heard(machine: CopiedMachine, message: object, sender: str = "standby1") -> list[Effect]:
    found = machine.step([Received(sender, message)])
    machine.check()
    return found


def met(machine: CopiedMachine, standby: str = "standby1") -> list[Effect]:
    return heard(machine, Reset(0, {"node0": standby} if standby else {}), SUPERVISOR)


# --- the machine ----------------------------------------------------------------------------------------------------


def test_what_must_outlive_the_host_waits_for_the_standby_and_nothing_else_does() -> None:
    machine = copied()
    assert met(machine) == [Send("standby1", CopyOffered(0, 1, 0, 0))]
    assert heard(machine, CopyHeld(0)) == [Send(SUPERVISOR, CopyReady("standby1", 0))]
    append, accepted, ready = Append(1, b"r"), Send("client", ACCEPTED), Send("publisher", READY)
    other = Send("node1", "deltas")
    assert told(machine, append, accepted, other, ready) == [append, Send("standby1", CopyRecord(1, b"r")), other]
    assert heard(machine, CopyKept(1)) == [accepted, ready]
    assert told(machine, accepted) == [accepted], "nothing is on its way"


def test_local_acknowledgement_waits_for_the_disk_alone_and_epochs_for_the_standby() -> None:
    machine = copied("local")
    met(machine)
    heard(machine, CopyHeld(0))
    found = told(machine, Append(1, b"r"), Send("client", ACCEPTED), Send("publisher", READY))
    assert Send("client", ACCEPTED) in found
    assert Send("publisher", READY) not in found


def test_what_waits_goes_in_its_order_behind_what_came_before() -> None:
    """An epoch that is ready as the answer of the standby comes is told behind the one before, which has waited."""
    machine, later = copied(), Send("publisher", EpochReady(8, ()))
    met(machine)
    heard(machine, CopyHeld(0))
    told(machine, Append(1, b"r"), Send("publisher", READY))
    found = machine.step([Received("standby1", CopyKept(1)), Received("anybody", later)])
    assert [each for each in found if isinstance(each, Send) and each.to == "publisher"] == [
        Send("publisher", READY),
        later,
    ]


def test_without_a_standby_nothing_waits() -> None:
    machine = copied()
    met(machine, "")
    effects: list[Effect] = [Append(1, b"r"), Send("client", ACCEPTED), Forget(1)]
    assert told(machine, *effects) == effects
    assert met(machine) == [Send("standby1", CopyOffered(0, 2, 1, 0))]


def test_a_survivor_sends_what_its_standby_lacks_and_all_to_another_one() -> None:
    machine = copied()
    met(machine)
    heard(machine, CopyHeld(0))
    told(machine, Append(1, b"one"), Append(2, b"two"), Append(3, b"three"), Send("client", ACCEPTED))
    heard(machine, CopyKept(1))
    met(machine)
    found = heard(machine, CopyHeld(2))
    assert found == [Send("standby1", CopyRecord(3, b"three"))]
    assert heard(machine, CopyHeld(2)) == [], "an answer of before"
    assert heard(machine, CopyKept(3)) == [Send("client", ACCEPTED), Send(SUPERVISOR, CopyReady("standby1", 0))]
    met(machine, "standby2")
    assert heard(machine, CopyHeld(3)) == [], "of a standby that it has no more"
    (asked,) = heard(machine, CopyHeld(-1), "standby2")
    assert asked == Perform(ReadOwnLog(0, 1, 3))
    told(machine, Append(4, b"four"))
    whole = CopyWhole(0, {}, 1, [b"one", b"two", b"three"])
    assert isinstance(asked, Perform)
    found = machine.step([Completed(asked.task, whole)])
    assert found == [Send("standby2", whole), Send("standby2", CopyRecord(4, b"four"))]
    found = heard(machine, CopyKept(3), "standby2") + heard(machine, CopyKept(4), "standby2")
    assert found == [Send(SUPERVISOR, CopyReady("standby2", 0))]
    assert machine.step([Completed(asked.task, whole)]) == [], "it is read once"


def test_snapshots_and_what_is_forgotten_are_copied() -> None:
    machine = copied(records=[b"one", b"two"])
    met(machine)
    assert heard(machine, CopyHeld(1)) == [Send("standby1", CopyRecord(2, b"two"))]
    saved = machine.step([Completed(SaveState(7, 6, b"state"), None)])
    assert saved == [Send("standby1", CopyState(7, 6, b"state"))]
    assert told(machine, Forget(1)) == [Forget(1), Send("standby1", CopyForget(1))]
    assert met(machine) == [Send("standby1", CopyOffered(0, 2, 2, 7))]


def test_a_standby_brings_what_has_come_meanwhile_to_the_disk_together() -> None:
    standby = Standby()
    first = standby.step([Received("node0", CopyRecord(1, b"a"))])
    assert first == [Perform(KeepCopies([("node0", CopyRecord(1, b"a"))]))]
    assert standby.step([Received("node0", CopyRecord(2, b"b")), Received("node1", CopyRecord(9, b"c"))]) == []
    assert isinstance(first[0], Perform)
    found = standby.step([Completed(first[0].task, [CopyKept(1)])])
    second = KeepCopies([("node0", CopyRecord(2, b"b")), ("node1", CopyRecord(9, b"c"))])
    assert found == [Send("node0", CopyKept(1)), Perform(second)]


def test_only_machines_are_copied_and_only_standbys_say_what_they_have() -> None:
    standby, node = Senders("standby0", 2, 1, {}, 2), Senders("node0", 2, 1, {}, 2)
    assert standby.may_send("node1", CopyRecord(1, b""))
    assert standby.may_send("switch0", WHOLE)
    assert not standby.may_send("client", CopyRecord(1, b""))
    assert node.may_send("standby1", CopyKept(1))
    assert not node.may_send("node1", CopyKept(1))
    assert not node.may_send("standby7", CopyKept(1))


# --- its files ------------------------------------------------------------------------------------------------------


def test_a_copy_goes_on_where_it_was(tmp_path: Path) -> None:
    tasks = StandbyTasks(tmp_path)
    assert keep(tasks, CopyOffered(0, 1, 6, 3)) == [CopyHeld(-1)]
    assert keep(tasks, WHOLE, CopyRecord(7, b"seven"), CopyRecord(8, b"eight")) == [CopyKept(6), None, CopyKept(8)]
    assert keep(tasks, CopyRecord(8, b"eight"), CopyRecord(9, b"nine")) == [None, CopyKept(9)]
    tasks.close()
    tasks = StandbyTasks(tmp_path)
    assert keep(tasks, CopyOffered(0, 5, 12, 3)) == [CopyHeld(9)]
    for other in (
        CopyOffered(1, 5, 12, 3),
        CopyOffered(0, 5, 8, 3),
        CopyOffered(0, 11, 12, 3),
        CopyOffered(0, 5, 9, 4),
    ):
        assert keep(tasks, other) == [CopyHeld(-1)], other
    keep(tasks, CopyState(4, 4, b"later"))
    assert keep(tasks, CopyOffered(0, 5, 9, 4)) == [CopyHeld(9)]
    tasks.close()
    folder = tmp_path / "copies" / "node0"
    assert log_of(folder) == (5, [b"five", b"six", b"seven", b"eight", b"nine"])
    assert StateFiles("node0", folder).newest(4) == b"later"


def test_a_copy_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    tasks = StandbyTasks(tmp_path)
    keep(tasks, WHOLE)
    tasks.close()
    (log,) = (tmp_path / "copies" / "node0" / "log").glob("*.log")
    data = bytearray(log.read_bytes())
    data[30] ^= 1
    log.write_bytes(data)
    tasks = StandbyTasks(tmp_path)
    assert keep(tasks, CopyOffered(0, 5, 6, 3), WHOLE) == [CopyHeld(-1), CopyKept(6)]
    tasks.close()
    assert log_of(tmp_path / "copies" / "node0") == (5, [b"five", b"six"])


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_copy_takes_the_place_of_its_machine_once(tmp_path: Path, is_empty: bool) -> None:
    whole = CopyWhole(0, {"3": b"state"}, 5, [] if is_empty else [b"five"])
    tasks = StandbyTasks(tmp_path)
    keep(tasks, whole)
    tasks.close()
    (tmp_path / "node0").mkdir()
    (tmp_path / "node0" / "9.state").write_text("of another life")
    take_over(tmp_path, "node0", 1)
    take_over(tmp_path, "node0", 1)
    folder = tmp_path / "node0"
    assert branch_of(folder) == 1
    assert StateFiles("node0", folder).epochs() == [3]
    assert log_of(folder)[1] == whole.records
    with pytest.raises(StoreError, match="the state of node0 is of branch 1, and branch 2 is to start"):
        take_over(tmp_path, "node0", 2)
    with pytest.raises(StoreError, match="branch 0 is to start"):
        take_over(tmp_path, "node0", 0)
    take_over(tmp_path, "node1", 0)
    assert not (tmp_path / "node1").exists()


def test_a_takeover_that_was_killed_is_finished(tmp_path: Path) -> None:
    tasks = StandbyTasks(tmp_path)
    keep(tasks, WHOLE)
    tasks.close()
    (tmp_path / "copies" / "node0" / "branch").write_text("1")
    take_over(tmp_path, "node0", 1)
    assert StateFiles("node0", tmp_path / "node0").epochs() == [3]


def test_a_machine_reads_its_own_log_back(tmp_path: Path) -> None:
    folder = tmp_path / "node0"
    log = RecordLog(folder / "log")
    log.recover()
    log.write([b"one", b"two"])
    log.write([b"three"])
    StateFiles("node0", folder).save(SaveState(2, 1, b"state"))
    tasks = OwnLogTasks(str, folder)
    assert tasks.run(ReadOwnLog(4, 2, 3)) == CopyWhole(4, {"2": b"state"}, 2, [b"two", b"three"])
    assert tasks.run(ReadOwnLog(4, 4, 3)).records == []
    assert tasks.run(7) == "7"
    log.close()


@given(st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=3), max_size=8), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_records_are_read_while_a_log_is_written_and_forgotten(content: list[list[bytes]], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        log = RecordLog(Path(folder), sync="never", segment_bytes=50)
        log.recover()
        for group in content:
            log.write(group)
        records = [each for group in content for each in group]
        forgotten = data.draw(st.integers(0, len(records)))
        log.forget(forgotten)
        first = data.draw(st.integers(1, len(records) + 1))
        last = data.draw(st.integers(max(first, forgotten) - 1, len(records)))
        begin, found = read_records(Path(folder), first, last)
        assert begin <= max(first, forgotten + 1)
        assert found == records[begin - 1 : last]
        log.close()


# --- where machines are -----------------------------------------------------------------------------------------------


def places(home: Path, hosts: Sequence[tuple[str, int]] = HOSTS) -> HostPlaces:
    found = HostPlaces(home, hosts)
    found.settle({"publisher": HOSTS[0], "node0": HOSTS[1], "node1": HOSTS[2]} | found.known(()))
    found.begin()
    return found


def test_machines_move_to_a_standby_that_has_everything(tmp_path: Path) -> None:
    found = places(tmp_path)
    assert found.choose([])
    assert found.standbys() == {"node0": "standby2", "node1": "standby0"}
    assert found.standby_hosts() == {"standby0": HOSTS[0], "standby2": HOSTS[2]}
    lost = [HOSTS[1]]
    assert not found.may_move(["node0"], lost), "nobody has said that it is whole"
    found.cover("node0", "standby1", 0)
    found.cover("node0", "standby2", 3)
    assert not found.may_move(["node0"], lost)
    found.cover("node0", "standby2", 0)
    assert found.may_move(["node0"], lost)
    assert not found.may_move(["node0"], HOSTS[1:]), "its host is lost, too"
    found = places(tmp_path)
    assert found.move(["node0"]) == {"node0": HOSTS[2]}
    assert found.branches() == {"node0": 1}
    found = places(tmp_path)
    assert found.address("node0") == HOSTS[2]
    found.choose(lost)
    assert found.standbys() == {"node0": "standby0", "node1": "standby0"}
    assert found.choose(HOSTS[:2])
    assert found.standbys() == {}
    assert found.lacks([HOSTS[0]])
    assert not found.lacks(HOSTS[:2])


def test_a_standby_that_cannot_go_on_is_no_standby_any_more(tmp_path: Path) -> None:
    found = places(tmp_path)
    found.choose([])
    found.bar("standby2")
    found.bar("standby1")  # which nobody has
    found.choose([])
    assert found.standbys() == {"node0": "standby0", "node1": "standby0"}


def test_a_host_that_is_not_named_any_more_is_left_if_a_standby_has_everything(tmp_path: Path) -> None:
    found = places(tmp_path)
    found.choose([])
    with pytest.raises(UsageError, match="node0 has its state at h2:1, and no --host names it") as refused:
        places(tmp_path, [HOSTS[0], HOSTS[2]])
    assert "Give --host h2:1" in str(refused.value.hint)
    found.cover("node0", "standby2", 0)
    assert places(tmp_path, [HOSTS[0], HOSTS[2]]).address("node0") == HOSTS[2]
    again = HostPlaces(tmp_path, [("other", 1)])
    again.settle({"publisher": ("other", 1), "node0": ("other", 1), "node1": ("other", 1)})  # placed by hand
    assert again.address("node0") == ("other", 1)


@pytest.mark.parametrize("text", ["", "[]", '{"node0": {"host": 1, "what": 2}}', '{"node0": 3}'])
def test_places_that_cannot_be_read_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts.json").write_text(text)
    with pytest.raises(StoreError, match=r"hosts\.json cannot be read"):
        HostPlaces(tmp_path, HOSTS)


def test_a_cluster_that_has_not_begun_is_nowhere(tmp_path: Path) -> None:
    """A host that does not answer at the first start may be called otherwise at the next one."""
    found = HostPlaces(tmp_path, HOSTS)
    found.settle({"publisher": HOSTS[0], "node0": HOSTS[1]})
    found.give_up_standbys()
    assert HostPlaces(tmp_path, [("other", 1)]).known(()) == {}
    found.begin()
    with pytest.raises(UsageError, match="has its state at"):
        HostPlaces(tmp_path, [("other", 1)]).known(())


def test_places_are_on_the_disk_before_anybody_acts_on_them(tmp_path: Path) -> None:
    found = places(tmp_path)
    found.choose([])
    found.cover("node0", "standby2", 0)
    found.move(["node0"])
    kept = json.loads((tmp_path / "hosts.json").read_text())["node0"]
    assert kept == {"host": "h3:1", "branch": 1, "standby": "", "is_covered": False, "is_beside": False}


def test_what_was_dealt_out_anew_is_removed_where_machines_start_and_nothing_else(tmp_path: Path) -> None:
    def laid_out(layout: int) -> ClusterSettings:
        return ClusterSettings("-", str(tmp_path / "data"), "c", "p", 2, 1, "eventual", (), (), layout=layout)

    remove_older_layouts(laid_out(2))  # of a standby on a host that has never had anything
    folders = ("node0", "copies/node1", "layout1/node0", "layout2/node0", "layout3/node1", "layout10/node0")
    for folder in folders:
        (tmp_path / "data" / folder).mkdir(parents=True)
    remove_older_layouts(laid_out(0))
    assert len([*(tmp_path / "data").iterdir()]) == 6
    remove_older_layouts(laid_out(2))
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"layout2", "layout3", "layout10"}
    assert laid_out(2).root == tmp_path / "data" / "layout2"
    assert laid_out(2).folder("publisher") == tmp_path / "data" / "publisher", "which reads no older state than its own"


def test_places_of_an_earlier_release_say_of_nobody_that_it_is_beside_the_home(tmp_path: Path) -> None:
    plain = {"host": "h1:1", "branch": 0, "standby": "", "is_covered": False}
    (tmp_path / "hosts.json").write_text(json.dumps(dict.fromkeys(("publisher", "switch0", "node0"), plain)))
    before = HostPlaces(tmp_path, [("h1", 1)])
    before.settle({"node1": ("h1", 1), "switch1": ("h1", 1)}, {"switch1"})
    for found in (before, HostPlaces(tmp_path, [("h1", 1)])):
        assert found.beside({"publisher", "switch0"}) == {"publisher", "switch0", "switch1"}
        assert found.beside({"publisher", "node1"}) == {"publisher", "switch1"}, "of whom it was told, that counts"
    rename_hosts(tmp_path, {"h1:1": "h9:9"})
    assert HostPlaces(tmp_path, [("h9", 9)]).address("node0") == ("h9", 9)
    (tmp_path / "hosts.json").write_text("[]")
    with pytest.raises(StoreError, match=r"hosts\.json cannot be read"):
        rename_hosts(tmp_path, {})
