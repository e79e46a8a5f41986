"""How the epochs of a cluster end, as a user may choose it each time that it starts: it changes no state."""

from __future__ import annotations

from enum import StrEnum

from cumulus.errors import UsageError


class CommitBy(StrEnum):
    """Who hears that machines are ready with an epoch, and tells them that it is committed."""

    PUBLISHER = "publisher"
    """The publisher, of all machines."""
    SWITCHES = "switches"
    """Each switch of its nodes; switches tell each other, and the publisher writes the manifest for the lowest."""


COMMIT_HELP = "publisher: it hears of all nodes, and tells all; switches: each has its nodes, and they agree."


def commit_by(text: str) -> CommitBy:
    """Return who commits.

    Raises
    ------
    UsageError
        If nobody is called so.
    """
    try:
        return CommitBy(text)
    except ValueError:
        raise UsageError(f"nobody commits epochs by {text!r}", hint=f"Give {' or '.join(CommitBy)}.") from None
