"""What other packages add to the product, found by entry points: commands, and clients that `cumulus.connect` opens."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

COMMANDS, CLIENTS = "cumulus.commands", "cumulus.clients"
"""Name → a function or a group of commands of Typer; name → a function from a home or address and the file of a secret
to its client, None for others'."""


def extensions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in the order of names; nothing is imported yet.

    Examples
    --------
    >>> "ring" in extensions(COMMANDS)
    True
    """
    return {each.name: each for each in sorted(entry_points(group=group), key=lambda each: each.name)}
