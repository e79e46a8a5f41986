"""Which epochs have ended, and down to which depth their deltas are all here.

The two phases of the Cumulus consistency paper, §4.3: switches end an epoch, then nodes tell each other, depth by depth
of the map graph, that no more deltas of the epoch come from them. Links keep the order of what is sent, so a mark that
has come says that everything before it has come, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Marks:
    """Of one epoch: the switches that have ended it; for each depth the nodes that have sent all their deltas; and the
    first depth of which this node has not told so.
    """

    ended: set[int] = field(default_factory=set)
    flushed: list[set[int]] = field(default_factory=list)
    untold: int = 0


class EpochMarks:
    """The marks of the epochs that are not over.

    Parameters
    ----------
    depths
        How many depths the map graph has.
    committed
        The last epoch that is over.

    Attributes
    ----------
    over
        The last epoch of which all is in.
    """

    def __init__(self, nodes: int, switches: int, depths: int, committed: int) -> None:
        self._nodes, self._switches, self._depths = nodes, switches, depths
        self.over = committed
        self._marks: dict[int, _Marks] = {}

    def end(self, epoch: int, switch: int) -> bool:
        """Note that a switch has ended an epoch; False if that was known, or the epoch is over."""
        if epoch <= self.over:
            return False
        ended = self._of(epoch).ended
        is_new = switch not in ended
        ended.add(switch)
        return is_new

    def checkpoint(self, epoch: int, depth: int, node: int) -> bool:
        """Note that a node has sent all deltas of a depth; False if that was known, or cannot be."""
        if epoch <= self.over or not 0 <= depth < self._depths:
            return False
        flushed = self._of(epoch).flushed[depth]
        is_new = node not in flushed
        flushed.add(node)
        return is_new

    def _of(self, epoch: int) -> _Marks:
        if epoch not in self._marks:
            self._marks[epoch] = _Marks(flushed=[set() for _ in range(self._depths)])
        return self._marks[epoch]

    def tell(self, is_done: Callable[[int], bool] = lambda epoch: True) -> list[tuple[int, int]]:
        """Return the epochs and depths of which this node, having sent whatever it had to, tells the nodes now.

        A depth may be told when all switches have ended the epoch, and all nodes have told all depths below.

        Parameters
        ----------
        is_done
            Whether nothing waits here of an epoch that the switches have ended.
        """
        told: list[tuple[int, int]] = []
        for epoch in sorted(self._marks):
            marks = self._marks[epoch]
            if len(marks.ended) == self._switches and is_done(epoch):
                while marks.untold < self._depths and self._is_flushed(marks, marks.untold):
                    told.append((epoch, marks.untold))
                    marks.untold += 1
        return told

    def _is_flushed(self, marks: _Marks, depth: int) -> bool:
        """Whether all nodes have told all depths below one."""
        return depth == 0 or len(marks.flushed[depth - 1]) == self._nodes

    @property
    def ended(self) -> int:
        """The last epoch that all switches have ended, as all before it."""
        epoch = self.over
        while (marks := self._marks.get(epoch + 1)) is not None and len(marks.ended) == self._switches:
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
        if marks is None or len(marks.ended) < self._switches or not self._is_flushed(marks, self._depths):
            return None
        if not is_done(self.over + 1):
            return None
        self.over += 1
        del self._marks[self.over]
        return self.over
