"""The views of tests/compiler/views.sql, and the tables that they are over."""

from __future__ import annotations

from pathlib import Path

SCHEMA = """
CREATE TABLE r (a INT, b INT, c INT NOT NULL);
CREATE TABLE s (a INT, d INT);
CREATE TABLE t (d INT NOT NULL, e DOUBLE, f VARCHAR);
"""
VIEWS = [
    view.strip()
    for view in (Path(__file__).parents[1] / "compiler" / "views.sql").read_text(encoding="utf-8").split(";\n")
    if view.strip()
]
