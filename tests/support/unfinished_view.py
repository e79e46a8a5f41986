"""A view that divides by zero while there are two rows."""

from __future__ import annotations

from pathlib import Path

from support.orders_stream import json_lines

SQL = """
CREATE TABLE r (a INT);
CREATE VIEW share AS SELECT 10 // (COUNT(*) - 2) AS s FROM r;
CREATE VIEW plain AS SELECT COUNT(*) AS n FROM r;
"""

ROWS = [(-10, 1), (-10, 2), (10, 3)]
"""What `share` and `plain` show after each epoch; in the second, `share` cannot be computed."""


def write_rows(folder: Path, epochs: int) -> None:
    """Write one row in each epoch."""
    for epoch in range(1, epochs + 1):
        json_lines(folder / "r" / f"{epoch}.json", [{"a": epoch}])
