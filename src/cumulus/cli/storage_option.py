"""The option `--storage`, of commands that take addresses of object stores."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        help="NAME=VALUE for s3://, gs:// and az:// addresses: endpoint, region, allow_http, …; repeatable.",
        show_default=False,
    ),
]
