"""A client's links to the machines of a running cluster: it asks, and waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.live.cluster_places import ClusterPlace, UnreachableError
from cumulus.cluster.messages import ClientRows, EntriesRead, PartsRead, RequestRefused, RowsAccepted, RowsHeld
from cumulus.errors import DelayError, RemoteProtocolError, UsageError
from cumulus.machine import Name
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.greeting import Credentials, RefusalError, RefusalPolicy

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.3
"""Seconds between two attempts to reach a machine."""


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
    """

    def __init__(self, place: ClusterPlace, name: Name, program: bytes, epoch_of: Callable[[], int]) -> None:
        self._place, self._name, self.program, self._epoch_of = place, name, program, epoch_of
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
        """
        pause, reason = _FIRST_PAUSE, "it does not answer"
        pieces = codec.encode(message)
        while True:
            try:
                link = self._link(machine, until)
                link.send(pieces, until)
                found = self._answers(link, message.number, until)
                if found:
                    return found
                reason = "it has no room even to let the rows wait"
            except TimeoutError as problem:
                reason = str(problem) or reason
                self._drop(machine)
            except UnreachableError as problem:
                if time.monotonic() + pause > until:
                    raise
                self._drop(machine)
                reason = problem.message
            except (OSError, RefusalError) as problem:
                self._drop(machine)
                if isinstance(problem, RefusalError) and problem.outlook is RefusalPolicy.NEVER:
                    raise RemoteProtocolError(
                        problem.message,
                        hint=f"Connect again. {self._place.secret_hint}",
                    ) from None
                reason = str(problem)
            except RemoteProtocolError:  # nothing that comes after it can be read
                self._drop(machine)
                raise
            if time.monotonic() + pause > until:
                raise DelayError(
                    f"{self._place}: no answer from {machine} in time: {reason}",
                    hint=f"See how it is: cumulus cluster status {self._place}. Or give it more time: timeout_s=.",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            pieces = codec.encode(message if again is None else again)

    def _link(self, machine: Name, until: float) -> ClientConnection:
        if machine not in self._links:
            found = self._place.members()
            if machine not in found.machines:
                raise RemoteProtocolError(f"{self._place} has no {machine} any more", hint="Connect again.")
            me = Credentials(self._name, self.program, found.secret, tls=found.tls)
            self._links[machine] = ClientConnection(me, machine, found.machines[machine], found.incarnation, until)
        return self._links[machine]

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
