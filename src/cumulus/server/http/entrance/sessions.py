"""Who has logged in with the page, and who has tried in vain."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from time import monotonic

from cumulus.server.access import User

_LONGEST_DELAY_S = 2.0
_MOST_ADDRESSES = 10_000


class FailedLogins:
    """How often each address has come with a wrong token lately: its next wrong one is answered later."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def delay(self, address: str) -> None:
        """Count a failure, and wait: 0.1 s, then twice as long each time, up to 2 s."""
        count, last = self._counts.pop(address, (0, 0.0))
        if monotonic() - last > 60:
            count = 0
        self._counts[address] = (min(count + 1, 10), monotonic())
        while len(self._counts) > _MOST_ADDRESSES:
            self._counts.popitem(last=False)
        await asyncio.sleep(min(0.1 * 2**count, _LONGEST_DELAY_S))


class Sessions:
    """Who has logged in with the page: a random number in a cookie stands for a token."""

    KEPT_S = 12 * 3600.0
    MOST = 10_000

    def __init__(self) -> None:
        self._users: OrderedDict[str, tuple[User, float]] = OrderedDict()

    def begin(self, user: User) -> str:
        """Return the number for a user."""
        number = secrets.token_urlsafe(32)
        self._users[_hashed(number)] = (user, monotonic() + self.KEPT_S)
        while len(self._users) > self.MOST:
            self._users.popitem(last=False)
        return number

    def user_of(self, number: str) -> User | None:
        """Return whose number it is; it may have lost its token since."""
        found = self._users.get(_hashed(number))  # by its hash: what takes how long to compare says nothing of it
        return found[0] if found is not None and found[1] > monotonic() else None

    def end(self, number: str) -> None:
        """Forget a number."""
        self._users.pop(_hashed(number), None)


def _hashed(number: str) -> str:
    return hashlib.sha256(number.encode("utf-8", "surrogatepass")).hexdigest()
