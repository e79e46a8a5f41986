"""The modes of a cluster: how nodes keep maps that others feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """What nodes do with statements that they could compute alone."""

    EVENTUAL = "eventual"
    """Send what they add at once, and correct it when something earlier comes late."""
    CENTRAL_TARGET = "central-target"
    """Compute where the result is, in the order of one switch, from what others send for each block."""
    CENTRAL_SOURCE = "central-source"
    """Compute where what is read lies, in the order of one switch, and send what is added."""
    FOUR_LOGS = "four-logs"
    """Compute where the result is, from what others send for each block, at once, and correct what came too early."""
    TICKS = "ticks"
    """Compute where the result is, in an order on which nodes agree with each switch block by block."""
    GATED = "gated"
    """Wait for the end of the epoch, as for all others."""


@dataclass(frozen=True, slots=True)
class ModeRules:
    """What a mode asks of the plan of a cluster.

    Parameters
    ----------
    is_spread
        Whether there are spread maps.
    has_replicas
        Whether maps lie where they are read, or each entry with its owner alone.
    corrects
        Whether what comes late is corrected; else nothing may.
    needs_one_switch
        Whether all rows must come through one switch, which gives them their order.
    keeps_order
        Whether all is as if events came in the order of their versions; else in some order of their own.
    has_row_blocks
        Whether each row of a block whose rows read what they write is a block of its own; else it has a version alone.
    takes_circles
        Whether maps may feed each other in a circle.
    """

    is_spread: bool = True
    has_replicas: bool = True
    corrects: bool = False
    needs_one_switch: bool = False
    has_row_blocks: bool = True
    keeps_order: bool = True
    takes_circles: bool = False


CUT_HELP = "TABLE.COLUMN=N, MAP.KEY=N or TABLE.COLUMN@V,V: regions of maps and of homes, a grid by several."
SPLIT_HELP = "TABLE.COLUMN: a table over all switches, by the hash of a column; repeatable."
MODE_HELP = (
    "eventual; four-logs or ticks: entries are fetched; central-target or central-source: in the order of one switch; "
    "gated: all waits for its epoch."
)
RULES: Mapping[Mode, ModeRules] = {
    Mode.EVENTUAL: ModeRules(corrects=True, has_row_blocks=False, takes_circles=True),
    Mode.CENTRAL_TARGET: ModeRules(has_replicas=False, needs_one_switch=True, takes_circles=True),
    Mode.CENTRAL_SOURCE: ModeRules(needs_one_switch=True, takes_circles=True),
    Mode.FOUR_LOGS: ModeRules(has_replicas=False, corrects=True, takes_circles=True),
    Mode.TICKS: ModeRules(has_replicas=False, keeps_order=False),
    Mode.GATED: ModeRules(is_spread=False),
}
