"""Which state of a view its readers see."""

from __future__ import annotations

from enum import StrEnum


class Consistency(StrEnum):
    """What a reader sees."""

    TENTATIVE = "tentative"
    """Every event at once; a later correction may change it."""
    COMMITTED = "committed"
    """The state after the last committed transaction or epoch, and nothing else."""
