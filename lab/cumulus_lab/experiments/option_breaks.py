"""Rules of a mode's options that can be broken on purpose, in what nodes do for spread views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.protocols.asked_slices import SliceForTarget
from cumulus.cluster.protocols.central_messages import Fetch, Push
from cumulus.cluster.protocols.elided_push import ElidedPushNode
from cumulus.cluster.protocols.eventual import EventualNode
from cumulus.cluster.protocols.four_logs import FourLogsNode
from cumulus.cluster.protocols.late_deltas import LateDeltas


@dataclass(frozen=True, slots=True)
class OptionBreak:
    """A rule that is broken.

    Parameters
    ----------
    change
        Breaks it, in the protocol of a node.
    protocol
        Its kind.
    mode, options
        Who has the rule.
    """

    change: Callable[[Any, ClusterLayout], None]
    protocol: type
    mode: Mode
    options: tuple[str, ...]


def _carry_no_puts(protocol: FourLogsNode, layout: ClusterLayout) -> None:
    """Send entries, and do not say what is to be computed from them."""
    drain = protocol.drain

    def drained(ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Any]]:
        for node, message in drain(ended, is_time=is_time):
            yield node, replace(message, puts=()) if isinstance(message, Push) else message

    setattr(protocol, "drain", drained)  # noqa: B010


def _wait_for_one_push(protocol: FourLogsNode, layout: ClusterLayout) -> None:
    """Compute as soon as somebody has said so, whoever has still to send something for it."""
    defer = protocol.work.defer
    setattr(protocol.work, "defer", lambda work: defer(replace(work, pushes=min(work.pushes, 1))))  # noqa: B010


def _know_another_layout(protocol: FourLogsNode, layout: ClusterLayout) -> None:
    """Look up in a layout whose maps lie one node further to whom entries go."""
    asked = protocol.asked
    sent_for = asked.sent_for

    def sent_elsewhere(fetch: Fetch) -> tuple[dict[int, list[tuple[int, bytes]]], list[SliceForTarget]]:
        _, found = sent_for(fetch)
        moved = [replace(each, target=(each.target + 1) % layout.nodes) for each in found]
        return {each.target: [] for each in moved}, moved

    setattr(asked, "sent_for", sent_elsewhere)  # noqa: B010


def _hide_later_pushes(protocol: ElidedPushNode, layout: ClusterLayout) -> None:
    """Send a node one PUSH, and elide the others, whatever has changed."""
    drain = protocol.drain
    sent: set[int] = set()

    def drained(ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Any]]:
        for node, message in drain(ended, is_time=is_time):
            if not isinstance(message, Push) or node not in sent:
                yield node, message
            if isinstance(message, Push):
                sent.add(node)

    setattr(protocol, "drain", drained)  # noqa: B010


def _wait_for_ever(protocol: ElidedPushNode, layout: ClusterLayout) -> None:
    """Wait for all PUSHes, and for no time."""
    defer = protocol.work.defer
    setattr(protocol.work, "defer", lambda work: defer(replace(work, until=None)))  # noqa: B010


def _hold_all_back(protocol: EventualNode, layout: ClusterLayout) -> None:
    """Take the end of an epoch for nothing: what waits goes on when its time is over."""
    drain = protocol.drain
    setattr(protocol, "drain", lambda ended=0, *, is_time=False: drain(0, is_time=is_time))  # noqa: B010
    setattr(protocol, "is_flushed", lambda epoch: True)  # noqa: B010


def _be_patient_for_ever(protocol: FourLogsNode, layout: ClusterLayout) -> None:
    """Answer no FETCH: something of an earlier version may come yet."""
    work = protocol.work
    defer, ready = work.defer, work.ready
    setattr(work, "defer", lambda each: defer(replace(each, not_before=1 << 62 if each.reads else 0)))  # noqa: B010
    setattr(work, "ready", lambda ended: ready())  # noqa: B010


class TellsNobodyAhead(LateDeltas):
    """Sends nothing of what changes before it is asked for, to those of whom it is noted that they are sent it."""

    def tell_of(self, name: str) -> None:
        """Note nothing."""


def _tell_nobody_ahead(protocol: ElidedPushNode, layout: ClusterLayout) -> None:
    protocol.late = TellsNobodyAhead(protocol.maps.maps)


def _tell_again(protocol: ElidedPushNode, layout: ClusterLayout) -> None:
    """Forget at a commit what was sent ahead, so that it is sent again."""
    look_no_further = protocol.kept.look_no_further
    setattr(protocol.kept, "look_no_further", lambda seen: look_no_further(dict.fromkeys(seen, 0)))  # noqa: B010


def _forget_who_has_read(protocol: ElidedPushNode, layout: ClusterLayout) -> None:
    """Forget at a commit for which version entries were asked; know which of their deltas have come alone."""
    look_no_further, late = protocol.kept.look_no_further, protocol.late

    def look_no_further_than_deltas(seen: Mapping[str, int]) -> None:
        look_no_further({name: late.newest.get(name, -1) + 1 for name in seen})

    setattr(protocol.kept, "look_no_further", look_no_further_than_deltas)  # noqa: B010


OPTION_BREAKS: Mapping[str, OptionBreak] = {
    "no PUT in a PUSH": OptionBreak(_carry_no_puts, FourLogsNode, Mode.FOUR_LOGS, ("elide-put",)),
    "FETCH looked up in another layout": OptionBreak(
        _know_another_layout, FourLogsNode, Mode.FOUR_LOGS, ("elide-fetch",)
    ),
    "computed at the first PUSH": OptionBreak(_wait_for_one_push, FourLogsNode, Mode.FOUR_LOGS, ("elide-put",)),
    "due PUSH elided": OptionBreak(_hide_later_pushes, ElidedPushNode, Mode.FOUR_LOGS, ("elide-push=correct",)),
    "time of a PUT never over": OptionBreak(_wait_for_ever, ElidedPushNode, Mode.FOUR_LOGS, ("elide-push=wait:20",)),
    "deltas held back at an epoch's end": OptionBreak(
        _hold_all_back, EventualNode, Mode.EVENTUAL, ("buffer=20", "per-depth")
    ),
    "change not sent ahead": OptionBreak(
        _tell_nobody_ahead, ElidedPushNode, Mode.FOUR_LOGS, ("elide-push=correct", "look-ahead")
    ),
    "change sent ahead and again": OptionBreak(
        _tell_again, ElidedPushNode, Mode.FOUR_LOGS, ("elide-push=correct", "look-ahead")
    ),
    "delta that is late for what was sent ahead": OptionBreak(
        _forget_who_has_read, ElidedPushNode, Mode.FOUR_LOGS, ("elide-push=correct", "look-ahead")
    ),
    "patience never over": OptionBreak(_be_patient_for_ever, FourLogsNode, Mode.FOUR_LOGS, ("patience=20",)),
    "blocks held back at an epoch's end": OptionBreak(_hold_all_back, EventualNode, Mode.EVENTUAL, ("patience=20",)),
}
"""Name → a rule broken."""
