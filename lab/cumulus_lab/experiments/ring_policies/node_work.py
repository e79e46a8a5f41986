"""Work of a simulated node: cores that take batches in order of arrival, and what queries took there lately."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from cumulus_lab.simulation import Agenda
from cumulus_lab.simulation.agenda import Deed

WEIGHT = 0.2
"""Of the last query, in the moving averages; as at real nodes."""
SECOND = 1_000_000


class QueryWork:
    """What one query has taken at its node so far, in microseconds, and the bytes that had to come for it."""

    __slots__ = ("began", "in_line", "moved", "worked")

    def __init__(self, began: int, moved: int) -> None:
        self.began = began
        self.moved = moved
        self.worked = 0
        self.in_line = 0


class NodeWork:
    """Cores of a node, its queries, and moving averages of what they took.

    Parameters
    ----------
    agenda
        Of the world.
    cores
        Batches that the node works on at once; 0 for any number.

    Attributes
    ----------
    worked_us
        What all queries have worked, in microseconds.
    query_s
        Seconds that a query worked lately.
    byte_s
        Seconds that a query waited lately for a byte that had to come.

    Examples
    --------
    >>> work = NodeWork(agenda := Agenda(), cores=1)
    >>> for query in (7, 8):
    ...     work.begin(query, moved=0)
    ...     work.do(query, 1_000_000, print, f"{query} has worked")
    >>> while agenda.heap:
    ...     agenda.now, _, deed, about = agenda.heap.pop(0)
    ...     deed(about)
    7 has worked
    8 has worked
    >>> agenda.now, work.worked_us, len(work)
    (2000000, 2000000, 2)
    """

    def __init__(self, agenda: Agenda, cores: int) -> None:
        self._agenda = agenda
        self._cores = cores
        self._busy = 0
        self._line: deque[tuple[int, int, int, Deed, Any]] = deque()
        self._queries: dict[int, QueryWork] = {}
        self.worked_us = 0
        self.query_s, self.byte_s = 0.02, 1e-8

    def __len__(self) -> int:
        return len(self._queries)

    def begin(self, query: int, moved: int) -> None:
        """A query begins at this node; so many bytes have to come for it."""
        self._queries[query] = QueryWork(self._agenda.now, moved)

    def end(self, query: int) -> None:
        """A query is at its end: take in what it took."""
        found = self._queries.pop(query, None)
        if found is None:
            return
        self.query_s += WEIGHT * (found.worked / SECOND - self.query_s)
        if found.moved:
            waited = max(0, self._agenda.now - found.began - found.worked - found.in_line)
            self.byte_s += WEIGHT * (waited / SECOND / found.moved - self.byte_s)

    def do(self, query: int, work_us: int, deed: Deed, about: Any) -> None:
        """Work on a batch of a query as soon as a core is free, and then do something."""
        if not self._cores:
            self._account(query, work_us, 0)
            self._agenda.after(work_us, deed, about)
        elif self._busy < self._cores:
            self._busy += 1
            self._account(query, work_us, 0)
            self._agenda.after(work_us, partial(self._done, deed), about)
        else:
            self._line.append((self._agenda.now, query, work_us, deed, about))

    def _done(self, deed: Deed, about: Any) -> None:
        """A core is free: it takes the next batch in line."""
        if self._line:
            since, query, work_us, following, its = self._line.popleft()
            self._account(query, work_us, self._agenda.now - since)
            self._agenda.after(work_us, partial(self._done, following), its)
        else:
            self._busy -= 1
        deed(about)

    def _account(self, query: int, work_us: int, in_line: int) -> None:
        self.worked_us += work_us
        if (found := self._queries.get(query)) is not None:
            found.worked += work_us
            found.in_line += in_line
