"""A place in an object store, such as ``s3://bucket/out``, by obstore.

Nothing is renamed, linked or locked there: what must be decided is decided by `create`, which puts a file only if there
is none.
"""

from __future__ import annotations

import configparser
import errno
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cumulus.durable.parquet_writing import write_parquet_table
from cumulus.durable.store import SCHEMES, Storage, Store, StoredFile
from cumulus.errors import MissingError, StoreError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_ALIASES = {"s3a": "s3", "abfss": "az"}
_CLIENT = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "timeout",
    "proxy_url",
    "proxy_ca_certificate",
)
_RETRY = {
    "max_retries": 6,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=5), "base": 2.0},
}
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d+)")
_REASONS = {
    "NoSuchBucket": "there is no such bucket",
    "InvalidBucketName": "this is no name of a bucket",
    "AccessDenied": "access is denied",
    "InvalidAccessKeyId": "the access key is not known there",
    "SignatureDoesNotMatch": "the secret does not belong to the access key",
    "ExpiredToken": "the token has expired",
    "InvalidToken": "the token is not valid",
    "TokenRefreshRequired": "the token has expired",
    "PermanentRedirect": "the bucket is in another region",
    "AuthorizationHeaderMalformed": "the bucket is in another region",
    "IllegalLocationConstraintException": "the bucket is in another region",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
}
_STATUSES = {
    "401": "the credentials are not taken",
    "403": "access is denied",
    "301": "the bucket is in another region",
}


class ObjectStore(Store):
    """A place in an object store.

    Parameters
    ----------
    address
        Such as ``s3://bucket/out``.
    storage
        How it is reached.

    Raises
    ------
    UsageError
        If there is no such kind of store, no bucket in the address, or no such option.
    MissingError
        If obstore is not installed.
    """

    def __init__(self, address: str, storage: Storage) -> None:
        self.address = address
        scheme, _, rest = address.partition("://")
        if scheme not in SCHEMES:
            raise UsageError(
                f"{address}: there is no store of the kind {scheme}",
                hint="Give a folder (without file://), or s3://, gs:// or az://. Mount other file systems, such as "
                "hdfs://, and give the folder.",
            )
        if not rest.split("/")[0]:
            raise UsageError(f"{address}: this address has no bucket", hint=f"Such as {scheme}://bucket/folder.")
        if "@" in rest.split("/")[0] and scheme != "abfss":
            raise UsageError(
                f"{scheme}://…: an address must have no credentials in it",
                hint="Give them in the environment, or by --storage.",
            )
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise MissingError(
                f"{address}: obstore is not installed", hint="pip install 'cumulus-ivm[objects]'."
            ) from None
        self._obstore = obstore
        options = dict(storage.options)
        client = {name: options.pop(name) for name in _CLIENT if name in options}
        known = {**(_profile() if scheme.startswith("s3") and not _has_key(options) else {}), **options}
        self._asked = _provider(scheme, options)
        http = {name: value == "true" if name.startswith("allow") else value for name, value in client.items()}
        try:
            made: Any = from_url  # the types of options go by the kind of store
            url = address.replace(scheme, _ALIASES.get(scheme, scheme), 1)
            self._store = made(url, config=known, client_options=http, retry_config=_RETRY)
        except obstore.exceptions.UnknownConfigurationKeyError as problem:
            raise UsageError(
                f"{address}: {str(problem).splitlines()[0]}", hint="See docs/storage.md for what --storage takes."
            ) from None
        except (obstore.exceptions.BaseError, ValueError) as problem:
            raise UsageError(f"{address}: {str(problem).splitlines()[0]}") from None

    def create(self, name: str, data: bytes) -> bool:
        """Put a file only if there is none, by one conditional request."""
        try:
            with self._errors(name):
                self._obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def put(self, name: str, data: bytes) -> None:
        """Put a file."""
        with self._errors(name):
            self._obstore.put(self._store, name, data)

    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""
        with self._errors(name):
            return bytes(self._obstore.get(self._store, name).bytes())

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has."""
        try:
            with self._errors(name):
                return int(self._obstore.head(self._store, name)["size"])
        except FileNotFoundError:
            return None

    def list(self, prefix: str = "", after: str = "") -> list[StoredFile]:
        """Return the files in a folder and those below."""
        with self._errors(prefix):
            chunks = self._obstore.list(self._store, prefix or None, offset=after or None, chunk_size=1000)
            found = [_stored(each) for chunk in chunks for each in chunk]
        return sorted(each for each in found if each.name > after)

    def delete(self, name: str) -> None:
        """Remove a file."""
        try:
            with self._errors(name):
                self._obstore.delete(self._store, name)
        except FileNotFoundError:
            pass

    def open(self, name: str) -> Any:
        """Return a file for Arrow, which reads ranges of it: what it does not need does not travel."""
        import pyarrow as pa

        size = self.size(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "it is not there", self.place(name))
        return pa.PythonFile(_Ranges(self, name, size), mode="r")

    def range(self, name: str, start: int, end: int) -> bytes:
        """Return some bytes of a file."""
        with self._errors(name):
            return bytes(self._obstore.get_range(self._store, name, start=start, end=end))

    def write_new(self, name: str, table: pa.Table) -> None:
        """Put a table as Parquet."""
        made = io.BytesIO()
        write_parquet_table(table, made)
        self.write_new_bytes(name, made.getvalue())

    def write_new_bytes(self, name: str, data: bytes) -> None:
        """Put bytes."""
        try:
            self.put(name, data)
        except OSError as problem:
            raise StoreError(
                f"{self.address}: cannot be written: {problem.strerror}",
                hint="Mend that and start the run again: it goes on after the last committed epoch.",
            ) from None

    def settle(self, names: Iterable[str]) -> None:
        """Do nothing: what was put is durable."""

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn what obstore raises into an OSError of one sentence."""
        exceptions = self._obstore.exceptions
        place = self.place(name) if name else self.address
        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise FileExistsError(errno.EEXIST, "it is there already", place) from None
        except (exceptions.BaseError, FileNotFoundError, ValueError) as problem:
            raise self._error(place, str(problem)) from None

    def _error(self, place: str, text: str) -> OSError:
        code, status = _CODE.search(text), _STATUS.search(text)
        asked = f" (credentials: {self._asked})"
        if "169.254.169.254" in text or "metadata.google" in text:
            return PermissionError(errno.EACCES, f"this machine has no credentials{asked}", place)
        if code is not None and code[1] in _REASONS:
            about = asked if code[1] not in ("NoSuchBucket", "InvalidBucketName") else ""
            return OSError(errno.EACCES, f"{_REASONS[code[1]]}{about}", place)
        if "NotFound" in text or "not found" in text:
            return FileNotFoundError(errno.ENOENT, "it is not there", place)
        if status is not None and status[1] in _STATUSES:
            return PermissionError(errno.EACCES, f"{_STATUSES[status[1]]}{asked}", place)
        if status is not None:
            told = f": {code[1]}" if code is not None else ""
            return OSError(errno.EIO, f"the store answers {status[1]}{told}", place)
        if "Request precondition" in text or "NotSupported" in text:
            return OSError(errno.ENOTSUP, "the store does not do that", place)
        first = text.split("Debug source")[0].strip().splitlines() or [""]
        return OSError(errno.EIO, f"the store cannot be reached: {first[0][:200]}", place)


class _Ranges(io.RawIOBase):
    """A file of an object store, whose ranges are fetched as they are read; its end, where Parquet begins, at once."""

    _TAIL = 64 << 10

    def __init__(self, store: ObjectStore, name: str, size: int) -> None:
        self._store, self._name, self._size, self._at = store, name, size, 0
        self._tail_from = max(0, size - self._TAIL)
        self._tail: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        if self._at >= self._tail_from:
            if self._tail is None:
                self._tail = self._store.range(self._name, self._tail_from, self._size)
            data = self._tail[self._at - self._tail_from : end - self._tail_from]
        else:
            data = self._store.range(self._name, self._at, end)
        self._at = end
        return data


def _stored(found: Any) -> StoredFile:
    changed = int(found["last_modified"].timestamp() * 1_000_000) * 1000
    return StoredFile(found["path"], int(found["size"]), changed, str(found["e_tag"] or ""))


def _has_key(options: dict[str, str]) -> bool:
    names = {name.lower() for name in (*options, *os.environ)}
    return bool(names & {"access_key_id", "aws_access_key_id", "skip_signature", "aws_skip_signature"})


def _provider(scheme: str, options: dict[str, str]) -> str:
    """Return who was asked for credentials, for errors."""
    if any("key" in name.lower() or "token" in name.lower() for name in options):
        return "--storage"
    begins = {"gs": "GOOGLE_", "az": "AZURE_", "abfss": "AZURE_"}.get(scheme, "AWS_")
    if any(name.startswith(begins) and ("KEY" in name or "TOKEN" in name or "ACCOUNT" in name) for name in os.environ):
        return "the environment"
    if begins == "AWS_" and _profile():
        return f"the profile {os.environ.get('AWS_PROFILE', 'default')}"
    return "the role of the instance"


def _profile() -> dict[str, str]:
    """Return the keys and the region of the user's AWS profile, those that there are."""
    name = os.environ.get("AWS_PROFILE", "default")
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.environ.get(variable) or Path.home() / ".aws" / file)
        except (configparser.Error, OSError, RuntimeError):
            continue
        if parser.has_section(section):
            wanted = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region")
            found |= {each: parser.get(section, each) for each in wanted if parser.has_option(section, each)}
    return found
