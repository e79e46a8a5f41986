"""Cumulus keeps SQL aggregates exact while the data changes."""

from cumulus.version import VERSION

__version__ = VERSION

__all__ = ["__version__"]
