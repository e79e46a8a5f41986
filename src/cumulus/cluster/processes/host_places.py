"""Where each machine of a cluster is, and where its standby: kept in the home, since their state is there."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cumulus.cluster.standby.standby import STANDBY, standby_name
from cumulus.durable.files import write_durably
from cumulus.errors import StoreError, UsageError
from cumulus.machine import Name
from cumulus.transport.connections import Address, place_text

PLACES_FILE = "hosts.json"


@dataclass(slots=True)
class _Residence:
    """Where one machine is.

    Parameters
    ----------
    host, standby
        As `place_text` writes them; "" for no standby.
    branch
        Of its log: how often it has moved.
    is_covered
        Whether the standby has all that the machine has told anybody.
    is_beside
        Whether its state is in the home, and not in the folder of its host's agent; None if it was taken down before
        anybody asked.
    """

    host: str
    branch: int = 0
    standby: str = ""
    is_covered: bool = False
    is_beside: bool | None = None


def has_places(root: Path) -> bool:
    """Whether the machines of a layout have run on hosts with agents; its folder beside the home says so."""
    return (root / PLACES_FILE).is_file()


def rename_hosts(root: Path, names: Mapping[str, str]) -> None:
    """Let hosts of a layout be called otherwise from now on: old address → new one, as `place_text` writes them."""
    if not has_places(root):
        return
    there = _read(root / PLACES_FILE)
    for each in there.values():
        each.host, each.standby = (names.get(at, at) for at in (each.host, each.standby))
    _write(root / PLACES_FILE, there)


def _read(path: Path) -> dict[Name, _Residence]:
    """Return machine → where it is, nothing without a file; StoreError if it cannot be read."""
    try:
        return {name: _Residence(**each) for name, each in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        raise StoreError(
            f"{path} cannot be read: {problem}",
            hint="Bring it back from a copy, or remove it and say with --place where machines ran last.",
        ) from None


def _write(path: Path, there: Mapping[Name, _Residence]) -> None:
    plain = {name: asdict(each) for name, each in there.items()}
    write_durably(path, json.dumps(plain, indent=1).encode())


class HostPlaces:
    """The hosts of machines; each change is in the home before anybody acts on it.

    Those of a cluster that has not run yet are taken down by `begin`: what cannot start is nowhere.

    Parameters
    ----------
    root
        The folder of the layout's state beside the home.
    agents
        Where the agents of the hosts are; the first is the host of the home.
    bound
        Machines that read what their hosts alone have: they have no standby, and wait for their host.
    """

    def __init__(self, root: Path, agents: Sequence[Address], bound: Collection[Name] = ()) -> None:
        self._path, self._agents, self._bound = root / PLACES_FILE, tuple(agents), frozenset(bound)
        self._by_text = {place_text(each): each for each in agents}
        self._barred: set[Address] = set()
        """Hosts whose standby cannot go on."""
        self._has_begun = has_places(root)
        self._there = _read(self._path)

    def begin(self) -> None:
        """Take down where the machines are that are about to start for the first time."""
        if not self._has_begun:
            self._has_begun = True
            self._save()

    def known(self, placed: Collection[Name]) -> dict[Name, Address]:
        """Return where machines are that are not among those placed by hand; one whose host is not named moves.

        Raises
        ------
        UsageError
            If it cannot: no host that is named has all of its state.
        """
        found: dict[Name, Address] = {}
        for name, residence in self._there.items():
            if name in placed:
                continue
            if residence.host not in self._by_text:
                if not residence.is_covered or residence.standby not in self._by_text:
                    raise UsageError(
                        f"{name} has its state at {residence.host}, and no --host names it",
                        hint=f"Give --host {residence.host} (an engine: as many hosts as before, on the same workers); "
                        f"if it is called otherwise now, --place {name}=HOST.",
                    )
                self._move(residence)
            found[name] = self._by_text[residence.host]
        return found

    def settle(self, placed: Mapping[Name, Address], beside: Collection[Name] = ()) -> None:
        """Note where machines are, and which of those that are new keep their state in the home."""
        for name, address in placed.items():
            text = place_text(address)
            residence = self._there.setdefault(name, _Residence(text, is_beside=name in beside))
            if residence.host != text:
                residence.host, residence.is_covered = text, False
        self._save()

    def host_of(self, machine: Name) -> str:
        """Return the host that has the state of a machine, as `place_text` writes it; "" if the home has it."""
        residence = self._there.get(machine)
        return "" if residence is None or residence.is_beside else residence.host

    def address(self, machine: Name) -> Address:
        """Return the host of a machine."""
        return self._by_text[self._there[machine].host]

    def beside(self, needed: Collection[Name]) -> frozenset[Name]:
        """Return the machines that keep their state in the home; those that need it, where that was not taken down."""
        return frozenset(
            name for name, each in self._there.items() if (name in needed if each.is_beside is None else each.is_beside)
        )

    def branches(self) -> dict[Name, int]:
        """Return the branches of the logs of machines that have moved."""
        return {name: each.branch for name, each in self._there.items() if each.branch}

    def machines_at(self, host: Address) -> list[Name]:
        """Return which machines are on a host."""
        return [name for name, each in self._there.items() if each.host == place_text(host)]

    # --- standbys ---------------------------------------------------------------------------------------------------

    def standbys(self) -> dict[Name, Name]:
        """Return machine → its standby."""
        return {name: self._standby_of(each.standby) for name, each in self._there.items() if each.standby}

    def standby_hosts(self) -> dict[Name, Address]:
        """Return standby → its host, of those that some machine has."""
        found = {self._standby_of(each.standby): each.standby for each in self._there.values() if each.standby}
        return {name: self._by_text[found[name]] for name in sorted(found)}

    def _standby_of(self, text: str) -> Name:
        return standby_name(self._agents.index(self._by_text[text]))

    def choose(self, lost: Collection[Address]) -> bool:
        """Choose who is whose standby: as before, if that host is there; else the next one. Return whether one changes.

        Machines on the host of the home have none: nothing goes on without that; nor have those that are bound to one.
        """
        is_changed = False
        for name, residence in self._there.items():
            chosen = self._choice(name, lost)
            if chosen != residence.standby:
                residence.standby, residence.is_covered, is_changed = chosen, False, True
        if is_changed:
            self._save()
        return is_changed

    def lacks(self, lost: Collection[Address]) -> bool:
        """Whether a machine has no standby that could have one."""
        return any(not each.standby and self._choice(name, lost) for name, each in self._there.items())

    def _choice(self, name: Name, lost: Collection[Address]) -> str:
        residence = self._there[name]
        host = self._by_text[residence.host]
        if host == self._agents[0] or name in self._bound:
            return ""
        at = self._agents.index(host)
        others = [*self._agents[at + 1 :], *self._agents[:at]]
        there = [place_text(each) for each in others if each not in lost and each not in self._barred]
        return residence.standby if residence.standby in there else next(iter(there), "")

    def give_up_standbys(self) -> None:
        """Let no machine have a standby."""
        for residence in self._there.values():
            residence.standby, residence.is_covered = "", False
        self._save()

    def bar(self, standby: Name) -> None:
        """Let a host be nobody's standby, as long as the cluster runs."""
        self._barred.add(self._agents[int(standby.removeprefix(STANDBY))])

    def cover(self, machine: Name, standby: Name, branch: int) -> None:
        """Take notice that a standby has all of a machine."""
        residence = self._there[machine]
        is_its = residence.standby and self._standby_of(residence.standby) == standby
        if is_its and residence.branch == branch and not residence.is_covered:
            residence.is_covered = True
            self._save()

    def may_move(self, machines: Collection[Name], lost: Collection[Address]) -> bool:
        """Whether the standbys of all these machines, on hosts that are there, have all that is needed."""
        mine = [self._there[name] for name in machines]
        return all(each.is_covered and self._by_text[each.standby] not in lost for each in mine)

    def move(self, machines: Collection[Name]) -> dict[Name, Address]:
        """Let machines move to their standbys; return machine → where it is now."""
        for name in machines:
            self._move(self._there[name])
        self._save()
        return {name: self.address(name) for name in machines}

    def _move(self, residence: _Residence) -> None:
        residence.host, residence.standby, residence.is_covered = residence.standby, "", False
        residence.branch, residence.is_beside = residence.branch + 1, False

    def _save(self) -> None:
        if self._has_begun:
            _write(self._path, self._there)
