"""What `central-target` may do otherwise: how blocks reach nodes, and when deltas are folded.

References
----------
Cumulus consistency paper, section 3.2 (directive tables, a distribution tree); Cumulus architecture, "Update
Consistency and Garbage Collection" (the switch polls nodes, and sends COMMIT).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cumulus.cluster.mode import Mode
from cumulus.errors import UsageError

DISPATCH_HELP = "table: the switch tells each node what it does; directives: a tree of nodes. Of central-target."
ARITY_HELP = "With --dispatch directives: to how many nodes a node sends a block on; 2 if not given."
GC_HELP = "epochs; poll, or poll=N: nodes fold deltas every N blocks that all have done. Of central-target."
ARITY, POLL_BLOCKS = 2, 16
MOST_POLL_BLOCKS = 1_000_000


class DispatchScheme(StrEnum):
    """How nodes learn what a block asks of them."""

    TABLE = "table"
    """The switch looks it up, and sends each node what it has to do."""
    DIRECTIVES = "directives"
    """The switch sends the block once, nodes send it on along a tree, and each looks up its own part."""


@dataclass(frozen=True, slots=True)
class CentralOptions:
    """The choices of a cluster.

    Parameters
    ----------
    arity
        The fan-out of the distribution tree.
    poll_blocks
        After so many blocks the switch asks nodes up to which version they are done; 0: never.
    """

    dispatch: DispatchScheme = DispatchScheme.TABLE
    arity: int = ARITY
    poll_blocks: int = 0

    @property
    def has_tree(self) -> bool:
        """Whether blocks go along a tree of nodes."""
        return self.dispatch is DispatchScheme.DIRECTIVES

    @property
    def gc(self) -> str:
        """How deltas are dropped, as `--gc` has it."""
        return f"poll={self.poll_blocks}" if self.poll_blocks else "epochs"

    @property
    def text(self) -> str:
        """How blocks reach nodes, in words."""
        return f"{self.dispatch} {self.arity}" if self.has_tree else str(self.dispatch)

    def plain(self) -> dict[str, Any]:
        """Return the choices as `central_options` takes them."""
        return {"dispatch": str(self.dispatch), "arity": self.arity if self.has_tree else None, "gc": self.gc}

    def require_mode(self, mode: Mode) -> None:
        """Check that a mode takes these choices.

        Raises
        ------
        UsageError
            If it does not.
        """
        for is_asked, text in (
            (self.has_tree, f"--dispatch {self.dispatch}"),
            (self.poll_blocks > 0, f"--gc {self.gc}"),
        ):
            if is_asked and mode is not Mode.CENTRAL_TARGET:
                raise UsageError(
                    f"{text} is of --mode {Mode.CENTRAL_TARGET}, not of --mode {mode}",
                    hint=f"Leave it out, or take --mode {Mode.CENTRAL_TARGET}.",
                )


DEFAULT_CENTRAL = CentralOptions()


def central_options(
    dispatch: str = "", arity: int | None = None, gc: str = "", before: CentralOptions = DEFAULT_CENTRAL
) -> CentralOptions:
    """Return the choices that a user has written.

    Parameters
    ----------
    dispatch, arity, gc
        "" and None for what is not given.
    before
        What a cluster has begun with, which holds where nothing is given.

    Raises
    ------
    UsageError
        If there is no such choice, or a fan-out is given without a tree.

    Examples
    --------
    >>> central_options("directives", gc="poll=4")
    CentralOptions(dispatch=<DispatchScheme.DIRECTIVES: 'directives'>, arity=2, poll_blocks=4)
    >>> central_options(arity=3, before=central_options("directives")).arity
    3
    """
    if dispatch and dispatch not in tuple(DispatchScheme):
        raise UsageError(f"--dispatch {dispatch}: there is no such scheme", hint=f"Give {' or '.join(DispatchScheme)}.")
    scheme = DispatchScheme(dispatch) if dispatch else before.dispatch
    if arity is not None and arity < 1:
        raise UsageError(f"--arity {arity}: a node sends a block to one other at least", hint="Give 1 or more.")
    if arity is not None and scheme is DispatchScheme.TABLE:
        raise UsageError(
            f"--arity {arity} is of --dispatch {DispatchScheme.DIRECTIVES}",
            hint=f"Leave it out, or add --dispatch {DispatchScheme.DIRECTIVES}.",
        )
    if arity is None:
        arity = before.arity if scheme is before.dispatch else ARITY
    return CentralOptions(scheme, arity, _poll_blocks(gc) if gc else before.poll_blocks)


def _poll_blocks(text: str) -> int:
    """Return after how many blocks nodes are asked."""
    name, equals, value = text.partition("=")
    if text in ("epochs", "poll"):
        return POLL_BLOCKS if text == "poll" else 0
    is_number = value.isascii() and value.isdecimal() and len(value) < 8
    if name != "poll" or not equals or not is_number or not 0 < int(value) <= MOST_POLL_BLOCKS:
        raise UsageError(
            f"--gc {text}: deltas are not dropped so",
            hint=f"Give epochs, poll, or poll=N with a number of blocks up to {MOST_POLL_BLOCKS:,}.",
        )
    return int(value)
