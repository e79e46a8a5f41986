"""The threads of one link, from its opening to its end."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from typing import Protocol, TypeAlias

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus_ring.links.open_link import KernelCounts, LinkClosedError, LinkCounts, OpenLink, closing_reason

LinkLoop: TypeAlias = Callable[[OpenLink], None]
"""What a thread does with a link that is open, until it ends."""


class LinkSource(Protocol):
    """A link that is open, or is to be opened: `OpenLink` or `Dial`."""

    @property
    def peer(self) -> Name:
        """The other side."""

    @property
    def purpose(self) -> str:
        """What the link is for."""

    def open(self) -> OpenLink:
        """Return the link when it is open."""

    def close(self) -> None:
        """Open it no more, or close it."""


class LinkThreads:
    """Opens a link, runs a loop in a thread of its own for each thing that happens on it, and ends all when one does.

    Parameters
    ----------
    first, second
        The loops; LinkClosedError, OSError and RemoteProtocolError end the link with their reason.
    after
        Called by the first thread when no loop runs any more, and the socket is closed; before `lost`.
    lost
        Called once with the reason, unless this side has closed the link.
    """

    def __init__(
        self,
        source: LinkSource,
        lost: Callable[[str], None],
        first: LinkLoop,
        second: LinkLoop | None = None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.condition = Condition()
        """Guards what the loops wait for; it is notified when the link is over."""
        self.is_over = False
        self.is_closed = False
        self.link: OpenLink | None = None
        self._source = source
        self._lost = lost
        self._first, self._second, self._after = first, second, after
        self._reason = ""
        self._name = f"{source.purpose} with {source.peer}"
        self._thread = Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the link; returns at once."""
        with self.condition:
            self.is_closed = True
            is_open = self.link is not None
        if not is_open:
            self._source.close()
        self.give_up("closed by this side")

    def join(self, seconds: float | None = None) -> bool:
        """Wait until no thread is left; return whether that is so."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def counts(self) -> LinkCounts:
        """What has gone through the link."""
        return self.link.counts if self.link is not None else LinkCounts()

    def give_up(self, reason: str) -> None:
        """End the link for this reason, unless it is over; returns at once."""
        with self.condition:
            if not self.is_over:
                self.is_over = True
                self._reason = reason
                if self.link is not None:
                    self.link.shut()
            self.condition.notify_all()

    def _run(self) -> None:
        try:
            link = self._source.open()
        except (LinkClosedError, OSError, RemoteProtocolError) as problem:
            self.give_up(closing_reason(problem))
        else:
            with self.condition:
                self.link = link
                if self.is_over:
                    link.shut()
            try:
                self._do_both(link)
            finally:
                link.close()
                self._finish()
            return
        self._finish()

    def _do_both(self, link: OpenLink) -> None:
        second = None
        if self._second is not None:
            second = Thread(target=self._do, args=(self._second, link), name=f"{self._name}, back", daemon=True)
            second.start()
        try:
            self._do(self._first, link)
        finally:
            if second is not None:
                second.join()

    def _finish(self) -> None:
        self._after()
        if not self.is_closed:
            self._lost(self._reason)

    def _do(self, loop: LinkLoop, link: OpenLink) -> None:
        reason = "it has ended by an error"
        try:
            loop(link)
            reason = "it is over"
        except (LinkClosedError, OSError, RemoteProtocolError) as problem:
            reason = closing_reason(problem)
        finally:
            self.give_up(reason)


class ThreadedLink:
    """What all links have in common: they are begun, ended and counted alike.

    Parameters
    ----------
    threads
        The link's own.
    """

    def __init__(self, threads: LinkThreads) -> None:
        self._threads = threads

    def start(self) -> None:
        """Begin; nobody is called before."""
        self._threads.start()

    def close(self) -> None:
        """End the link; returns at once, whatever the other side does."""
        self._threads.close()

    def join(self, seconds: float | None = None) -> bool:
        """Wait until no thread of the link is left; return whether that is so."""
        return self._threads.join(seconds)

    @property
    def counts(self) -> LinkCounts:
        """What has gone through the link."""
        return self._threads.counts

    def kernel_counts(self) -> KernelCounts | None:
        """Return what the system has counted, if the link is one by TCP and open."""
        return self._threads.link.kernel_counts() if self._threads.link else None
