"""Questions that hop upstream from node to node, and come home with an answer.

A question goes to the predecessor, node by node, until it has an answer or no hops left; then it goes straight to its
origin. The query that asks stays at its origin meanwhile. If the question is lost, the origin goes on without an answer
after a while; if it comes home twice, or too late, the later ones are ignored.
"""

from __future__ import annotations

from cumulus_ring.machine.messages import QueryId


class OpenQuestions:
    """Questions of one node that have not come home, at most one for each query."""

    def __init__(self) -> None:
        self._due: dict[QueryId, int] = {}

    def __len__(self) -> int:
        return len(self._due)

    def open(self, query: QueryId, due: int) -> None:
        """Note that a query waits for an answer until a time at most, in microseconds."""
        assert query not in self._due, f"query {query} asks twice at once"
        self._due[query] = due

    def close(self, query: QueryId) -> bool:
        """A question has come home, or its query has ended; return whether the query was waiting for it."""
        return self._due.pop(query, None) is not None

    def overdue(self, now: int) -> list[QueryId]:
        """Return, and close, those for which there is no answer in time, in the order in which they were asked."""
        found = [query for query, due in self._due.items() if due <= now]
        for query in found:
            del self._due[query]
        return found

    def close_all(self) -> list[QueryId]:
        """The ring has other members: return, and close, all of them."""
        found = [*self._due]
        self._due.clear()
        return found
