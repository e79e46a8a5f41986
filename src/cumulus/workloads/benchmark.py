"""A benchmark as data: its tables, and its queries as one SQL file each.

`tpch` is one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from cumulus.catalog import Column, ForeignKey, Relation
from cumulus.catalog.types import SqlType, arrow_type
from cumulus.errors import UnknownNameError, UsageError

KEYS = ("none", "primary", "foreign", "rely")
"""What a script may declare: no keys, primary keys, foreign keys too, or both trusted."""

COLUMNS = ("all", "used")
"""Which columns a table has: the benchmark's, or those that the query reads and the primary key."""


def relation(
    name: str, columns: str, types: Mapping[str, SqlType], key: tuple[str, ...] = (), references: Mapping[str, str] = {}
) -> Relation:
    """Return a table from a short description; all its columns are NOT NULL.

    Parameters
    ----------
    columns
        ``"a int, b text"``: names and the keys of `types`.
    types
        What the words for types mean.
    key
        The primary key; the first column if empty.
    references
        Columns (separated by a space) → ``"parent column …"``.

    Examples
    --------
    >>> from cumulus.catalog.types import INTEGER
    >>> made = relation("r", "a int, b int", {"int": INTEGER}, references={"b": "s k"})
    >>> made.key, made.foreign_keys[0].parent, made.foreign_keys[0].parent_columns
    (('a',), 's', ('k',))
    """
    made = tuple(
        Column(column, types[kind], not_null=True) for column, kind in (each.split() for each in columns.split(", "))
    )
    foreign = []
    for child, parent in references.items():
        parent_name, *parent_columns = parent.split()
        foreign.append(ForeignKey(tuple(child.split()), parent_name, tuple(parent_columns)))
    return Relation(name, made, key=key or (made[0].name,), foreign_keys=tuple(foreign))


@dataclass(frozen=True)
class Benchmark:
    """Tables and queries.

    Parameters
    ----------
    tables
        Name → relation with all its keys, parents before children.
    queries
        Their names, in the benchmark's order; each is one view of its own name.
    folder
        Where ``<query>.sql`` is.
    """

    tables: dict[str, Relation]
    queries: tuple[str, ...]
    folder: Path

    def view(self, query: str) -> str:
        """Return the CREATE VIEW statement of `query`, with its comment.

        Raises
        ------
        UnknownNameError
            `query` is not one of `queries`.
        """
        if query not in self.queries:
            raise UnknownNameError(f"there is no query {query!r}", hint=f"There are {', '.join(self.queries)}.")
        return _text(self.folder / f"{query}.sql")

    def query_columns(self, query: str, columns: str = "all") -> dict[str, tuple[str, ...]]:
        """Return table → columns for the tables that `query` reads, parents first; `columns` is one of `COLUMNS`."""
        one_of(columns, COLUMNS, "columns")
        words = set(re.findall(r"\w+", re.sub(r"--.*", "", self.view(query))))
        found = {}
        for name, table in self.tables.items():
            if name in words:
                wanted = table.column_names if columns == "all" else {*words, *table.key}
                found[name] = tuple(column for column in table.column_names if column in wanted)
        return found

    def sql(self, query: str, *, columns: str = "all", keys: str = "primary", static: tuple[str, ...] = ()) -> str:
        """Return a whole script for `query`: CREATE TABLE for what it reads, and its view.

        Parameters
        ----------
        columns
            One of `COLUMNS`.
        keys
            One of `KEYS`. ``foreign`` and ``rely`` hold only for streams that bring parents first.
        static
            Tables declared static: loaded before the stream. Those that the query does not read are passed over.

        Examples
        --------
        >>> from cumulus.workloads.tpch import BENCHMARK
        >>> print(BENCHMARK.sql("q6", columns="used", keys="rely").split(chr(10) * 2)[0])
        CREATE TABLE lineitem (
          l_orderkey BIGINT NOT NULL,
          l_linenumber INTEGER NOT NULL,
          l_quantity DECIMAL(15,2) NOT NULL,
          l_extendedprice DECIMAL(15,2) NOT NULL,
          l_discount DECIMAL(15,2) NOT NULL,
          l_shipdate DATE NOT NULL,
          PRIMARY KEY (l_orderkey, l_linenumber) RELY
        );
        """
        return self.script((query,), self.query_columns(query, columns), keys=keys, static=static)

    def script(
        self,
        queries: Sequence[str],
        columns: Mapping[str, tuple[str, ...]],
        *,
        keys: str = "primary",
        static: tuple[str, ...] = (),
    ) -> str:
        """Return one script for several queries: CREATE TABLE for each table of `columns` with these, and the views."""
        one_of(keys, KEYS, "keys")
        for name in static:
            one_of(name, tuple(self.tables), "static")
        tables = [_create(self.tables[name], columns, keys, name in static) for name in columns]
        return "\n\n".join([*tables, *map(self.view, queries)])

    def schema(self, table: str) -> pa.Schema:
        """Return the Arrow schema of `table`."""
        fields = []
        for column in self.tables[table].columns:
            assert column.type is not None
            fields.append((column.name, arrow_type(column.type)))
        return pa.schema(fields)


@lru_cache(maxsize=64)
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _create(table: Relation, used: Mapping[str, tuple[str, ...]], keys: str, static: bool) -> str:
    rely = " RELY" if keys == "rely" else ""
    columns = used[table.name]
    lines = [f"{column.name} {column.type} NOT NULL" for column in table.columns if column.name in columns]
    if keys != "none":
        lines.append(f"PRIMARY KEY ({', '.join(table.key)}){rely}")
    if keys in ("foreign", "rely"):
        lines.extend(
            f"FOREIGN KEY ({', '.join(key.columns)}) REFERENCES {key.parent} ({', '.join(key.parent_columns)}){rely}"
            for key in table.foreign_keys
            if key.parent in used and set(key.columns) <= set(columns)
        )
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {table.name} (\n  {body}\n){' WITH (static = true)' if static else ''};"


def one_of(value: str, choices: tuple[str, ...], name: str) -> None:
    """Raise UsageError unless `value`, given for `name`, is one of `choices`."""
    if value not in choices:
        raise UsageError(f"{name} is {value!r}", hint=f"It can be {', '.join(choices)}.")
