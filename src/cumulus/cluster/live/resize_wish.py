"""How a command asks a running cluster for another number of nodes, and hears what has become of it: two files."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from cumulus.cluster.live.address import STATE, read_address
from cumulus.cluster.live.cluster_places import HomePlace
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.table_assignment import splits_asked_for, with_splits
from cumulus.cluster.processes.home import plan_of
from cumulus.cluster.processes.host_places import has_places
from cumulus.cluster.processes.resizing import plan_of_resize
from cumulus.durable.files import write_durably
from cumulus.errors import CumulusError, DelayError, ProcessError, UsageError

_WISH, _ANSWER = "resize.json", "resized.json"
_LOOK_S = 0.1


class Counts(NamedTuple):
    """How many nodes and switches there are, and which tables all switches share."""

    nodes: int
    switches: int
    splits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizeWish:
    """How a cluster is to go on.

    Parameters
    ----------
    nodes
        How many; 0 for as many as there are.
    hosts
        Agents of further hosts, as host:port.
    place
        Machine → the host that it is to run on.
    switches
        How many; 0 for as many as there are.
    moves
        Which slots of keys are to be on which nodes, as ``0-99=node1``.
    is_balanced
        Whether nodes are to get equal parts, whatever their number.
    splits, joins
        Tables that all switches are to share, as ``orders.oid``, and tables that are to be at one switch again.
    number
        Its own, so that the same can be asked for twice.
    """

    nodes: int
    hosts: tuple[str, ...] = ()
    place: Mapping[str, str] = field(default_factory=dict)
    switches: int = 0
    moves: tuple[str, ...] = ()
    is_balanced: bool = False
    splits: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    number: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def is_of_all(self) -> bool:
        """Whether something changes if there are as many machines as now."""
        return bool(self.place or self.moves or self.is_balanced)

    def require_no_hosts(self) -> None:
        """Raise UsageError if it names hosts: a cluster whose machines are all on this computer has none."""
        if self.hosts or self.place:
            raise UsageError(
                "all machines of this cluster are on this computer, and it was told no secret of agents",
                hint="Stop it, and start it with --host and --agents-secret: what its machines have goes there.",
            )


def ask(home: Path, wish: ResizeWish, seconds: float) -> tuple[Counts, Counts]:
    """Ask the cluster of a home for other machines, and wait until they run; return how many there were, and are.

    Raises
    ------
    InputError
        If it is no home of a cluster.
    NotRunningError
        If the cluster does not run, or ends meanwhile.
    UsageError
        If somebody else has asked, and has no answer yet; or a table cannot be split so, or slots cannot move so.
    LayoutError
        If the program would be divided otherwise.
    ProcessError
        With what the cluster has against it; it goes on as it was.
    DelayError
        If they do not run in time; they will.
    """
    before, program = HomePlace(home).card()
    was = Counts(before.nodes, before.switches, before.splits)
    splits = with_splits(before.splits, wish.splits, wish.joins)
    wanted = Counts(wish.nodes or was.nodes, wish.switches or was.switches, splits)
    splits_asked_for(program, splits, wanted.switches, Mode(before.mode))
    if was == wanted and not wish.is_of_all:
        return was, was
    if not has_places(before.root):
        wish.require_no_hosts()
    changes = wanted.nodes, wanted.switches, before.cuts, wish.moves, splits
    plan_of_resize(plan_of(program, before), before, *changes)  # before anything is stopped
    path, said = home / STATE / _WISH, home / STATE / _ANSWER
    if path.exists():
        raise UsageError(f"{home}: another resize has been asked for", hint=f"Wait for it, or remove {path}.")
    said.unlink(missing_ok=True)
    write(home, wish)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(FileNotFoundError):
            told = json.loads(said.read_text(encoding="utf-8"))
            said.unlink()
            if told["problem"]:
                raise ProcessError(f"{home}: it stays as it was: {told['problem']}", hint=told["hint"])
            return was, wanted
        read_address(home)  # it may have ended
        time.sleep(_LOOK_S)
    raise DelayError(f"{home}: the new nodes do not run yet", hint=f"Look again: cumulus cluster status {home}.")


def write(home: Path, wish: ResizeWish) -> None:
    """Put down how the cluster of a home is to go on."""
    write_durably(home / STATE / _WISH, json.dumps(asdict(wish)).encode())


def wished(home: Path) -> ResizeWish | None:
    """Return what the cluster of a home was asked for; None for nothing."""
    try:
        found = json.loads((home / STATE / _WISH).read_text(encoding="utf-8"))
        place = {str(name): str(at) for name, at in found.get("place", {}).items()}
        hosts, moves = (tuple(map(str, found.get(name, ()))) for name in ("hosts", "moves"))
        splits, joins = (tuple(map(str, found.get(name, ()))) for name in ("splits", "joins"))
        return ResizeWish(
            int(found["nodes"]),
            hosts,
            place,
            int(found.get("switches", 0)),
            moves,
            bool(found.get("is_balanced")),
            splits,
            joins,
            str(found.get("number")),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        (home / STATE / _WISH).unlink(missing_ok=True)  # nobody of ours has written it
        return None


def answer(home: Path, problem: CumulusError | None = None) -> None:
    """Say what has become of a wish: done, or what there was against it."""
    if not (home / STATE / _WISH).exists():
        return
    said = {"problem": "" if problem is None else problem.message, "hint": "" if problem is None else problem.hint}
    write_durably(home / STATE / _ANSWER, json.dumps(said).encode())
    (home / STATE / _WISH).unlink(missing_ok=True)
