"""Folders: which can be used, their entries on the disk, and locks that one process has at a time.

Names of tables and views as names of files and folders are percent-encoded where a file system or a reader minds: path
separators and the names ``.`` and ``..``; a dot or an underscore in front, since Spark and this package take such files
for hidden ones; the letters that globs, partition folders (``k=1``) and Windows use; and the devices of Windows. A name
that would be too long is cut, and a hash of all of it follows.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO

from cumulus.errors import StoreLostError, UsageError

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


def check_output(path: str | Path, what: str, *, takes_addresses: bool = False) -> None:
    """Raise UsageError for a folder to write that cannot be one, before anything is made."""
    if takes_addresses and _REMOTE.match(str(path)):
        return
    refuse_remote(path, what)
    for each in (Path(path), *Path(path).parents):
        if each.is_dir():
            return
        if os.path.lexists(each):
            found = f"a link to {os.readlink(each)}, which is not there" if each.is_symlink() else "a file"
            raise UsageError(
                f"{what} {path}: {each} is {found}", hint="Give a folder; it is made if nothing has its name yet."
            )


def make_private(folder: Path) -> None:
    """Make a folder, with those above it, that no other user can look into; one that is there becomes so.

    Raises
    ------
    UsageError
        If it is another user's, who could take it over.
    OSError
        If it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise UsageError(f"{folder} belongs to another user", hint="Give another folder, or make it your own (chown).")
    folder.chmod(0o700)


def sync_folder(path: Path) -> None:
    """Bring the entries of a folder to the disk: files that were made, renamed or removed in it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class HeldFolder:
    """A folder in which a process writes, known by its device and inode: whether its path still leads to it.

    Raises
    ------
    OSError
        If it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = identity_of(path.stat())

    @property
    def inode(self) -> int:
        """The number that its file system knows it by."""
        return self._identity[1]

    def check(self) -> os.stat_result:
        """Return the state of the folder.

        Raises
        ------
        StoreLostError
            If there is none at the path, or another one.
        """
        try:
            found = os.stat(self.path)
        except OSError as problem:
            raise StoreLostError(
                f"{self.path}: this folder has gone while it was written: {problem.strerror}",
                hint="Bring it back to its place, as it was, and start again.",
            ) from None
        if identity_of(found) != self._identity:
            raise StoreLostError(
                f"{self.path}: another folder has taken the place of this one while it was written",
                hint="Bring the one that was there back to its place, and start again.",
            )
        return found


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """Return the device and inode of a file or folder: no other one has both while it is open."""
    return found.st_dev, found.st_ino


def lock_file(path: Path, *, wait: bool = False) -> IO[bytes] | None:
    """Return a file that this process has locked, until it is closed; None if another one has, and `wait` is not set.

    The number of the process that has locked it last is in it.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """
    import fcntl  # where there is none, whoever locks nothing works all the same

    file = path.open("ab", buffering=0)  # what a full disk did not take is not tried again by `close`
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        with suppress(OSError):  # a disk that is full
            file.truncate(0)
            file.write(b"%d\n" % os.getpid())
    except BlockingIOError:
        file.close()
        return None
    except BaseException:
        file.close()
        raise
    return file


def lock_file_soon(path: Path) -> IO[bytes] | None:
    """Return as `lock_file`, after a second at most: a process that was killed keeps a lock until it has ended.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """
    until = time.monotonic() + 1.0
    while True:
        file = lock_file(path)
        if file is not None or time.monotonic() > until:
            return file
        time.sleep(0.02)


MOST_BYTES = 160
"""Of an encoded name: file systems take 255 bytes, and hosts put endings behind it."""

_PLAIN = re.compile(r"[A-Za-z0-9_\-. ]|[^\x00-\x7f]")
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def file_name(name: str, taken: Collection[str] = ()) -> str:
    """Return the name of the file or folder for what is called `name`; different names give different ones.

    Parameters
    ----------
    taken
        Names in lower case that the folder uses itself.

    Examples
    --------
    >>> [file_name(each) for each in ("Orders", "north & south", "../evil", "..", "_SUCCESS", "k=1", "50%", "nul")]
    ['Orders', 'north %26 south', '%2E.%2Fevil', '%2E%2E', '%5FSUCCESS', 'k%3D1', '50%25', '%6Eul']
    >>> file_name("parts", taken=("parts",)), len(file_name("/" * 255)), file_name("")
    ('%70arts', 160, '%')
    """
    letters = [each if _is_plain(each) else _encoded(each) for each in name]
    if letters and (letters[0] in "._ " or _DEVICES.fullmatch(name) or name.lower() in taken):
        letters[0] = _encoded(name[0])
    if letters and letters[-1] in ". ":
        letters[-1] = _encoded(name[-1])
    made = "".join(letters)
    if len(made.encode()) <= MOST_BYTES:
        return made or "%"
    # "%~" is in no other encoded name.
    tail = f"%~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    while len(made.encode()) > MOST_BYTES - len(tail):
        made = "".join(letters := letters[:-1])
    return made + tail


def _is_plain(letter: str) -> bool:
    return _PLAIN.fullmatch(letter) is not None and (letter == " " or letter.isprintable())


def _encoded(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
