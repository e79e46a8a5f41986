"""The folders of a view inside an output folder: any name works, and none leads out of it."""

from __future__ import annotations

from cumulus.durable.folders import file_name

QUARANTINE, PARTS = "quarantine", "parts"
"""Folders of ``data`` that belong to no view."""


def view_folder(view: str) -> str:
    """Return the name of a view's folder in ``data``, ``views`` and ``latest``.

    Examples
    --------
    >>> view_folder("sales"), view_folder("Parts"), view_folder("../evil")
    ('sales', '%50arts', '%2E.%2Fevil')
    """
    return file_name(view, taken=(QUARANTINE, PARTS))


def data_path(view: str, file: str) -> str:
    """Return the path of a file of a view, relative to the output folder."""
    return f"data/{view_folder(view)}/{file}"
