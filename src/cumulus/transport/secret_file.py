"""Secrets in files that nobody else can read."""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path

from cumulus.errors import InputError


def write_secret(path: Path) -> None:
    """Write a new secret into a file of this user alone, which must not be there; FileExistsError if it is."""
    with open(path, "x", opener=partial(os.open, mode=0o600)) as file:
        file.write(secrets.token_hex(32))


def read_secret(path: Path) -> bytes:
    """Return what a file with a secret holds.

    Raises
    ------
    InputError
        If it cannot be read, holds nothing, or others than its owner, who is this user or root, can read it.
    """
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            found = file.read().strip()
    except OSError as problem:
        raise InputError(
            f"{path}: the secret cannot be read: {problem.strerror}", hint="Ask its owner for the right to read it."
        ) from None
    if facts.st_mode & 0o077 or facts.st_uid not in (os.geteuid(), 0):
        raise InputError(
            f"{path}: the secret is not yours alone",
            hint=f"Write a new one into a file of yours, and: chmod 600 {path}",
        )
    if not found:
        raise InputError(f"{path}: the secret is empty", hint="Write some random characters into the file.")
    return found
