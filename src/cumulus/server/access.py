"""Who may do what: users with a role, known by the hash of a token; the file that keeps them."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cumulus.catalog.names import find_name
from cumulus.durable.files import written_aside
from cumulus.errors import AccessError, ClosedError, InputError, StoreError, UnknownNameError, UsageError

LOG = logging.getLogger("cumulus.server")
FILE, _MARK = "users.toml", "users.required"
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_BYTES = 16 << 20
_TICK_NS = 100_000_000
"""A file that was changed less than so long ago may change again without another time of change."""
_UNUSABLE = "the list of users cannot be used"
_CORRECT = "Correct it, or restore it from a copy: `cumulus serve token add` wrote it."


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
NOBODY = User("nobody", Role.READER, ())
"""Who has no name, and gets what is open to all."""


def digest_of(token: str) -> str:
    """Return the hash of a token. Tokens are random and long, so that one round is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class UserList:
    """The users of a server at one moment.

    Parameters
    ----------
    is_there
        Whether the server has users, even if their file cannot be used now. If not, everybody is an admin.
    problem
        Why nobody can be let in, without a path: any client may read it. "" if the list is in order.
    reason
        The same for the operator: the path, and what is wrong there.
    hint
        What the operator does about it.
    """

    users: tuple[User, ...] = ()
    is_there: bool = True
    problem: str = ""
    reason: str = ""
    hint: str = ""

    def closed(self) -> ClosedError:
        """Return the error of a request to a server whose list of users cannot be used."""
        return ClosedError(f"nobody is let in: {self.problem}", hint="The log of the server has the reason.")

    def user_with(self, token: str) -> User | None:
        """Return the user with a token; None if there is none. The time is the same for every token.

        Raises
        ------
        ClosedError
            If the list cannot be used.
        """
        if self.problem:
            raise self.closed()
        given, found = digest_of(token), None
        for user in self.users:
            if hmac.compare_digest(given, user.digest):
                found = user
        return found


class UserFile:
    """The users of a server: `DIR/users.toml`, which only its owner can read. No token is in it.

    A server that has had users is never open to everybody: `add` also makes an empty file `DIR/users.required`, and if
    `users.toml` is missing beside it, is damaged, or can be read or changed by others, nobody is let in.

    Parameters
    ----------
    folder
        The server's. Without either file there are no users.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._mark = folder / FILE, folder / _MARK
        self._stamp: tuple[int, ...] | None = None
        self._list = UserList(is_there=False)
        self._told = ""

    def look(self) -> UserList:
        """Return the users as the file has them now; each problem is logged once."""
        try:
            status, folder = self.path.stat(), self.path.parent.stat()
        except OSError as problem:
            self._stamp, self._list = None, self._absent(problem)
        else:
            # Not the modification time: a change of the owner or the permissions does not move that one.
            stamp = (status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev, folder.st_mode, folder.st_uid)
            if stamp != self._stamp:
                self._list = self._read()
                # A change within the clock's tick after this one would have the same stamp: read it once more then.
                self._stamp = stamp if time.time_ns() - status.st_ctime_ns > _TICK_NS else None
        if self._list.reason != self._told:
            self._told = self._list.reason
            if self._told:
                LOG.error("nobody is let in: %s. %s", self._list.reason, self._list.hint)
            else:
                LOG.warning("%s is in order again: its users are let in", self.path)
        return self._list

    def _absent(self, problem: OSError) -> UserList:
        is_missing = isinstance(problem, FileNotFoundError) and not self.path.is_symlink()
        if is_missing and not self._list.is_there and not os.path.lexists(self._mark):
            return UserList(is_there=False)
        if is_missing:
            hint = (
                f"Bring it back, or make users anew: cumulus serve token add. For a server without users remove "
                f"{self._mark.name} beside it, too, and start the server again."
            )
            return UserList((), True, "the list of users is missing", f"{self.path} is missing", hint)
        return _unusable(f"{self.path} cannot be read: {problem.strerror}", f"Give the right to read {self.path}.")

    def _read(self) -> UserList:
        try:
            users = _users_in(_private_text(self.path))
        except InputError as problem:
            return _unusable(f"{self.path}: {problem.message}", problem.hint)
        if not users:
            why = "the list of users is empty"
            return UserList((), True, why, f"{self.path} has no users", "Make some: cumulus serve token add.")
        return UserList(users)

    @property
    def users(self) -> tuple[User, ...]:
        """The users, as the file has them now.

        Raises
        ------
        InputError
            If it is damaged, or others can read or change it.
        """
        found = self.look()
        if found.problem == _UNUSABLE:
            raise InputError(found.reason, hint=found.hint)
        return found.users

    def user_with(self, token: str) -> User | None:
        """Return the user with a token; see `UserList.user_with`."""
        return self.look().user_with(token)

    def require(self) -> None:
        """Mark a folder that has users, so that it is closed if their file goes; StoreError if the disk is full."""
        if os.path.lexists(self.path) and not os.path.lexists(self._mark):
            try:
                self._mark.touch(0o600)
            except OSError as problem:
                raise StoreError(
                    f"{self._mark} cannot be written: {problem.strerror}",
                    hint="Give the right to write there, or make room: it keeps the server closed if users.toml goes.",
                ) from None

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
        self.require()
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


def _unusable(reason: str, hint: str) -> UserList:
    return UserList((), True, _UNUSABLE, reason, hint)


def _private_text(path: Path) -> str:
    """Return the text of a file that only this user, or root, can read and change; InputError if it is none."""
    try:
        # Without waiting: a named pipe in its place would never come to an end.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise InputError("it is no file", hint=f"Put the file in its place: {path}.")
            folder, own = path.parent.stat(), (0, os.geteuid())
            if status.st_uid not in own or folder.st_uid not in own:
                raise InputError(
                    "it, or its folder, belongs to another user", hint=f"chown {os.geteuid()} {path.parent} {path}"
                )
            if status.st_mode & 0o077:
                raise InputError("others can read it", hint=f"chmod 600 {path}")
            if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
                raise InputError("others can write its folder", hint=f"chmod o-w {path.parent}")
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise InputError(f"it is larger than {_MOST_BYTES:,} bytes", hint="Restore it from a copy.")
        return text.decode("utf-8")
    except OSError as problem:
        raise InputError(f"it cannot be read: {problem.strerror}", hint="Give the right to read it.") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"no list of users: {problem}", hint=_CORRECT) from None


def _users_in(text: str) -> tuple[User, ...]:
    try:
        whole = tomllib.loads(text)
        users = tuple(_user(name, each) for name, each in whole.pop("users", {}).items())
        if whole:
            raise ValueError(f"{next(iter(whole))!r} is not users")
    except (tomllib.TOMLDecodeError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as problem:
        raise InputError(f"no list of users: {problem}", hint=_CORRECT) from None
    if len({user.digest for user in users}) < len(users):
        raise InputError("no list of users: two have the same token", hint=_CORRECT)
    return users


def _user(name: str, given: dict[str, Any]) -> User:
    """Return a user of the file; ValueError or KeyError for what is not exactly one, as a misspelt word may be."""
    role, digest, views = Role(given["role"]), given["token_sha256"], given.get("views")
    unknown = given.keys() - {"role", "token_sha256", "views"}
    if unknown:
        raise ValueError(f"{name} has {', '.join(sorted(unknown))}, which means nothing")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a user")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"token_sha256 of {name} is not 64 hexadecimal digits")
    if views is not None and not (isinstance(views, list) and all(isinstance(view, str) for view in views)):
        raise ValueError(f"views of {name} is no list of names")
    return User(name, role, None if views is None else tuple(views), digest)
