"""`cumulus serve`: views behind a server, and who may ask it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from cumulus.cli.functions import FunctionPlaces, functions_in
from cumulus.errors import MissingError, UsageError
from cumulus.server.access import Role, UserFile
from cumulus.server.limits import Limits
from cumulus.server.settings import SyncPolicy


class _StartsByDefault(TyperGroup):
    """`cumulus serve FILE` is `cumulus serve start FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["start", *args]
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """Return the help of the group, and that of `start`, whose options are those of `cumulus serve FILE`."""
        start = self.commands["start"]
        info = start.make_context("start", [], parent=ctx, resilient_parsing=True)
        return (
            f"{super().get_help(ctx)}\n\n`cumulus serve` with a file or a folder is `start`:\n\n{start.get_help(info)}"
        )


serve = typer.Typer(
    name="serve",
    cls=_StartsByDefault,
    no_args_is_help=True,
    help="Views behind a server: `cumulus serve FILE.sql --data DIR` starts one.",
)
token = typer.Typer(name="token", no_args_is_help=True, help="Who may ask a server, and what.")
serve.add_typer(token)
_DATA = typer.Option(..., "--data", help="The folder of log and snapshots.", show_default=False)


@serve.command("start")
def start(
    source: Path = typer.Argument(
        ...,
        help="A script with tables and views, the output folder of a run, or the home of a running cluster.",
        show_default=False,
    ),
    data: Path | None = typer.Option(None, help="For a script: the folder of log and snapshots.", show_default=False),
    host: str = typer.Option("127.0.0.1", help="Where to listen."),
    port: int = typer.Option(8321, min=0, max=65535, help="0 takes a free one."),
    sync: SyncPolicy = typer.Option("always", help="When the log comes to the disk."),
    engine: str = typer.Option("auto", help="native, interpreter or auto."),
    keep: str = typer.Option("auto", help="Whose tables' rows a new folder keeps: auto, all or none."),
    functions: FunctionPlaces = None,
    memory: str = typer.Option("", help="How much the maps may take: 4GB, 50%; 80% if not given.", show_default=False),
    certificate: Path | None = typer.Option(None, help="For TLS: a PEM file.", show_default=False),
    private_key: Path | None = typer.Option(None, help="For TLS: a PEM file.", show_default=False),
    host_name: list[str] = typer.Option(
        [], help="A name by which it is asked, beside this machine's.", show_default=False
    ),
    insecure: bool = typer.Option(
        False, "--insecure", help="Listen beyond this machine without users, or without TLS: docs/security.md."
    ),
    access_log: str = typer.Option("", help="A file for a line of JSON a request; - prints them.", show_default=False),
    limit: list[str] = typer.Option([], help="Such as statement_s=10: docs/security.md has all.", show_default=False),
) -> None:
    """Keep the views of a script, durably, and answer over HTTP; or serve what a run or a cluster commits.

    Example: cumulus serve shop.sql --data shop-data
    """
    from cumulus.server.settings import ServerSettings

    try:
        from cumulus.server.opening import kind_of
        from cumulus.server.process import serve as run_server
    except ModuleNotFoundError as problem:
        raise MissingError(f"{problem.name} is not installed", hint="pip install 'cumulus-ivm[server]'") from None

    kind = kind_of(source)
    if kind == "warehouse" and data is None:
        raise UsageError("--data is missing", hint=f"Name a folder for the rows: cumulus serve {source} --data DIR.")
    if kind != "warehouse":
        given = {"data": data, "sync": sync != "always", "engine": engine != "auto", "keep": keep != "auto"}
        _refuse(source, kind, [name for name, value in {**given, "memory": memory}.items() if value])
    if kind == "cluster" and functions:
        raise UsageError(f"{source} is the home of a cluster, which has its functions", hint="Leave out --functions.")
    settings = ServerSettings(
        source if data is None else data,
        host,
        port,
        certificate,
        private_key,
        insecure,
        tuple(host_name),
        access_log,
        limits_of(limit),
        sync=sync,
        engine=engine,
        keep=keep,
        memory_limit=memory or None,
        functions=functions_in(functions),
    )
    run_server(source, settings, lambda address: typer.echo(f"serving {source}{_KINDS[kind]} at {address}"))


_KINDS = {"warehouse": "", "folder": ", the epochs of a run,", "cluster": ", a running cluster,"}


def _refuse(source: Path, kind: str, options: list[str]) -> None:
    """Raise UsageError for options that are for a script alone."""
    if options:
        what = "the output folder of a run" if kind == "folder" else "the home of a cluster"
        raise UsageError(
            f"{source} is {what}: {', '.join(f'--{name}' for name in options)} is for a script, whose rows are kept",
            hint=f"Leave it out: cumulus serve {source}.",
        )


@serve.command("snapshot")
def snapshot(
    address: str = typer.Argument(..., help="Such as http://127.0.0.1:8321.", show_default=False),
    secret: str = typer.Option("", "--token", envvar="CUMULUS_TOKEN", help="An admin's.", show_default=False),
) -> None:
    """Let a running server write a snapshot.

    Example: cumulus serve snapshot http://127.0.0.1:8321
    """
    from cumulus.connecting import connect

    with connect(address, token=secret) as client:
        typer.echo(f"a snapshot after transaction {client.ask('POST', '/v1/snapshot')['at']}")


@serve.command("streams")
def streams(
    address: str = typer.Argument(..., help="Such as http://127.0.0.1:8321.", show_default=False),
    end: bool = typer.Option(False, "--end", help="End them: give --id, --user or --view."),
    id: int = typer.Option(0, "--id", help="One of those listed.", show_default=False),
    user: str = typer.Option("", "--user", help="A user's.", show_default=False),
    view: str = typer.Option("", "--view", help="Those that follow a view.", show_default=False),
    secret: str = typer.Option("", "--token", envvar="CUMULUS_TOKEN", help="An admin's.", show_default=False),
) -> None:
    """List the streams, sockets and requests under way at a server, or end some of them.

    Example: cumulus serve streams http://127.0.0.1:8321 --end --view sales
    """
    from cumulus.connecting import connect

    wanted = {name: value for name, value in {"id": id, "user": user, "view": view}.items() if value}
    if end and not wanted:
        raise UsageError("--end does not say what", hint="Give --id, --user or --view.")
    with connect(address, token=secret) as client:
        if end:
            typer.echo(
                f"ended: {', '.join(map(str, client.ask('POST', '/v1/streams/end', wanted)['ended'])) or 'none'}"
            )
            return
        for each in client.ask("GET", "/v1/streams")["streams"]:
            if all(each[name] == value for name, value in wanted.items()):
                about = each["view"] or each["address"]
                typer.echo(
                    f"{each['id']}  {each['kind']}  {each['user']}  {about}  {each['peer']}  {each['seconds']} s"
                )


@token.command("add")
def add_token(
    name: str = typer.Argument(..., help="Whose it is.", show_default=False),
    data: Path = _DATA,
    role: Role = typer.Option(Role.READER, help="What may be done with it."),
    views: str = typer.Option("", help="The only views there are for it: sales,revenue.", show_default=False),
) -> None:
    """Make a token, and show it this once.

    Example: cumulus serve token add grafana --data shop-data --role reader --views sales,revenue
    """
    only = tuple(view.strip() for view in views.split(",")) if views else None
    typer.echo(UserFile(data).add(name, role, only))


@token.command("list")
def list_tokens(data: Path = _DATA) -> None:
    """List who has a token.

    Example: cumulus serve token list --data shop-data
    """
    for user in UserFile(data).users:
        typer.echo(f"{user.name}  {user.role}  {'all views' if user.views is None else ', '.join(user.views)}")


@token.command("remove")
def remove_token(name: str = typer.Argument(..., show_default=False), data: Path = _DATA) -> None:
    """Take a token away; what goes on with it at a running server ends within a second.

    Example: cumulus serve token remove grafana --data shop-data
    """
    UserFile(data).remove(name)


def limits_of(texts: list[str]) -> Limits:
    """Return the limits of a server with some that are given, as `name=number`.

    Examples
    --------
    >>> limits_of(["statement_s=2.5", "result_rows=none"]).statement_s
    2.5
    """
    known = {field.name: field for field in fields(Limits)}
    given: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        hint = f"Limits: {', '.join(known)}."
        if name not in known:
            raise UsageError(f"there is no limit {name!r}", hint=hint)
        try:
            may_be_none = "None" in str(known[name].type)
            is_none = may_be_none and value.lower() == "none"
            given[name] = None if is_none else float(value) if name.endswith("_s") else int(value)
        except ValueError:
            raise UsageError(f"{text!r} gives {name} no number", hint=hint) from None
    return Limits(**given)
