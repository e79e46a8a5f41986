"""A folder below the temporary one that is this user's alone: what stands in it is run, or can be told to run code."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from cumulus.errors import StoreError

_LONGEST = 70
"""Bytes of the folder's path: a socket's may have 104, and YARN's folders have more."""


def private_folder() -> Path:
    """Return the folder, made if it is not there.

    Raises
    ------
    StoreError
        If it belongs to somebody else or others may enter it: whoever made it first could put anything there.
    """
    folder = Path(tempfile.gettempdir()) / f"cumulus-{os.getuid()}"
    if len(os.fsencode(folder)) > _LONGEST:
        folder = Path("/tmp") / folder.name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()  # a link may lead anywhere, and who made it may change it
    except OSError as problem:
        raise StoreError(f"{folder}: {problem.strerror or problem}", hint="Make room, or set TMPDIR.") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StoreError(
            f"{folder} is not a folder of yours alone",
            hint=f"Remove it, or chmod 700 {folder} if it is yours, or set TMPDIR.",
        )
    return folder
