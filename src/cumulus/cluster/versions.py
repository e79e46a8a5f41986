"""Versions: one whole number for each block of events, or row of one, whose order is the order of the cluster.

A version is the number of an epoch, 22 bits, and 41 bits more, which one of two policies fills:

========  =================================================  =====================================================
policy    the bits after the epoch                           the order within an epoch
========  =================================================  =====================================================
`clock`   tick (20), switch (7), sequence (14)               about that of time, as far as the switches' clocks agree
`switch`  switch (7), sequence (34)                          all blocks of switch 0, then all of switch 1, …
========  =================================================  =====================================================

Both keep the order of each switch. `switch` is the order of the Cumulus consistency paper (§4.1): what a low switch
does comes late for nearly all others. A version is a BIGINT, and never below 0.

Epochs have no end, so a version has the number of its epoch modulo 2²². Only a few epochs have versions at a time:
those that are not committed, and the last one that is. A node counts epochs from one before these (`EpochWindow`), and
moves on in time, so that the order of versions is that of their epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cumulus.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EPOCH_BITS, REST_BITS = 22, 41
TICK_BITS, SWITCH_BITS, SEQUENCE_BITS = 20, 7, 14
MOST_EPOCHS, MOST_TICKS, MOST_SWITCHES = 1 << EPOCH_BITS, 1 << TICK_BITS, 1 << SWITCH_BITS


LAST_VERSION = (1 << EPOCH_BITS + REST_BITS) - 1
"""The last one that there can be."""
_STEP, _LATEST = MOST_EPOCHS // 2, MOST_EPOCHS // 4 * 3
"""How far a window moves on, and how many epochs may be committed in it before."""


class VersionOrder(StrEnum):
    """How versions order what several switches do in one epoch."""

    CLOCK = "clock"
    SWITCH = "switch"


def pack(epoch: int, rest: int) -> int:
    """Return the version of an epoch and what a policy makes of the bits after it.

    Examples
    --------
    >>> unpack(pack(3, 17))
    (3, 17)
    """
    assert 0 <= rest < 1 << REST_BITS, f"{rest} does not fit {REST_BITS} bits"
    assert 0 <= epoch < MOST_EPOCHS, f"{epoch} does not fit {EPOCH_BITS} bits"
    return epoch << REST_BITS | rest


def unpack(version: int) -> tuple[int, int]:
    """Return the epoch of a version, and the bits after it."""
    return version >> REST_BITS, version & ((1 << REST_BITS) - 1)


def switch_of(versions: npt.NDArray[np.int64], order: VersionOrder) -> npt.NDArray[np.int64]:
    """Return the switches that have given versions.

    Examples
    --------
    >>> import numpy as np
    >>> first = Numbering(VersionOrder.CLOCK, 5).next(3, 17, 10)
    >>> switch_of(np.array([first, first + 9]), VersionOrder.CLOCK).tolist()
    [5, 5]
    """
    bits = SEQUENCE_BITS if order is VersionOrder.CLOCK else REST_BITS - SWITCH_BITS
    return versions >> bits & ((1 << SWITCH_BITS) - 1)


def first_version(epoch: int) -> int:
    """Return the first version that an epoch may have."""
    return pack(epoch, 0)


def last_version(epoch: int) -> int:
    """Return the last version that an epoch may have.

    Examples
    --------
    >>> last_version(1) + 1 == first_version(2)
    True
    """
    return pack(epoch, (1 << REST_BITS) - 1)


@dataclass(slots=True)
class EpochWindow:
    """The 2²² epochs whose versions a node has in order, counted from `first`; it moves on as epochs are committed.

    Versions of messages have the number of an epoch modulo 2²²; those that a node keeps have it counted from `first`.
    """

    first: int = 0

    @classmethod
    def from_committed(cls, committed: int) -> EpochWindow:
        """Return the window of a node that begins behind a committed epoch.

        Examples
        --------
        >>> EpochWindow.from_committed(0).first, EpochWindow.from_committed(3 << 21).first >> 21
        (0, 2)
        """
        return cls(max(committed - 2, 0) // _STEP * _STEP)

    @property
    def _shift(self) -> int:
        return self.first % MOST_EPOCHS << REST_BITS

    def kept(self, versions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return versions of a message as the node keeps them."""
        return versions - self._shift & LAST_VERSION if self._shift else versions

    def sent(self, versions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return versions that the node keeps as messages have them."""
        return versions + self._shift & LAST_VERSION if self._shift else versions

    def whole(self, version: int) -> int:
        """Return a version that the node keeps with the number of its epoch."""
        return version + (self.first << REST_BITS)

    def first_version(self, epoch: int) -> int:
        """Return the first version of an epoch as the node keeps it."""
        return pack(max(epoch - self.first, 0), 0)

    def last_version(self, epoch: int) -> int:
        """Return the last version of an epoch as the node keeps it; -1 of one before the window."""
        return last_version(epoch - self.first) if epoch >= self.first else -1

    def epoch_of(self, version: int) -> int:
        """Return the epoch of a version that the node keeps."""
        return self.first + unpack(version)[0]

    def moves(self, committed: int) -> int:
        """Move on if that is due; return what is to be taken away from versions that the node keeps.

        Examples
        --------
        >>> window = EpochWindow()
        >>> window.moves(1000), unpack(window.moves(1 << 22)), window.first == 1 << 21
        (0, (2097152, 0), True)
        """
        if committed - self.first < _LATEST:
            return 0
        self.first += _STEP
        return pack(_STEP, 0)


@dataclass(slots=True)
class Numbering:
    """The versions that one switch gives, each greater than all before.

    Parameters
    ----------
    order
        The policy, the same for all switches of a cluster.
    switch
        The number of the switch.
    """

    order: VersionOrder
    switch: int
    _last: tuple[int, int, int] = (0, 0, -1)
    """Epoch, tick and sequence of the last version given."""

    def __post_init__(self) -> None:
        if not 0 <= self.switch < MOST_SWITCHES:
            raise UsageError(
                f"there is no switch {self.switch}: a cluster has at most {MOST_SWITCHES}", hint="Take fewer switches."
            )

    @property
    def most(self) -> int:
        """How many versions `next` gives at once, at most: rows of a block that has one for each row."""
        return 1 << (SEQUENCE_BITS if self.order is VersionOrder.CLOCK else REST_BITS - SWITCH_BITS)

    def next(self, epoch: int, tick: int = 0, count: int = 1) -> int:
        """Return the first of `count` consecutive versions.

        Parameters
        ----------
        epoch
            Where they belong; epochs do not go back.
        tick
            The switch's clock, from the beginning of the epoch: in a run over folders the number of the block in the
            epoch. A clock that goes back stands still. `switch` does not look at it.

        Raises
        ------
        UsageError
            If the numbers of the epoch are used up, or `count` is beyond `most`.
        """
        last_epoch, last_tick, last_sequence = self._last
        assert count > 0, "a block has a version"
        assert epoch >= last_epoch, f"epoch {epoch} after epoch {last_epoch}"
        if count > self.most:
            raise UsageError(
                f"{count} versions at once, where {self.most} are the most", hint="Split the block into smaller ones."
            )
        if epoch > last_epoch:
            last_tick, last_sequence = 0, -1
        if self.order is VersionOrder.SWITCH:
            tick = 0
        elif tick < 0:
            raise UsageError(f"the clock shows {tick}", hint="Count ticks from the beginning of the epoch.")
        else:
            tick = max(tick, last_tick)
        first = last_sequence + 1 if tick == last_tick else 0
        if first + count > self.most and self.order is VersionOrder.CLOCK:  # ahead of the clock, which will catch up
            tick, first = tick + 1, 0
        if first + count > self.most or tick >= MOST_TICKS:
            raise UsageError(
                f"epoch {epoch} has no version left for {count} more on switch {self.switch}",
                hint="End epochs earlier: after less time, or after fewer files.",
            )
        self._last = epoch, tick, first + count - 1
        epoch %= MOST_EPOCHS
        if self.order is VersionOrder.SWITCH:
            return pack(epoch, self.switch << (REST_BITS - SWITCH_BITS) | first)
        return pack(epoch, (tick << SWITCH_BITS | self.switch) << SEQUENCE_BITS | first)
