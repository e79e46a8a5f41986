"""Where a run keeps its files: a folder of this machine, or a place in an object store; both by the same few methods.

Names are relative, with slashes between their parts. What is written is there whole or not at all, and durable when the
method returns.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cumulus.durable.files import create_durably, open_durably, sync_entries, write_durably
from cumulus.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
SCHEMES = ("s3", "s3a", "gs", "az", "abfss")
_SECRET = re.compile(r"key|secret|token|password|credential|sas|signature|bearer", re.IGNORECASE)


class StoredFile(NamedTuple):
    """What a list says of a file.

    Parameters
    ----------
    name
        Relative to the store.
    size
        In bytes.
    changed_ns
        When it was written, in nanoseconds since 1970.
    etag
        What an object store says of its content; "" in a folder.
    """

    name: str
    size: int
    changed_ns: int
    etag: str = ""


class Store(ABC):
    """A place for files.

    What fails raises an OSError, FileNotFoundError where there is no such file; its `strerror` is a sentence.

    Attributes
    ----------
    address
        The folder or address, as errors name it.
    """

    address: str
    is_local = False

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there; False, and nothing is changed, if it is."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write a file, in the place of an old one if there is one."""

    @abstractmethod
    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return how many bytes a file has, None if it is not there."""

    @abstractmethod
    def list(self, prefix: str = "", after: str = "") -> list[StoredFile]:
        """Return the files in a folder and those below, in the order of their names.

        Parameters
        ----------
        prefix
            The folder.
        after
            Only names that sort behind this one.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""

    @abstractmethod
    def open(self, name: str) -> Any:
        """Return what Arrow reads a file from."""

    @abstractmethod
    def write_new(self, name: str, table: pa.Table) -> None:
        """Write a table as Parquet to a name that nobody else writes; its entry is durable after `settle`.

        Raises
        ------
        StoreError
            If it cannot be written.
        """

    @abstractmethod
    def write_new_bytes(self, name: str, data: bytes) -> None:
        """Write bytes as `write_new` does a table."""

    @abstractmethod
    def settle(self, names: Iterable[str]) -> None:
        """Make what `write_new` has written durable with its name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> str:
        return self.address

    def place(self, name: str) -> str:
        """Return the address of a file, for errors."""
        return f"{self.address}/{name}"

    def __str__(self) -> str:
        return self.address


class FileStore(Store):
    """A folder of this machine."""

    is_local = True

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.address = str(path)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there."""
        return create_durably(self._made(name), data)

    def put(self, name: str, data: bytes) -> None:
        """Write a file."""
        write_durably(self._made(name), data)

    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return (self.path / name).read_bytes()

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has."""
        try:
            return (self.path / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, prefix: str = "", after: str = "") -> list[StoredFile]:
        """Return the files in a folder and those below; hidden ones, which are being written, are left out."""
        found = (each for each in _files_below(self.path / prefix, f"{prefix}/" if prefix else ""))
        return sorted(each for each in found if each.name > after)

    def delete(self, name: str) -> None:
        """Remove a file."""
        (self.path / name).unlink(missing_ok=True)

    def open(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.path / name)

    def write_new(self, name: str, table: pa.Table) -> None:
        """Write a table as Parquet."""
        from cumulus.durable.files import write_parquet

        write_parquet(self.path / name, table)

    def write_new_bytes(self, name: str, data: bytes) -> None:
        """Write bytes."""
        with open_durably(self._made(name)) as file:
            file.write(data)

    def settle(self, names: Iterable[str]) -> None:
        """Sync the entries of files, each folder once."""
        sync_entries(self.path / name for name in names)

    def _identity(self) -> str:
        return str(self.path.resolve())

    def _made(self, name: str) -> Path:
        from cumulus.durable.files import make_folder

        place = self.path / name
        make_folder(place.parent)
        return place


def _files_below(folder: Path, prefix: str) -> Iterator[StoredFile]:
    try:
        with os.scandir(folder) as entries:
            found = [each for each in entries if not each.name.startswith(".")]
    except FileNotFoundError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(folder / entry.name, f"{prefix}{entry.name}/")
        else:
            state = entry.stat()
            yield StoredFile(prefix + entry.name, state.st_size, state.st_mtime_ns)


class Storage:
    """How object stores are reached: `--storage NAME=VALUE`, or ``storage={…}``.

    Credentials that are not given are taken as the machine has them: from the environment, a profile, or the role of
    the instance. None of them is shown, and none travels: a pickled `Storage` has only what is no secret.

    Parameters
    ----------
    options
        Names and values, such as ``endpoint``, ``region``, ``allow_http``, ``access_key_id``.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.options = {str(name): str(value) for name, value in (options or {}).items()}

    @property
    def secrets(self) -> list[str]:
        """The names of the options that are secrets."""
        return [name for name in self.options if _SECRET.search(name)]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Storage, ({name: value for name, value in self.options.items() if not _SECRET.search(name)},)

    def __deepcopy__(self, memo: object) -> Storage:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self.options == other.options

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.options.items())))

    def __repr__(self) -> str:
        return f"Storage({', '.join(self.options)})"


NO_STORAGE = Storage()
"""Everything as the machine has it."""


def storage_of(texts: Iterable[str]) -> Storage:
    """Return what ``NAME=VALUE`` texts of `--storage` say.

    Raises
    ------
    UsageError
        If one has no name or no value; the value is not shown.
    """
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(
                f"--storage {name or '…'}: a name and a value are needed",
                hint="Give NAME=VALUE, such as endpoint=http://host:9000, region=eu-west-1 or allow_http=true.",
            )
        options[name] = value
    return Storage(options)


def is_address(place: object) -> bool:
    """Whether a text or path is an address such as ``s3://bucket/x``.

    Examples
    --------
    >>> is_address("s3://bucket/x"), is_address("/data/x"), is_address("s3:/bucket/x"), is_address("C:/x")
    (True, False, True, False)
    """
    return _ADDRESS.match(str(place)) is not None


def address_of(place: str | Path) -> str:
    """Return an address as it was written: a `Path` has lost one of its slashes.

    Examples
    --------
    >>> address_of(Path("s3://bucket/x/")), address_of("S3://bucket/x")
    ('s3://bucket/x', 's3://bucket/x')
    """
    text = str(place)
    found = _ADDRESS.match(text)
    return text.rstrip("/") if found is None else f"{found[1].lower()}://{text[found.end() :].rstrip('/')}"


def absolute(place: str | Path) -> str:
    """Return a path as an absolute one, an address as it is."""
    return address_of(place) if is_address(place) else str(Path(place).absolute())


def below(place: str | Path, name: str) -> str:
    """Return a place below another one."""
    return f"{address_of(place)}/{name}" if is_address(place) else str(Path(place) / name)


Place: TypeAlias = str | Path | Store
"""Where files are: a folder, an address, or a store."""


def store_of(place: Place, storage: Storage = NO_STORAGE) -> Store:
    """Return the store at a folder or address; nothing is asked or made.

    Parameters
    ----------
    place
        A folder, or an address: ``s3://bucket/x``, ``gs://…``, ``az://…``; ``s3a://`` and ``abfss://`` are the same
        places. A store is returned as it is.
    storage
        How an object store is reached.

    Raises
    ------
    UsageError
        If it is an address of another kind, or without a bucket.
    MissingError
        If it is one, and obstore is not installed.
    """
    if isinstance(place, Store):
        return place
    if not is_address(place):
        return FileStore(place)
    from cumulus.durable.object_store import ObjectStore

    return ObjectStore(address_of(place), storage)


def read_parquet(store: Store, name: str, **options: Any) -> pa.Table:
    """Return a Parquet file of a store as a table; `options` are those of `pyarrow.parquet.read_table`.

    Raises
    ------
    OSError, pyarrow.ArrowException
        If it cannot be read.
    """
    import pyarrow.parquet as pq

    return pq.read_table(store.open(name), partitioning=None, **options)
