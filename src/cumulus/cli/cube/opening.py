"""From what a command names to what answers selections: a script with data, a saved warehouse, an output folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cumulus.errors import InputError, UsageError

if TYPE_CHECKING:
    from cumulus import Warehouse
    from cumulus.olap import CubeSource
    from cumulus.scalars.user import Functions

Source = Annotated[
    str, typer.Argument(help="A .sql or .m3 file, a folder of save(), or the --out of a run.", show_default=False)
]
CubeName = Annotated[str, typer.Argument(help="A cube, or a view that groups.", show_default=False)]
Data = Annotated[
    list[str] | None,
    typer.Option("--from", help="The rows for a script: DIR, or NAME=PATH, as of run.", show_default=False),
]


def open_source(source: str, data: Sequence[str] | None, functions: Functions | None) -> CubeSource:
    """Return what answers selections.

    Raises
    ------
    InputError, UsageError
        If it holds no cubes.
    """
    from cumulus.cubes import source_of

    path = Path(source)
    if path.suffix in (".sql", ".m3") and not path.is_dir():
        return source_of(_filled(path, data or (), functions))
    if data:
        raise UsageError(f"--from: {source} has its rows already", hint="Give --from with a script alone.")
    return source_of(source, functions)


def _filled(script: Path, data: Sequence[str], functions: Functions | None) -> Warehouse:
    """Return the warehouse of a script, with the rows of the files that `data` names."""
    from cumulus import Warehouse
    from cumulus.epochs.arrivals import list_files
    from cumulus.epochs.source_files import file_path
    from cumulus.epochs.sources import sources_from
    from cumulus.m3.dataflow import parents_first

    warehouse = Warehouse(script, functions=functions, keep="all")
    if not data:
        return warehouse
    files: dict[str, list[Path]] = {}
    for each in sources_from(list(data), warehouse.program):
        if each.format == "debezium" or each.view:
            what = "changes of a view" if each.view else "change records"
            raise InputError(f"{each.path}: {what} are not read here", hint="Make a run of them: cumulus run.")
        files[each.relation] = [Path(file_path(each, name)) for name in list_files(each)]
    if all(len(each) == 1 for each in files.values()):
        warehouse.fill({name: only for name, (only,) in files.items()})
        return warehouse
    with warehouse.transaction():
        for relation in parents_first(warehouse.program):
            for file in files.get(relation.name, ()):
                warehouse.insert(relation.name, file)
    return warehouse
