"""The modes of a cluster: how nodes keep maps that others feed."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What nodes do with statements that they could compute alone."""

    EVENTUAL = "eventual"
    """Send what they add at once, and correct it when something earlier comes late."""
    GATED = "gated"
    """Wait for the end of the epoch, as for all others."""
