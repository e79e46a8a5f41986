"""What a shell talks to: a live warehouse, or the committed epochs of a run. Both answer the same few questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cumulus.errors import InputError
from cumulus.scalars.user import Functions

if TYPE_CHECKING:
    from cumulus.cli.shell.folder_target import FolderTarget
    from cumulus.cli.shell.warehouse_target import LiveTarget

Target: TypeAlias = "LiveTarget | FolderTarget"


def open_target(
    path: Path | None, *, engine: str = "auto", keep: str = "auto", functions: Functions | None = None
) -> Target:
    """Return what a path holds: a script, a saved warehouse, or the output folder of a run; no path is an empty one.

    Raises
    ------
    InputError
        If it is none of these.
    """
    from cumulus import Warehouse
    from cumulus.cli.shell.folder_target import FolderTarget
    from cumulus.cli.shell.warehouse_target import LiveTarget
    from cumulus.durable.folders import refuse_remote

    if path is None:
        return LiveTarget(Warehouse("", engine=engine, keep=keep, functions=functions), "an empty warehouse")
    refuse_remote(path, "")
    if path.is_dir():
        if (path / "cumulus.json").exists():
            return FolderTarget(path, functions)
        return LiveTarget(Warehouse.load(path, engine=engine, functions=functions), f"the warehouse saved in {path}")
    if path.is_file():
        return LiveTarget(Warehouse(path, engine=engine, keep=keep, functions=functions), str(path))
    raise InputError(
        f"there is no {path}", hint="Give a script (.sql or .m3), a folder that save() wrote, or the --out of a run."
    )
