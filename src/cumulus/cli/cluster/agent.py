"""`cumulus cluster agent`."""

from __future__ import annotations

from pathlib import Path

import typer


def agent(
    listen: str = typer.Option(..., "--listen", help="HOST:PORT at which it listens, and its machines at the host."),
    secret_file: Path = typer.Option(..., "--secret-file", help="A file with what a supervisor must know."),
    data: Path = typer.Option(..., "--data", help="Folder for the state of machines; made if it is not there."),
    tls_cert: Path | None = typer.Option(None, help="The certificate (PEM) of this host, for the name in --host."),
    tls_key: Path | None = typer.Option(None, help="Its key (PEM)."),
    tls_ca: Path | None = typer.Option(None, help="Certificates (PEM) to trust: those of the other hosts."),
    insecure: bool = typer.Option(False, "--insecure", help="Let what goes between hosts be read on the way."),
) -> None:
    """Let a cluster run machines on this host, until Ctrl-C: cumulus cluster start … --host HOST:PORT.

    Example: cumulus cluster agent --listen h2:7070 --secret-file agents.secret --data state/
    """
    import asyncio

    from cumulus.cluster.processes.cluster_hosts import address_of, check_encrypted
    from cumulus.cluster.processes.machine_modules import MACHINE_MODULES
    from cumulus.errors import UsageError
    from cumulus.interrupts import Interrupt
    from cumulus.transport.agents.agent import Agent, AgentSettings
    from cumulus.transport.secret_file import read_secret
    from cumulus.transport.tls import TlsFiles

    address = address_of(listen, "--listen")
    files = [each for each in (tls_cert, tls_key, tls_ca) if each is not None]
    if len(files) not in (0, 3):
        raise UsageError("--tls-cert, --tls-key and --tls-ca go together", hint="Give all three, or none.")
    check_encrypted(address, is_encrypted=bool(files), insecure=insecure, option="--listen")
    tls = None
    if tls_cert is not None and tls_key is not None and tls_ca is not None:
        tls = TlsFiles(str(tls_ca.absolute()), str(tls_cert.absolute()), str(tls_key.absolute()))
        tls.client_context()

    def say(line: str) -> None:
        print(line, flush=True)

    made = Agent(AgentSettings(address, read_secret(secret_file), data, tls, modules=MACHINE_MODULES), say)
    with Interrupt() as stop:
        asyncio.run(made.run(lambda: stop.wished, lambda at: say(f"{at[0]}:{at[1]}: the agent listens")))
