"""The Data Cyclotron: a ring of nodes, between which hot chunks of tables go round; each node runs DuckDB.

A package of its own, which uses the lower rooms of `cumulus`: catalog, durable, transport. `cumulus` finds its
command and its client by entry points, and imports nothing of it.

`on_spark` and `on_ray` start rings whose nodes run where an engine has workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cumulus_ring.hosted.hosted_ring import on_ray, on_spark

__all__ = ["on_ray", "on_spark"]


def __getattr__(name: str) -> Any:
    """Import late: what it names brings Arrow and DuckDB along."""
    if name not in __all__:
        raise AttributeError(name)
    from cumulus_ring.hosted import hosted_ring

    return getattr(hosted_ring, name)
