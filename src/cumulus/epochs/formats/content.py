"""The bytes of a file of text, whole, unpacked and in UTF-8."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path

import pyarrow as pa

from cumulus.epochs.folder_source import FolderSource, packing_of
from cumulus.epochs.source_files import opened_bytes
from cumulus.errors import InputError

BOM = b"\xef\xbb\xbf"
_WIDE = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def read_text(source: FolderSource, path: str) -> bytes:
    """Return what the file says, in UTF-8 as far as it is text, without a byte order mark.

    Raises
    ------
    InputError
        If it cannot be read, is not a whole packed file, or is not in the encoding that the source says.
    """
    try:
        data = _unpacked(opened_bytes(source, path), path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as problem:
        if packing_of(path):
            raise InputError(
                f"{path}: not a whole {packing_of(path)} file: {problem}",
                hint="Write the file again (under another name first, then rename it) and start the run again: "
                "it resumes.",
            ) from None
        raise InputError(f"{path}: cannot be read: {problem}") from None
    if source.encoding.lower().replace("-", "") not in ("utf8", "utf8sig"):
        try:
            data = data.decode(source.encoding).encode()
        except UnicodeError as problem:
            raise InputError(
                f"{path}: not a file in {source.encoding}: {problem}", hint="Say another encoding=, or write UTF-8."
            ) from None
    elif data[:2] in _WIDE:
        raise InputError(
            f"{path}: the file begins as {_WIDE[data[:2]].upper()}",
            hint=f"Say encoding={_WIDE[data[:2]]}, or write UTF-8.",
        )
    return data.removeprefix(BOM)


def _unpacked(source: str | io.BytesIO, path: str) -> bytes:
    match packing_of(path):
        case "gzip":
            with gzip.open(source) as file:
                return file.read()
        case "bzip2":
            with bz2.open(source) as file:
                return file.read()
        case "zstd":
            packed = source.getvalue() if isinstance(source, io.BytesIO) else Path(source).read_bytes()
            with pa.input_stream(pa.BufferReader(packed), compression="zstd") as stream:
                data: bytes = stream.read()
            if not data and len(packed) > 32:
                raise EOFError("it ends too early")
            return data
        case _:
            return source.getvalue() if isinstance(source, io.BytesIO) else Path(source).read_bytes()


def is_utf8(data: bytes) -> bool:
    """Whether all of a text is UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def readable(line: bytes) -> str:
    """Return a line as text; what is not UTF-8 is shown as bytes."""
    return line.decode("utf-8", "backslashreplace")
