"""How the epochs of a cluster end, as a user may choose it each time that it starts: it changes no state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from cumulus.errors import UsageError

Choice = TypeVar("Choice", bound=StrEnum)


class CommitBy(StrEnum):
    """Who hears that machines are ready with an epoch, and tells them that it is committed."""

    PUBLISHER = "publisher"
    """The publisher, of all machines."""
    SWITCHES = "switches"
    """Each switch of its nodes; switches tell each other, and the publisher writes the manifest for the lowest."""


class Transitions(StrEnum):
    """When switches go over to the next epoch."""

    ALIGNED = "aligned"
    """Each as soon as it has read what the epoch takes in."""
    STAGGERED = "staggered"
    """One after the other, by a token."""


COMMIT_HELP = "publisher: it hears of all nodes, and tells all; switches: each has its nodes, and they agree."
TRANSITIONS_HELP = "aligned: switches end an epoch at once; staggered: one after the other, by a token."


@dataclass(frozen=True, slots=True)
class EpochEndings:
    """What is chosen."""

    commit: CommitBy = CommitBy.PUBLISHER
    transitions: Transitions = Transitions.ALIGNED

    def plain(self) -> dict[str, str]:
        """Return it as settings have it."""
        return {"commit": self.commit.value, "transitions": self.transitions.value}


DEFAULT_ENDINGS = EpochEndings()


def epoch_endings(commit: str = CommitBy.PUBLISHER, transitions: str = Transitions.ALIGNED) -> EpochEndings:
    """Return what texts say.

    Raises
    ------
    UsageError
        If there is nothing of that name.
    """
    return EpochEndings(_chosen(CommitBy, "--commit", commit), _chosen(Transitions, "--transitions", transitions))


def _chosen(kind: type[Choice], option: str, text: str) -> Choice:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{option} {text!r} is none", hint=f"Give {' or '.join(kind)}.") from None
