"""Names of tables and views as names of files and folders: percent-encoded where a file system or a reader minds.

What is encoded: path separators and the names ``.`` and ``..``; a dot or an underscore in front, since Spark and this
package take such files for hidden ones; the letters that globs, partition folders (``k=1``) and Windows use; and the
devices of Windows. A name that would be too long is cut, and a hash of all of it follows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

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
