"""When a switch may end an epoch: at once, or when the token comes to it.

With `--transitions staggered` switches go over to the next epoch one after the other. The one that has ended an epoch
tells the next one by its number; the last tells switch 0, which may end the following epoch then. Who has the token
keeps it for one period, the time of an epoch divided by the number of switches, so that at any moment some switches are
an epoch ahead of others. If clients wait at the switch that has it, it does not wait.

Versions order switches within an epoch by their numbers (`--order switch`), so most of what a high switch sends depends
on what low ones have still to send. A switch that goes over first is behind all others until they follow. So the low
ones go first.

References
----------
Cumulus consistency paper, section 4.2: "Only the coordinator with the token can switch epochs. It waits for the
duration of one period, switches, and passes the token to the next coordinator." Also Cumulus semester paper, section
3.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from cumulus.cluster.messages import EpochToken, switch_name
from cumulus.cluster.planning.epoch_endings import Transitions
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name, Send


class EpochTransitions(Protocol):
    """When a switch may end an epoch."""

    def may_end(self, epoch: int, now: int, *, is_urgent: bool) -> bool:
        """Whether an epoch may end here, of which everything is read.

        Parameters
        ----------
        now
            In milliseconds of this machine's clock.
        is_urgent
            Whether clients wait for it.
        """

    def take(self, sender: Name, token: EpochToken, now: int) -> None:
        """Take what the switch before has ended; RemoteProtocolError if it should not say so here."""

    def ended(self, epoch: int) -> Iterator[Send]:
        """Yield who is told that an epoch has ended here."""

    def reset(self, committed: int, ended: int) -> Iterator[Send]:
        """Go back to a committed epoch; yield who is told what has ended here, as nobody knows that any more."""


class AlignedTransitions:
    """`EpochTransitions` where all switches end an epoch as soon as they can."""

    def may_end(self, epoch: int, now: int, *, is_urgent: bool) -> bool:
        """Return True."""
        return True

    def take(self, sender: Name, token: EpochToken, now: int) -> None:
        """Refuse tokens."""
        raise RemoteProtocolError(f"{sender} passes a token for epoch {token.epoch}, and there are none")

    def ended(self, epoch: int) -> Iterator[Send]:
        """Tell nobody."""
        yield from ()

    def reset(self, committed: int, ended: int) -> Iterator[Send]:
        """Tell nobody."""
        yield from ()


class StaggeredTransitions:
    """`EpochTransitions` where switches end an epoch one after the other.

    Parameters
    ----------
    number
        Of this switch.
    switches
        How many there are: two at least.
    period_ms
        How long a switch has the token before it ends an epoch.
    committed
        The last committed epoch.
    """

    def __init__(self, number: int, switches: int, period_ms: int, committed: int) -> None:
        self._before, self._next = switch_name((number - 1) % switches), switch_name((number + 1) % switches)
        self._is_first, self._period_ms = number == 0, period_ms
        self._told, self._since = committed, 0
        """The last epoch that the switch before has ended, and when that was told."""

    def may_end(self, epoch: int, now: int, *, is_urgent: bool) -> bool:
        """Whether the token is here, and was for a period."""
        has_token = self._told >= (epoch - 1 if self._is_first else epoch)
        return has_token and (is_urgent or now - self._since >= self._period_ms)

    def take(self, sender: Name, token: EpochToken, now: int) -> None:
        """Take the token of the switch before."""
        if sender != self._before or token.epoch <= self._told:
            raise RemoteProtocolError(f"{sender} passes the token for epoch {token.epoch} after {self._told}")
        self._told, self._since = token.epoch, now

    def ended(self, epoch: int) -> Iterator[Send]:
        """Yield the token, for the next switch."""
        yield Send(self._next, EpochToken(epoch))

    def reset(self, committed: int, ended: int) -> Iterator[Send]:
        """Yield the token of the last epoch that has ended here, if it is not committed."""
        self._told = committed
        if ended > committed:
            yield Send(self._next, EpochToken(ended))


def epoch_transitions(
    number: int, switches: int, transitions: Transitions, every_ms: int | None, committed: int
) -> EpochTransitions:
    """Return when a switch may end epochs.

    Parameters
    ----------
    number
        Of the switch.
    switches
        How many there are.
    every_ms
        How often epochs begin; None: one after the other.
    committed
        The last committed epoch.
    """
    if transitions is Transitions.ALIGNED or switches == 1:
        return AlignedTransitions()
    return StaggeredTransitions(number, switches, (every_ms or 0) // switches, committed)
