"""Who may do what: users with a role, known by the hash of a token; the file that keeps them."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cumulus.catalog.names import find_name
from cumulus.durable.files import written_aside
from cumulus.errors import AccessError, InputError, UnknownNameError, UsageError

FILE = "users.toml"
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")


class Role(StrEnum):
    """What somebody may do; each may also do what those before may."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who is known.

    Parameters
    ----------
    views
        The only views that there are for this user; None is all, and all that is said of the whole.
    digest
        The SHA-256 of the token, in hexadecimal digits; "" for who needs none.
    """

    name: str
    role: Role
    views: tuple[str, ...] | None = None
    digest: str = ""

    def has_role(self, role: Role) -> bool:
        """Whether the user may do what a role may."""
        return _RANKS[self.role] >= _RANKS[role]

    def may_read(self, view: str) -> bool:
        """Whether a view is there for the user."""
        return self.views is None or find_name(view, self.views) is not None

    def require(self, role: Role) -> None:
        """Raise AccessError unless the user may do what a role may."""
        if not self.has_role(role):
            raise AccessError(f"this needs the role {role}, and {self.name} is a {self.role}")

    def require_all_views(self) -> None:
        """Raise AccessError for a user who may read some views only: what is asked tells of others."""
        if self.views is not None:
            raise AccessError(f"this tells of all views, and {self.name} may read {', '.join(self.views) or 'none'}")


EVERYBODY = User("everybody", Role.ADMIN)
"""Who comes to a server without users, which only this machine reaches."""


def digest_of(token: str) -> str:
    """Return the hash of a token. Tokens are random and long, so that one round is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class UserFile:
    """The users of a server: `DIR/users.toml`, which only its owner can read. No token is in it.

    Parameters
    ----------
    folder
        The server's. The file need not be there: then there are no users.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._seen: tuple[int, int] | None = None
        self._users: tuple[User, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether there is a file, even one without users."""
        return self.path.exists()

    @property
    def users(self) -> tuple[User, ...]:
        """The users, as the file has them now.

        Raises
        ------
        InputError
            If it is damaged, or others can read it.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen, self._users = None, ()
            return ()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._seen:
            if status.st_mode & 0o077:
                raise InputError(f"{self.path}: others can read it", hint=f"chmod 600 {self.path}")
            self._users = _read(self.path)
            self._seen = stamp
        return self._users

    def user_with(self, token: str) -> User | None:
        """Return whose token this is; it takes as long for any token, whoever's it may be."""
        given, found = digest_of(token), None
        for user in self.users:
            if hmac.compare_digest(given, user.digest):
                found = user
        return found

    def add(self, name: str, role: Role, views: tuple[str, ...] | None = None) -> str:
        """Add a user; return the token, which is nowhere kept.

        Raises
        ------
        UsageError
            If there is one of that name, or it is no name.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a user", hint="Take up to 64 letters, digits and any of _ . @ -")
        if any(user.name == name for user in self.users):
            raise UsageError(f"there is a user {name} already", hint="Remove it first, or take another name.")
        token = "cumulus_" + secrets.token_urlsafe(32)
        self._write([*self.users, User(name, role, views, digest_of(token))])
        return token

    def remove(self, name: str) -> None:
        """Take a user away; a running server knows it within a second."""
        left = [user for user in self.users if user.name != name]
        if len(left) == len(self.users):
            raise UnknownNameError(
                f"there is no user {name}", hint=f"Users: {', '.join(u.name for u in left) or 'none'}."
            )
        self._write(left)

    def _write(self, users: Iterable[User]) -> None:
        lines = ["# Hashes of tokens: `cumulus serve token add` makes them. Nobody else may read or write this file."]
        for user in users:
            lines += ["", f'[users."{user.name}"]', f'role = "{user.role}"', f'token_sha256 = "{user.digest}"']
            if user.views is not None:
                lines.append(f"views = [{', '.join(map(_quoted, user.views))}]")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(self.path) as aside:
            os.close(os.open(aside, os.O_CREAT | os.O_WRONLY, 0o600))
            aside.write_text("\n".join([*lines, ""]), "utf-8")


def _quoted(text: str) -> str:
    escaped = "".join(f"\\u{ord(char):04x}" if char < " " or char in '"\\\x7f' else char for char in text)
    return f'"{escaped}"'


def _read(path: Path) -> tuple[User, ...]:
    try:
        given = tomllib.loads(path.read_text("utf-8")).get("users", {})
        return tuple(
            User(
                name,
                Role(each["role"]),
                tuple(map(str, each["views"])) if "views" in each else None,
                str(each["token_sha256"]),
            )
            for name, each in given.items()
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, ValueError, TypeError, AttributeError) as problem:
        raise InputError(
            f"{path}: no list of users: {problem}", hint="Make it by `cumulus serve token add`, or correct it."
        ) from None
