"""The log of a switch: what it has read and what clients have sent, and what of that a life before had taken in."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.cluster.clients.client_sessions import ClientSessions
from cumulus.cluster.machine_log import MachineLog
from cumulus.cluster.messages import EpochTurn
from cumulus.cluster.records import LoggedPayloads, LoggedRows
from cumulus.machine import Effect


class SwitchRecords:
    """The records of a switch.

    Parameters
    ----------
    log
        Where they are.
    """

    def __init__(self, log: MachineLog) -> None:
        self._log = log
        self._first_rows: dict[int, int] = {}
        """Epoch that is not in a snapshot → the first record of what clients have sent for it."""
        self._read: dict[int, LoggedPayloads] = {}
        """Epoch → what was read for it in a life before."""
        self._rows: dict[int, list[LoggedRows]] = {}
        """Epoch → what clients have sent for it in a life before."""
        self._held: dict[int, tuple[LoggedPayloads, bool]] = {}
        """Epoch that may not end yet → what is read for it, and whether that is in the log."""

    @property
    def has_known(self) -> bool:
        """Whether something of a life before is not taken in again."""
        return bool(self._read or self._rows) or any(is_logged for _, is_logged in self._held.values())

    def hold(self, read: LoggedPayloads, *, is_logged: bool = False) -> None:
        """Keep what is read for an epoch until it ends: its record stands behind all that clients send for it."""
        self._held[read.epoch] = read, is_logged

    def has_read(self, epoch: int) -> bool:
        """Whether all that an epoch takes in is read."""
        return epoch in self._held

    def take_held(self, epoch: int, effects: list[Effect]) -> LoggedPayloads:
        """Return what is read for an epoch, which is written down then."""
        read, is_logged = self._held.pop(epoch)
        if not is_logged:
            self._log.records[epoch] = self._log.append(read, effects)
        return read

    def append_rows(self, rows: LoggedRows, effects: list[Effect]) -> None:
        """Write down what clients have sent."""
        self._first_rows.setdefault(rows.epoch, self._log.append(rows, effects))

    def recover(
        self, first: int, records: Sequence[bytes], sessions: ClientSessions, committed: int
    ) -> list[tuple[int, list[LoggedRows | LoggedPayloads]]]:
        """Take in the log; return what committed epochs have brought that are in no snapshot.

        What has come for others is kept: they are told again, and must bring the same.

        Parameters
        ----------
        first, records
            As of `cumulus.machine.Recovered`.
        sessions
            They are told which rows clients have sent.
        committed
            The last committed epoch.
        """
        for number, logged in self._log.recover(first, records):
            assert isinstance(logged, LoggedPayloads | LoggedRows), logged
            if isinstance(logged, LoggedRows):
                for client, last in logged.senders:
                    sessions.note(client, last, logged.epoch)
                self._first_rows.setdefault(logged.epoch, number)
                self._rows.setdefault(logged.epoch, []).append(logged)
            else:
                self._log.records[logged.epoch] = number
                self._read[logged.epoch] = logged  # the last one: an epoch may have been read anew
        self._log.require_epochs(self._log.records, committed)
        found: list[tuple[int, list[LoggedRows | LoggedPayloads]]] = []
        for epoch in sorted(each for each in {*self._rows, *self._read} if each <= committed):
            found.append((epoch, [*self.take_rows(epoch), self._read.pop(epoch)]))
        return [(epoch, parts) for epoch, parts in found if epoch > self._log.saved]

    def take_rows(self, epoch: int) -> Sequence[LoggedRows]:
        """Return what clients have sent for an epoch in a life before, once."""
        return self._rows.pop(epoch, ())

    def take_read(self, turn: EpochTurn) -> LoggedPayloads | None:
        """Return what was read for an epoch in a life before, once; None if that was not what is told now."""
        known = self._read.pop(turn.epoch, None)
        return known if known is not None and known.turn == turn.record else None

    def forget(self, committed: int, effects: list[Effect]) -> None:
        """Give up what is not needed of the log.

        An epoch that was read anew has its last record behind what clients have sent for the next one.
        """
        if self._log.saved <= committed:
            self._first_rows = {each: at for each, at in self._first_rows.items() if each > self._log.saved}
        self._log.forget(committed, effects, self._first_rows.values())
