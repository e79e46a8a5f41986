"""The first record of a CSV file, which names its columns."""

from __future__ import annotations


def split_header(data: bytes) -> tuple[bytes, bytes]:
    r"""Return the first record, without its line break, and what follows; a line break in quotes is part of a name.

    If a quote of the first record is never closed, the record is the first line.

    Examples
    --------
    >>> split_header(b'id,"first\nname"\n1,ada\n')
    (b'id,"first\nname"', b'1,ada\n')
    """
    begin = quotes = 0
    while (end := data.find(b"\n", begin)) >= 0:
        quotes += data.count(b'"', begin, end)
        if quotes % 2 == 0:
            return data[:end], data[end + 1 :]
        begin = end + 1
    if (quotes + data.count(b'"', begin)) % 2 == 0:
        return data, b""
    first, _, rest = data.partition(b"\n")
    return first, rest
