"""What `cumulus.cluster.live.daemon.start` starts; it is told on standard input which cluster to run.

The process from which machines are forked starts first: it imports what they need while this one imports the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module

from cumulus.cluster.processes.machine_modules import forks_beside


def main() -> None:
    """Run the cluster until it is stopped."""
    given = json.load(sys.stdin)
    tell = partial(print, file=sys.stderr, flush=True)
    with forks_beside(tell, has_hosts=given["hosts"] is not None) as forks:
        if not given["functions"]:
            from cumulus.cluster.processes.import_without_pandas import import_pyarrow_alone

            import_pyarrow_alone()
        from cumulus.cluster.live.address import LOG, STATE
        from cumulus.cluster.live.daemon import live_settings, serve
        from cumulus.transport.detached import run_detached

        live = live_settings(given)

        def work(is_stopped: Callable[[], bool], on_up: Callable[[], None], note: Callable[[str], None]) -> None:
            def up() -> None:
                on_up()
                import_module("cumulus.engine.native.engine")  # with which a resize reads what machines have

            serve(live, is_stopped, up, lambda _: None, note, forks)

        run_detached(work, f"{STATE}/{LOG} in the home")


if __name__ == "__main__":
    main()
