"""A warehouse in a folder: program, maps as Arrow files, and a manifest.

The manifest is what counts: it names the data folder and the hash of every file in it. Saving writes a new data folder,
then replaces the manifest by renaming, then removes the old data; whenever it is killed, the manifest names files that
are whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.engine.protocol import Engine
from cumulus.engine.snapshot import dump, restore
from cumulus.errors import MismatchError, StoreError
from cumulus.m3.program import Program
from cumulus.version import VERSION

FORMAT = 1
MANIFEST = "warehouse.json"
_DAMAGED = "Restore the folder from a copy, or build the warehouse again."


@dataclass(frozen=True, slots=True)
class Saved:
    """What a folder holds beside the maps.

    Parameters
    ----------
    program
        The program as M3 text.
    state
        Options and counts of the warehouse, as JSON values.
    folder
        Where the maps are.
    """

    program: str
    state: dict[str, Any]
    folder: Path


def save(path: str | Path, program: Program, engine: Engine, state: dict[str, Any]) -> None:
    """Write a warehouse to the folder `path`, new or saved to before.

    Raises
    ------
    StoreError
        If the folder holds something else, or cannot be written.
    """
    root = Path(path)
    try:
        if root.exists() and any(root.iterdir()) and not (root / MANIFEST).exists():
            raise StoreError(f"{root} is not empty, and no warehouse", hint="Give a new folder.")
        root.mkdir(parents=True, exist_ok=True)
        data = f"data-{uuid.uuid4().hex}"
        (root / data).mkdir()
        text = str(program)
        files = {
            "program.m3": _write(root / data / "program.m3", lambda file: file.write(text.encode())),
            "state.json": _write(root / data / "state.json", lambda file: file.write(json.dumps(state).encode())),
        }
        for place, definition in enumerate(program.maps):
            table = dump(engine, definition.name)
            files[f"map-{place}.arrow"] = _write(root / data / f"map-{place}.arrow", _ipc(table))
        _sync(root / data)
        manifest = {"format": FORMAT, "version": VERSION, "data": data, "files": files}
        _write(root / f"{MANIFEST}.new", lambda file: file.write(json.dumps(manifest, indent=1).encode()))
        os.replace(root / f"{MANIFEST}.new", root / MANIFEST)
        _sync(root)
        for other in root.glob("data-*"):
            if other.name != data:
                shutil.rmtree(other, ignore_errors=True)  # what a kill leaves here, the next save removes
    except OSError as problem:
        raise StoreError(f"{root} cannot be written: {problem}", hint="Check its permissions and the disk.") from None


def _ipc(table: pa.Table) -> Callable[[Any], object]:
    def write(file: Any) -> None:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    return write


def _write(path: Path, write: Callable[[Any], object]) -> str:
    """Write a file down to the disk; return its hash."""
    with path.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    return _hash(path)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_saved(path: str | Path) -> Saved:
    """Read and check the manifest of a folder, and the hash of every file.

    Raises
    ------
    StoreError
        If there is no warehouse, or a file is missing or damaged.
    MismatchError
        If another version of Cumulus wrote it in a format that this one does not know.
    """
    root = Path(path)
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        found, written_by = manifest["format"], manifest["version"]
        if found != FORMAT:
            raise MismatchError(
                f"{root} was written by Cumulus {written_by} in format {found}, this is {VERSION} with format {FORMAT}",
                hint="Load it with the version that wrote it.",
            )
        data = root / manifest["data"]
        for name, digest in manifest["files"].items():
            if _hash(data / name) != digest:
                raise StoreError(f"{data / name} is damaged: its hash is not the manifest's", hint=_DAMAGED)
        text = (data / "program.m3").read_text(encoding="utf-8")
        return Saved(text, json.loads((data / "state.json").read_text(encoding="utf-8")), data)
    except FileNotFoundError as problem:
        raise StoreError(f"{root} holds no whole warehouse: {problem.filename} is missing", hint=_DAMAGED) from None
    except OSError as problem:
        raise StoreError(f"{root} cannot be read: {problem}", hint="Check its permissions.") from None
    except (KeyError, TypeError, ValueError) as problem:
        raise StoreError(f"{root / MANIFEST} is damaged: {problem!r}", hint=_DAMAGED) from None


def restore_maps(saved: Saved, program: Program, engine: Engine) -> None:
    """Fill the maps of `engine` from a folder that `open_saved` has checked.

    Raises
    ------
    MismatchError
        If the maps are those of another program.
    StoreError
        If a file cannot be read.
    """
    for place, definition in enumerate(program.maps):
        file = saved.folder / f"map-{place}.arrow"
        try:
            table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        except (OSError, pa.ArrowException) as problem:
            raise StoreError(f"{file} cannot be read: {problem}", hint=_DAMAGED) from None
        restore(engine, definition.name, table)
