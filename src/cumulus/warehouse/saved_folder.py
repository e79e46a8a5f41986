"""A warehouse in a folder: program, maps, and a manifest.

The maps of the native engine are one file, as they lie in memory, and a header (`cumulus.engine.native.values.blocks`);
those of the interpreter, and any where that is wanted, are Arrow files. The manifest is what counts: it names the data
folder and the hashes of the files in it, but for that of the blocks, whose checksums the header has. Saving writes a
new data folder, then replaces the manifest by renaming, then removes the old data; whenever it is killed, the manifest
names files that are whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus import m3
from cumulus.catalog.dialect import FOLLOWED, UNRECORDED, warn_if_changed
from cumulus.durable.files import open_synced
from cumulus.durable.folders import lock_file, refuse_remote, sync_folder
from cumulus.engine.native.values.blocks import RawMaps, restore_all
from cumulus.engine.protocol import Engine
from cumulus.engine.snapshot import dump, restore
from cumulus.errors import CumulusError, LockedError, MismatchError, StoreError, UsageError
from cumulus.m3.program import Program
from cumulus.version import VERSION

PORTABLE_FORMAT, RAW_FORMAT = 1, 3  # 2 had no word for NULL apart from the least number
FORMS = ("auto", "portable")
"""What to save maps as: as they lie in memory where the engine can, or always as Arrow files."""
MANIFEST, LOCK = "warehouse.json", "lock"
RAW, HEADER = "maps.raw", "maps.json"
_DATA = re.compile("data-[0-9a-f]{32}")
_DAMAGED = "Restore the folder from a copy, or build the warehouse again."


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a folder holds beside the maps.

    Parameters
    ----------
    program
        The program as M3 text.
    state
        Options and counts of the warehouse, as JSON values.
    folder
        Where the maps are.
    raw
        The maps, if they are there as they lie in memory.
    """

    program: str
    state: dict[str, Any]
    folder: Path
    raw: RawMaps | None


def save(path: str | Path, program: Program, engine: Engine, state: dict[str, Any], form: str = "auto") -> None:
    """Write a warehouse to the folder `path`, new or saved to before, in one of `FORMS`.

    Raises
    ------
    StoreError
        If the folder holds something else, or cannot be written.
    LockedError
        If another process saves to it now.
    UsageError
        If there is no such form.
    """
    if form not in FORMS:
        raise UsageError(f"format={form!r}", hint=f"format is {' or '.join(map(repr, FORMS))}.")
    root = _folder(path)
    data = root / f"data-{uuid.uuid4().hex}"
    try:
        if root.exists() and not (root / MANIFEST).exists() and not all(map(_is_ours, root.iterdir())):
            raise StoreError(f"{root} is not empty, and no warehouse", hint="Give a new folder.")
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root):
            try:
                manifest = _write_data(data, program, engine, state, form)
                _write(root / f"{MANIFEST}.new", lambda file: file.write(json.dumps(manifest, indent=1).encode()))
            except BaseException:
                shutil.rmtree(data, ignore_errors=True)  # a disk that is full does not stay so for us
                raise
            os.replace(root / f"{MANIFEST}.new", root / MANIFEST)
            sync_folder(root)
            for other in root.glob("data-*"):
                if other != data and _is_ours(other):
                    shutil.rmtree(other, ignore_errors=True)  # what a kill leaves here, the next save removes
    except OSError as problem:
        raise StoreError(f"{root} cannot be written: {problem}", hint="Check its permissions and the disk.") from None


def _folder(path: str | Path) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"a folder is given by its path, not by {path!r}", hint="Pass a str or a Path.")
    refuse_remote(os.fspath(path), "")
    return Path(path)


def _is_ours(path: Path) -> bool:
    """Whether a save has left a file or folder: a killed first one leaves no manifest."""
    return path.name in (MANIFEST, f"{MANIFEST}.new", LOCK) or _DATA.fullmatch(path.name) is not None


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Let nobody else save here: each removes the data that are not its own."""
    lock = lock_file(root / LOCK)
    if lock is None:
        raise LockedError(f"{root} is being saved to by another process", hint="Wait until it has ended.")
    with lock:
        yield


def _write_data(data: Path, program: Program, engine: Engine, state: dict[str, Any], form: str) -> dict[str, Any]:
    """Write everything but the manifest; return the manifest."""
    data.mkdir()
    files = {
        "program.m3": _write(data / "program.m3", lambda file: file.write(str(program).encode())),
        "state.json": _write(data / "state.json", lambda file: file.write(json.dumps(state).encode())),
    }
    headers: list[dict[str, Any] | None] = []
    if form != "portable":
        with open_synced(data / RAW) as file:
            headers.append(engine.save_raw(file))
    if headers and headers[0] is not None:
        text = json.dumps(headers[0]).encode()
        files[HEADER] = _write(data / HEADER, lambda file: file.write(text))
    else:
        (data / RAW).unlink(missing_ok=True)
        for place, definition in enumerate(program.maps):
            write = partial(_write_table, dump(engine, definition.name))
            files[f"map-{place}.arrow"] = _write(data / f"map-{place}.arrow", write)
    sync_folder(data)
    number = RAW_FORMAT if HEADER in files else PORTABLE_FORMAT
    return {"format": number, "version": VERSION, "dialect": FOLLOWED, "data": data.name, "files": files}


def _write_table(table: pa.Table, file: Any) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _write(path: Path, write: Callable[[Any], object]) -> str:
    """Write a file down to the disk; return its hash."""
    with open_synced(path) as file:
        write(file)
    return _hash(path)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def open_saved(path: str | Path) -> SavedState:
    """Read and check the manifest of a folder, and the hash or the checksums of every file.

    Raises
    ------
    StoreError
        If there is no warehouse, or a file is missing or damaged.
    MismatchError
        If another version of Cumulus wrote it in a format that this one does not know.
    """
    root = _folder(path)
    while True:
        try:
            manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
            try:
                return _open_data(root, manifest)
            except FileNotFoundError:
                # Somebody may just have saved, and removed the data that the manifest named before.
                if json.loads((root / MANIFEST).read_text(encoding="utf-8")) == manifest:
                    raise
        except FileNotFoundError as problem:
            raise StoreError(f"{root} holds no whole warehouse: {problem.filename} is missing", hint=_DAMAGED) from None
        except OSError as problem:
            raise StoreError(f"{root} cannot be read: {problem}", hint="Check its permissions.") from None
        except (KeyError, TypeError, ValueError) as problem:
            raise StoreError(f"{root / MANIFEST} is damaged: {problem!r}", hint=_DAMAGED) from None


def _open_data(root: Path, manifest: dict[str, Any]) -> SavedState:
    kind, written_by = manifest["format"], manifest["version"]
    if kind not in (PORTABLE_FORMAT, RAW_FORMAT):
        raise MismatchError(
            f"{root} was written by Cumulus {written_by} in format {kind}, this is {VERSION} with format {RAW_FORMAT}",
            hint="Load it with the version that wrote it.",
        )
    data = root / manifest["data"]
    for name, digest in manifest["files"].items():
        if _hash(data / name) != digest:
            raise StoreError(f"{data / name} is damaged: its hash is not the manifest's", hint=_DAMAGED)
    text = (data / "program.m3").read_text(encoding="utf-8")
    warn_if_changed(root, manifest.get("dialect", UNRECORDED), text)
    state = json.loads((data / "state.json").read_text(encoding="utf-8"))
    if kind == PORTABLE_FORMAT:
        return SavedState(text, state, data, None)
    return SavedState(text, state, data, RawMaps(data / RAW, json.loads((data / HEADER).read_text(encoding="utf-8"))))


@contextmanager
def known_program(saved: SavedState, path: str | Path) -> Iterator[Program]:
    """Give the program that was saved; what goes wrong in the block says that this version cannot run it.

    Raises
    ------
    MismatchError
        But for a UsageError: that is of the functions, or of the engine.
    """
    try:
        yield m3.parse(saved.program, name="program.m3")
    except UsageError:
        raise
    except (CumulusError, KeyError) as problem:
        raise MismatchError(
            f"{path}: this version cannot run the saved program: {problem}",
            hint="Load it with the version that saved it.",
        ) from problem


def restore_maps(saved: SavedState, program: Program, engine: Engine) -> None:
    """Fill the maps of `engine` from a folder that `open_saved` has checked.

    Raises
    ------
    MismatchError
        If the maps are those of another program.
    StoreError
        If a file cannot be read.
    MemoryLimitError
        If the engine has no room for them.
    """
    if saved.raw is not None:
        restore_all(engine, saved.raw)
        return
    for place, definition in enumerate(program.maps):
        file = saved.folder / f"map-{place}.arrow"
        try:
            table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        except (OSError, pa.ArrowException) as problem:
            raise StoreError(f"{file} cannot be read: {problem}", hint=_DAMAGED) from None
        restore(engine, definition.name, table)
