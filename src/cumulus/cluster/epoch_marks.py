"""Which epochs have ended, and down to which depth their deltas are all here.

The two phases of the Cumulus consistency paper, §4.3: switches end an epoch, then nodes tell each other, depth by depth
of the map graph, that no more deltas of the epoch come from them. A node is told by those alone that may send it some
of the depth. Links keep the order of what is sent, so a mark that has come says that everything before it has come.

Maps that feed each other in a circle have no depths. Then nodes tell each other in rounds, each mark behind all those
of the round before, and with it whether the node has sent deltas of the epoch since its own mark of that round. What
was sent before the marks of a round has come before those of the next are told, with all that follows from it. So if no
node has sent anything between its marks of two rounds, nothing is on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Marks:
    """Of one epoch: the switches that have ended it; for each depth the nodes that have sent all their deltas; and the
    first depth of which this node has not told so. In rounds: whether this node has sent anything since its last mark.
    """

    ended: set[int] = field(default_factory=set)
    flushed: list[set[int]] = field(default_factory=list)
    untold: int = 0
    quiet: list[set[int]] = field(default_factory=list)
    """Round → the nodes that had sent nothing since the one before."""
    has_sent: bool = True


class EpochMarks:
    """The marks of the epochs that are not over.

    Parameters
    ----------
    switches
        Those that end epochs here.
    sources
        Depth → the nodes that tell when they have sent all their deltas of the depth. In rounds: of one, all nodes with
        this one.
    committed
        The last epoch that is over.
    in_rounds
        Whether there are no depths: maps feed each other in a circle.

    Attributes
    ----------
    over
        The last epoch of which all is in.
    """

    def __init__(
        self,
        switches: Collection[int],
        sources: Sequence[Collection[int]],
        committed: int,
        *,
        in_rounds: bool = False,
    ) -> None:
        self._switches, self._sources = frozenset(switches), [frozenset(each) for each in sources]
        self._depths = 0 if in_rounds else len(sources)
        self._in_rounds = in_rounds
        self.over = committed
        self._marks: dict[int, _Marks] = {}

    def end(self, epoch: int, switch: int) -> bool:
        """Note that a switch has ended an epoch; False if that was known, the epoch is over, or it ends none here."""
        if epoch <= self.over or switch not in self._switches:
            return False
        ended = self._of(epoch).ended
        is_new = switch not in ended
        ended.add(switch)
        return is_new

    def checkpoint(self, epoch: int, depth: int, node: int, *, is_quiet: bool = True) -> bool:
        """Note that a node has sent all deltas of a depth, or its mark of a round; False if it has, or cannot have.

        Parameters
        ----------
        is_quiet
            In rounds: whether it has sent nothing since the round before.
        """
        if epoch <= self.over or depth < 0:
            return False
        marks = self._of(epoch)
        if self._in_rounds and depth == len(marks.flushed):
            marks.flushed.append(set())
            marks.quiet.append(set())
        if depth >= len(marks.flushed) or node not in self._sources_of(depth):
            return False
        is_new = node not in marks.flushed[depth]
        marks.flushed[depth].add(node)
        if is_quiet and self._in_rounds:
            marks.quiet[depth].add(node)
        return is_new

    def note_sent(self, epoch: int) -> None:
        """Note that this node has sent deltas of an epoch: it and those after it are not quiet."""
        for at, marks in self._marks.items():
            marks.has_sent |= at >= epoch

    def take_quiet(self, epoch: int) -> bool:
        """Return whether this node has sent nothing of an epoch since it was asked last."""
        marks = self._marks[epoch]
        is_quiet, marks.has_sent = not marks.has_sent, False
        return is_quiet

    def _of(self, epoch: int) -> _Marks:
        if epoch not in self._marks:
            self._marks[epoch] = _Marks(flushed=[set() for _ in range(self._depths)])
        return self._marks[epoch]

    def tell(self, is_done: Callable[[int], bool] = lambda epoch: True) -> list[tuple[int, int]]:
        """Return the epochs and depths of which this node, having sent whatever it had to, tells the nodes now.

        A depth may be told when all switches have ended the epoch, and all that is sent here of the depths below has
        come.

        Parameters
        ----------
        is_done
            Whether nothing waits here of an epoch that the switches have ended.
        """
        told: list[tuple[int, int]] = []
        for epoch in sorted(self._marks):
            marks = self._marks[epoch]
            if len(marks.ended) == len(self._switches) and is_done(epoch):
                if self._in_rounds:  # one at a time: this node's own mark is the last of a round, or lets others go on
                    if self._is_flushed(marks, marks.untold) and not self._is_over(marks):
                        told.append((epoch, marks.untold))
                        marks.untold += 1
                    continue
                while marks.untold < self._depths and self._is_flushed(marks, marks.untold):
                    told.append((epoch, marks.untold))
                    marks.untold += 1
        return told

    def _sources_of(self, depth: int) -> frozenset[int]:
        """Return the nodes that tell a depth, or their mark of a round, here."""
        return self._sources[0 if self._in_rounds else depth]

    def _is_flushed(self, marks: _Marks, depth: int) -> bool:
        """Whether all that tell this node anything of the depth below one have told it."""
        return depth == 0 or len(marks.flushed[depth - 1]) == len(self._sources_of(depth - 1))

    def _is_over(self, marks: _Marks) -> bool:
        """Whether no deltas come any more."""
        if self._in_rounds:
            return any(len(each) == len(self._sources[0]) for each in marks.quiet)
        return marks.untold == self._depths and self._is_flushed(marks, self._depths)

    @property
    def ended(self) -> int:
        """The last epoch that all switches have ended, as all before it."""
        epoch = self.over
        while (marks := self._marks.get(epoch + 1)) is not None and len(marks.ended) == len(self._switches):
            epoch += 1
        return epoch

    def next_over(self, is_done: Callable[[int], bool] = lambda epoch: True) -> int | None:
        """Return the first epoch that is not over if it is now: all is in that was ever sent of it; else None.

        Parameters
        ----------
        is_done
            As in `tell`.
        """
        marks = self._marks.get(self.over + 1)
        if marks is None or len(marks.ended) < len(self._switches) or not self._is_over(marks):
            return None
        if not is_done(self.over + 1):
            return None
        self.over += 1
        del self._marks[self.over]
        return self.over
