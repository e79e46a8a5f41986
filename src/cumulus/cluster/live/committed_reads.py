"""When rows are committed, and how old what is committed may be."""

from __future__ import annotations

import time

from cumulus.cluster.live.links import ClientLinks
from cumulus.durable.store import Place
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.trigger import parse_trigger
from cumulus.errors import DelayError, UsageError
from cumulus.hosts import WriteReceipt


def not_committed(home: Place) -> DelayError:
    """Return what to say where no epoch is committed yet."""
    return DelayError(f"{home}: no epoch is committed yet", hint="Wait for one: after=token.")


def wait_until_committed(links: ClientLinks, home: Place, token: WriteReceipt, timeout_s: float) -> None:
    """Wait until the rows of a token are in the committed views.

    Parameters
    ----------
    home
        The output of the cluster.
    timeout_s
        How long to wait.

    Raises
    ------
    UsageError
        If it is no token.
    DelayError
        If they are not in time.
    """
    if not isinstance(token, WriteReceipt):
        raise UsageError(
            f"after={token!r} is no receipt of a write", hint="Give what insert, delete or upsert has returned."
        )

    def is_committed() -> bool:
        manifest = newest_manifest(home)
        return manifest is not None and manifest.snapshot >= token.epoch

    links.wait(
        is_committed,
        time.monotonic() + timeout_s,
        f"{home}: epoch {token.epoch} was not committed within {timeout_s:g} s",
        f"See how it is: cumulus cluster status {home}. Or give it more time: timeout_s=.",
    )


def check_staleness(behind_s: float, most: str) -> None:
    """Check that something has waited for its commit for no longer than may be.

    Raises
    ------
    UsageError
        If `most` is no time.
    DelayError
        If it has waited for longer.
    """
    try:
        most_s = parse_trigger(most).every_s
    except UsageError:
        most_s = None
    if most_s is None:
        raise UsageError(f"max_staleness={most!r} is no time", hint="Write such as 2s or 500ms.")
    if behind_s > most_s:
        raise DelayError(
            f"the committed rows are {behind_s:.1f} s old, more than {most}",
            hint='Allow more, or read="tentative".',
        )
