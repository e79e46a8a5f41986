"""A client's links to the machines of a running cluster: it asks, and waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.clients.query_messages import Query
from cumulus.cluster.live.cluster_places import ClusterPlace, Members, UnreachableError
from cumulus.cluster.messages import (
    ClientRows,
    EntriesRead,
    PartsRead,
    ReadEntries,
    ReadParts,
    RequestRefused,
    RowsAccepted,
    RowsHeld,
)
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.senders import SWITCH
from cumulus.errors import DelayError, RemoteProtocolError, UsageError
from cumulus.machine import Name
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.greeting import Credentials, RefusalError, RefusalPolicy

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.3
"""Seconds between two attempts to reach a machine."""
ANY_SWITCH = "switch"
"""Read through the first switch that is reached."""
_THROUGH = "through"
"""The link to the switch through which others are asked: it is not the one over which rows go there."""
_REACH_S = 3.0
"""How long a switch may take to be reached where another one would do, too."""


class ClientLinks:
    """Links that are made when they are needed, and made anew when a machine comes back.

    Parameters
    ----------
    place
        Where the cluster is found.
    epoch_of
        Returns the last committed epoch.
    name
        What the client is called by the machines.
    program
        The hash that they all must agree on, also as an attribute.
    through
        The switch through which nodes and the publisher are asked, or `ANY_SWITCH`; "": they are asked directly.

    Attributes
    ----------
    asked_through
        The switch through which something was asked last; "" for none.
    """

    def __init__(
        self, place: ClusterPlace, name: Name, program: bytes, epoch_of: Callable[[], int], through: Name = ""
    ) -> None:
        self._place, self._name, self.program, self._epoch_of = place, name, program, epoch_of
        self._through, self.asked_through = through, ""
        self._links: dict[Name, ClientConnection] = {}
        self._epochs: dict[Name, int] = {}
        """Switch → an epoch that had not ended there when it was asked last, so that the one before had."""

    def agree_on(self, program: bytes) -> None:
        """Make all links anew, to machines that agree on something else."""
        self.program = program
        self.close()

    def send(self, switch: Name, rows: ClientRows, until: float) -> RowsAccepted:
        """Send rows; return what the switch answers when they are on the disk. Raises as `ask`."""
        if switch not in self._epochs:
            self._epochs[switch] = 1 + self._epoch_of()
        again = replace(rows, again_after=self._epochs[switch] - 1)
        accepted: RowsAccepted
        (accepted,) = self.ask(switch, rows, until, again)
        self._epochs[switch] = accepted.epoch
        return accepted

    def ask(self, machine: Name, message: Any, until: float, again: Any = None) -> list[Any]:
        """Send a message with a number, again if the link was lost; return the answers with that number.

        Parameters
        ----------
        until
            How long to wait, by `time.monotonic`.
        again
            What is sent instead from the second time on, with the same number.

        Raises
        ------
        UsageError
            If the machine refuses to do it.
        DelayError
            If it does not answer in time.
        NotRunningError
            If the cluster does not run any more.
        RefusalError
            If the machines agree on something else than `program` now.
        """
        pause, reason, is_reached = _FIRST_PAUSE, "it does not answer", False
        is_through = self._is_through(machine, message)
        at = _THROUGH if is_through else machine
        pieces = codec.encode(Query(message.number, machine, message) if is_through else message)
        while True:
            try:
                link = self._through_link(until) if is_through else self._link(machine, until)
                is_reached = True
                link.send(pieces, until)
                found = self._answers(link, message.number, until)
                if found:
                    return found
                reason = "it has no room even to let the rows wait"
            except TimeoutError as problem:
                reason = str(problem) or reason
                self._drop(at)
            except UnreachableError as problem:
                if time.monotonic() + pause > until:
                    raise
                self._drop(at)
                reason = problem.message
            except (OSError, RefusalError) as problem:
                self._drop(at)
                if isinstance(problem, RefusalError) and problem.outlook is RefusalPolicy.CHANGED:
                    raise
                if isinstance(problem, RefusalError) and problem.outlook is RefusalPolicy.NEVER:
                    raise RemoteProtocolError(
                        problem.message,
                        hint=f"Connect again. {self._place.secret_hint}",
                    ) from None
                reason = str(problem)
            except RemoteProtocolError:  # nothing that comes after it can be read
                self._drop(at)
                raise
            if time.monotonic() + pause > until:
                raise self._delay(machine, reason, is_through=is_through, is_reached=is_reached)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            if again is not None:
                pieces = codec.encode(again)

    def _delay(self, machine: Name, reason: str, *, is_through: bool, is_reached: bool) -> DelayError:
        way = f" through {self.asked_through or self._through}" if is_through else ""
        hint = f"See how it is: cumulus cluster status {self._place}. Or give it more time: timeout_s=."
        if not (is_reached or is_through or machine.startswith(SWITCH)):
            hint += f' If there is no way to it from here, but to a switch: through="{ANY_SWITCH}".'
        return DelayError(f"{self._place}: no answer from {machine}{way} in time: {reason}", hint=hint)

    def _link(self, machine: Name, until: float) -> ClientConnection:
        if machine not in self._links:
            found = self._place.members()
            if machine not in found.machines:
                raise RemoteProtocolError(f"{self._place} has no {machine} any more", hint="Connect again.")
            self._links[machine] = self._opened(found, self._name, machine, until)
        return self._links[machine]

    def _opened(self, found: Members, name: Name, machine: Name, until: float) -> ClientConnection:
        me = Credentials(name, self.program, found.secret, tls=found.tls)
        return ClientConnection(me, machine, found.machines[machine], found.incarnation, until)

    def _is_through(self, machine: Name, message: Any) -> bool:
        """Whether a machine is asked through a switch: nodes for what they have, the publisher for everything."""
        return bool(self._through) and (machine == PUBLISHER or isinstance(message, ReadEntries | ReadParts))

    def _through_link(self, until: float) -> ClientConnection:
        """Return the link to the switch through which others are asked, the first that is reached."""
        if _THROUGH in self._links:
            return self._links[_THROUGH]
        found = self._place.members()
        switches = [each for each in found.machines if each.startswith(SWITCH)]
        require_switch(self._place, self._through, switches)
        tried = switches if self._through == ANY_SWITCH else [self._through]
        problem: Exception = TimeoutError("it does not answer")
        for each in tried:
            soon = until if len(tried) == 1 else min(until, time.monotonic() + _REACH_S)
            try:
                link = self._opened(found, f"{self._name}-{_THROUGH}", each, soon)
            except OSError as unreached:
                problem = unreached
            else:
                self._links[_THROUGH], self.asked_through = link, each
                return link
        raise problem

    def _answers(self, link: ClientConnection, number: int, until: float) -> list[Any]:
        """Return what a machine answers; nothing if it has dropped the message."""
        found: list[Any] = []
        reason = "it has not answered"
        while True:
            payload = link.receive(until)
            if payload is None:
                raise TimeoutError(reason)
            answer = codec.decode(payload)
            if answer.number != number:
                continue  # to something that was given up
            if isinstance(answer, RowsHeld):
                if answer.is_dropped:
                    return []
                reason = answer.reason
                continue
            if isinstance(answer, RequestRefused):
                raise UsageError(answer.reason, hint=answer.hint)
            found.append(answer)
            if not isinstance(answer, EntriesRead | PartsRead) or not answer.left:
                return found

    def _drop(self, machine: Name) -> None:
        link = self._links.pop(machine, None)
        if link is not None:
            with suppress(OSError):
                link.close()

    def close(self) -> None:
        """Close all links."""
        for machine in list(self._links):
            self._drop(machine)

    def wait(self, is_so: Callable[[], bool], until: float, what: str, hint: str) -> None:
        """Wait until something is so.

        Parameters
        ----------
        until
            How long, by `time.monotonic`.
        what, hint
            What to say if it does not become so.

        Raises
        ------
        DelayError
            If it is not in time.
        NotRunningError
            If the cluster does not run any more.
        """
        pause = _FIRST_PAUSE
        while not is_so():
            if time.monotonic() + pause > until:
                raise DelayError(what, hint=hint)
            time.sleep(pause)
            with suppress(UnreachableError, RefusalError):
                self._place.members()  # it may have ended


def require_switch(place: object, through: Name, switches: Sequence[Name]) -> None:
    """Raise UsageError if there is no such switch to read through; "" is for none, and `ANY_SWITCH` for any."""
    if through and through not in (ANY_SWITCH, *switches):
        raise UsageError(
            f"{place} has no {through!r} to read through",
            hint=f"through= is one of {', '.join(switches)}; or {ANY_SWITCH!r}: the first that is reached.",
        )
