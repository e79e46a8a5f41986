"""Options that several commands have.

`--storage` is of those that take addresses of object stores, `--dispatch`, `--arity` and `--gc` are of those that plan
or run a cluster.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from cumulus.cluster.planning.central_options import ARITY_HELP, DISPATCH_HELP, GC_HELP

StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        help="NAME=VALUE for s3://, gs:// and az:// addresses: endpoint, region, allow_http, …; repeatable.",
        show_default=False,
    ),
]
DispatchChoice: TypeAlias = Annotated[str, typer.Option("--dispatch", help=DISPATCH_HELP, show_default=False)]
ArityChoice: TypeAlias = Annotated[int | None, typer.Option("--arity", help=ARITY_HELP, show_default=False)]
GcChoice: TypeAlias = Annotated[str, typer.Option("--gc", help=GC_HELP, show_default=False)]
PublishedTables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--publish",
        help="TABLE[,TABLE…], all or none: write the rows of tables beside the views; as before if not given.",
        show_default=False,
    ),
]
