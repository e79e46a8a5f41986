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
    """

    is_spread: bool = True
    has_replicas: bool = True
    corrects: bool = False
    needs_one_switch: bool = False


CUT_HELP = "TABLE.COLUMN=N, MAP.KEY=N or TABLE.COLUMN@V,V: regions of maps, a grid by several; central-target."
MODE_HELP = "eventual; central-target or central-source: in the order of one switch; gated: all waits for its epoch."
RULES: Mapping[Mode, ModeRules] = {
    Mode.EVENTUAL: ModeRules(corrects=True),
    Mode.CENTRAL_TARGET: ModeRules(has_replicas=False, needs_one_switch=True),
    Mode.CENTRAL_SOURCE: ModeRules(needs_one_switch=True),
    Mode.GATED: ModeRules(is_spread=False),
}
