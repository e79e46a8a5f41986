"""Clusters whose machines run in the actors of a Ray cluster: `host`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cumulus.cluster.hosted.ray_hosts import host

__all__ = ["host"]


def __getattr__(name: str) -> Any:
    """Import late: what it names is imported with the cluster."""
    if name != "host":
        raise AttributeError(name)
    from cumulus.cluster.hosted.ray_hosts import host

    return host
