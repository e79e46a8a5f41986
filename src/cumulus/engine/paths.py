"""Paths of this machine, and what only looks like one."""

from __future__ import annotations

import re
from pathlib import Path

from cumulus.errors import UsageError

_REMOTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


def refuse_remote(path: str | Path, what: str) -> None:
    """Raise UsageError for an address such as ``s3://bucket/x``, of which the disk would make a folder ``s3:``."""
    found = _REMOTE.match(str(path))
    if found is None:
        return
    slashes = "///" if found[1].lower() == "file" else "//"  # a Path has lost all but one of them
    raise UsageError(
        f"{what} {found[1]}:{slashes}{str(path)[found.end() :]}: only folders of this machine can be used".lstrip(),
        hint="Give the folder's path alone."
        if found[1].lower() == "file"
        else "Give a folder (it may be a mounted one), and copy from or to the other place.",
    )
