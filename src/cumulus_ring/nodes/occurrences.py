"""Where a query mentions tables: each mention is told apart from the others before DuckDB plans.

DuckDB itself parses (`json_serialize_sql`) and writes the text again. In between, every mention of a table of the ring
becomes an *occurrence* with a number and a name of its own, and keeps for the query the names of the table and of its
columns. So a plan says which mention of a table needs which columns, and a query that joins a table with itself asks
for two things. All that reads anything but tables of the ring is refused here, by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import duckdb
import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.catalog.names import folded
from cumulus.errors import BindError, SqlError, SqlSyntaxError, UnsupportedError
from cumulus.views.duckdb_sql.trees import Tree, check_characters, parsed_whole, printed
from cumulus_ring.chunks.catalogue import PublishedTable

"""A part of a query as DuckDB says it in JSON."""


class RingTable(Protocol):
    """A table whose chunks are on the ring."""

    @property
    def name(self) -> str:
        """As it was given."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def rows(self) -> int:
        """How many rows it has."""


TablesByName: TypeAlias = Mapping[str, RingTable | PublishedTable]
"""What queries may name: folded name → table."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A mention of a table in a query.

    Parameters
    ----------
    name
        What it is called in the rewritten text.
    alias
        What the query calls it.
    is_shared
        It stands in a WITH that is read more than once: DuckDB may scan it for each of its readers, and no condition
        of one of them holds for all.
    """

    number: int
    table: RingTable
    name: str
    alias: str
    is_shared: bool


@dataclass(frozen=True, slots=True)
class RewrittenQuery:
    """A SELECT whose mentions of tables have been told apart."""

    sql: str
    occurrences: tuple[Occurrence, ...]
    locations: Mapping[str, tuple[int, int]]
    """Folded column name → where the query first mentions it: line and column."""


def rewrite(connection: duckdb.DuckDBPyConnection, sql: str, tables: TablesByName) -> RewrittenQuery:
    """Tell the mentions of tables in one SELECT apart.

    Parameters
    ----------
    tables
        Folded name → table.

    Raises
    ------
    SqlSyntaxError
        The text is not SQL.
    BindError
        An unknown table.
    UnsupportedError
        Anything but one SELECT, parameters, or functions that read what is not on the ring.
    """
    tree, walk = find_mentions(connection, sql, tables)
    mark = "__"
    while any(mark in name for name in walk.common_names):
        mark += "_"  # a WITH of an occurrence's name would hide it
    shared = {number for readers in walk.readers.values() if readers.count > 1 for number in readers.inside}
    found = []
    for number, (part, table) in enumerate(walk.mentions):
        name = f"{table.name}{mark}{number}"
        part["table_name"], part["qualified_name"] = name, {"path": [name]}
        found.append(Occurrence(number, table, name, part["alias"], number in shared))
    text = printed(connection, tree)
    if not same_meaning(connection, text, tree):
        raise UnsupportedError(
            "DuckDB cannot say this query again with the same meaning",
            hint="Put what stands in parentheses into a FROM: SELECT * FROM (SELECT …).",
            feature="query in parentheses",
        )
    return RewrittenQuery(text, tuple(found), walk.locations)


def find_mentions(connection: duckdb.DuckDBPyConnection, sql: str, tables: TablesByName) -> tuple[Tree, Mentions]:
    """Parse one SELECT and find the tables in it; errors are those of `rewrite`.

    Each mention in the tree gets an alias and the names of all of its columns.
    """
    tree = _parse(connection, sql)
    walk = Mentions(sql, tables, connection)
    walk.visit(tree["statements"][0]["node"], {})
    return tree, walk


def _parse(connection: duckdb.DuckDBPyConnection, sql: str) -> Tree:
    check_characters(sql, SqlSyntaxError)
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as problem:
        message = first_paragraph(problem).removeprefix("Parser Error: ")
        raise SqlSyntaxError(message, hint="A ring takes one SELECT, in DuckDB's dialect.") from None
    if len(statements) != 1:
        told, hint = "there is no statement", "Write it: SELECT … FROM …."
        if statements:
            told, hint = f"these are {len(statements)} statements", "Ask them one by one."
        raise UnsupportedError(f"a ring takes one SELECT, and {told}", hint=hint, feature="script")
    kind = statements[0].type
    if kind is duckdb.StatementType.MULTI:
        raise UnsupportedError(
            "a PIVOT without a list of values reads its table twice",
            hint="List the values: PIVOT … ON column IN (…) USING …",
            feature="PIVOT",
        )
    if statements[0].named_parameters:
        raise UnsupportedError(
            "the query has parameters, and a ring gets none", hint="Write the values into the SQL.", feature="parameter"
        )
    tree = parsed_whole(connection, sql)
    if tree["error"] or kind is not duckdb.StatementType.SELECT:
        word = sql.split(None, 1)[0].upper().rstrip(";") if kind is duckdb.StatementType.SELECT else kind.name
        raise UnsupportedError(
            f"a ring takes one SELECT, and this is {word}",
            hint="Tables change at their source; what a SELECT gives you can write yourself.",
            feature=word,
        )
    return tree


def _from_table(connection: duckdb.DuckDBPyConnection, sql: str) -> Tree:
    found: Tree = parsed_whole(connection, sql)["statements"][0]["node"]["from_table"]
    return found


def same_meaning(connection: duckdb.DuckDBPyConnection, text: str, tree: Tree) -> bool:
    """Whether a text has a tree, as it should have if it was printed from it."""
    return bool(meaning(parsed_whole(connection, text)) == meaning(tree))


def meaning(part: Any) -> Any:
    """Return a tree without the places in its text, and VALUES as they are wherever they stand."""
    match part:
        case {"type": "SUBQUERY", "alias": "valueslist", "subquery": {"node": {"from_table": values}}}:
            return meaning(values)
        case dict():
            return {key: meaning(each) for key, each in part.items() if not key.startswith("query_location")}
        case list():
            return [meaning(each) for each in part]
        case _:
            return part


@dataclass(slots=True)
class Readers:
    """How often a WITH is read, and which occurrences stand in it."""

    count: int
    inside: set[int]


class Mentions:
    """Finds tables in a query, with the WITHs that hide them, and renames them where they stand.

    Attributes
    ----------
    mentions
        Each part of the tree that is a table of the ring, with the table, in the order of the text.
    readers
        ``id`` of a WITH's part of the tree → its readers.
    """

    def __init__(self, sql: str, tables: TablesByName, connection: duckdb.DuckDBPyConnection) -> None:
        self.mentions: list[tuple[Tree, RingTable]] = []
        self.common_names: set[str] = set()
        self.readers: dict[int, Readers] = {}
        self.locations: dict[str, tuple[int, int]] = {}
        self._sql = sql
        self._bytes = sql.encode()
        self._tables = tables
        self._connection = connection
        self._inside: list[Readers] = []

    def visit(self, part: Any, scope: Mapping[str, Readers]) -> None:
        """Go through a part of a query in which some WITHs can be read, by folded name."""
        match part:
            case list():
                for each in part:
                    self.visit(each, scope)
            case {"cte_map": {"map": commons}}:
                self._query_node(part, commons, scope)
            case {"type": "BASE_TABLE"}:
                self._table(part, scope)
            case {"type": "TABLE_FUNCTION", "function": function}:
                self._check_function(function)
                self._each(part, scope)
            case {"type": "SHOW_REF"}:
                self._show(part, scope)
            case {"class": "COLUMN_REF", "column_names": [*_, column]}:
                self.locations.setdefault(folded(column), self._place(part))
            case dict():
                self._each(part, scope)
            case _:
                pass

    def _show(self, part: Tree, scope: Mapping[str, Readers]) -> None:
        """Read SHOW TABLES, DESCRIBE and SUMMARIZE, which say of tables of the ring what DuckDB says of its own."""
        if part["query"] is None:
            if part["show_type"] == "SHOW":
                said = f"FROM (DESCRIBE {quoted(part['table_name'])})"
            elif part["table_name"] == '"tables"':
                names = sorted(table.name for table in self._tables.values())
                texts = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
                said = f"FROM (SELECT unnest([{texts}]::VARCHAR[]) AS name)"
            else:
                raise self._refusal("SHOW ALL TABLES and SHOW DATABASES tell nothing of a ring", part, "SHOW")
            found = _from_table(self._connection, said)
            part.clear()
            part.update(found)
        self._each(part, scope)

    def _each(self, part: Tree, scope: Mapping[str, Readers]) -> None:
        for each in part.values():
            self.visit(each, scope)

    def _query_node(self, node: Tree, commons: list[Tree], scope: Mapping[str, Readers]) -> None:
        seen = dict(scope)
        for common in commons:
            readers = Readers(0, set())
            self.readers[id(common)] = readers
            self.common_names.add(common["key"])
            query = common["value"]["query_node"]
            # Only a recursive WITH sees itself; in any other its own name is what it was outside.
            recurs = query["type"] == "RECURSIVE_CTE_NODE"
            self._inside.append(readers)
            self.visit(query, {**seen, folded(common["key"]): readers} if recurs else seen)
            self._inside.pop()
            seen[folded(common["key"])] = readers
        for item in node.get("select_list", ()):
            self._keep_name(item)
        for key, each in node.items():
            if key != "cte_map":
                self.visit(each, seen)

    def _keep_name(self, item: Tree) -> None:
        """Give a column the name that its text would have given it, before the text changes."""
        if item["alias"] or not _has_subquery(item):
            return
        alone = {"type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": [item]}
        rest = {"from_table": {"type": "EMPTY"}, "group_expressions": [], "group_sets": []}
        said = {"error": False, "statements": [{"node": {**alone, **rest, "aggregate_handling": "STANDARD_HANDLING"}}]}
        item["alias"] = printed(self._connection, said).removeprefix("SELECT ").removesuffix(";")

    def _table(self, part: Tree, scope: Mapping[str, Readers]) -> None:
        name, schema, catalog = part["table_name"], folded(part["schema_name"]), folded(part["catalog_name"])
        key = folded(name)
        if key in scope and schema in ("", "recurring") and not catalog:
            scope[key].count += 1
            return
        table = self._tables.get(key) if schema in ("", "main") and catalog in ("", "memory") else None
        if table is None:
            raise self._unknown(part)
        if part["at_clause"] is not None:
            raise self._refusal("AT asks for another version of a table", part, "AT")
        if isinstance(table, PublishedTable):
            self._published(part, table)
            return
        number = len(self.mentions)
        given = part["column_name_alias"]
        self.mentions.append((part, table))
        for readers in self._inside:
            readers.inside.add(number)
        part["alias"] = part["alias"] or name
        part["schema_name"] = part["catalog_name"] = ""
        part["column_name_alias"] = [*given, *table.schema.names[len(given) :]]

    def _published(self, part: Tree, table: PublishedTable) -> None:
        """Put what a published table is in the place of its mention; no WITH of the query hides its parts."""
        found = _from_table(self._connection, f"FROM ({table.select})")
        found |= {key: part[key] for key in ("column_name_alias", "sample") if key in part}
        found["alias"] = part["alias"] or part["table_name"]
        part.clear()
        part.update(found)
        tables, locations = self._tables, self.locations
        self._tables, self.locations = {folded(each.name): each for each in table.parts}, {}
        self._each(part, {})
        self._tables, self.locations = tables, locations

    def _check_function(self, function: Tree) -> None:
        name = folded(function["function_name"])
        if name not in _FUNCTIONS:
            raise self._refusal(f"{name}(…) does not read tables of the ring", function, name)

    def _unknown(self, part: Tree) -> SqlError:
        path = ".".join(part["qualified_name"]["path"])
        close = difflib.get_close_matches(folded(part["table_name"]), self._tables, n=3)
        near = f"Did you mean {' or '.join(self._tables[each].name for each in close)}? " if close else ""
        names = ", ".join(sorted(table.name for table in self._tables.values())[:_NAMED]) or "none"
        line, column = self._place(part)
        return BindError(
            f"there is no table {path} on the ring",
            line=line,
            column=column,
            text=self._sql,
            hint=f"{near}Tables: {names}.",
        )

    def _refusal(self, message: str, part: Tree, feature: str) -> SqlError:
        line, column = self._place(part)
        return UnsupportedError(
            message,
            line=line,
            column=column,
            text=self._sql,
            feature=feature,
            hint="SQL on a ring is one SELECT over its tables and nothing else on the machine.",
        )

    def _place(self, part: Tree) -> tuple[int, int]:
        """Return the line and column of a part, from the bytes that DuckDB counts."""
        at = part.get("query_location")
        if not isinstance(at, int) or at > len(self._bytes):
            return 0, 0
        before = self._bytes[:at].decode(errors="replace")
        return before.count("\n") + 1, len(before) - before.rfind("\n")


_FUNCTIONS = {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
"""Table functions that read their arguments and nothing else. Others read files, settings, or any address in memory."""
_NAMED = 12
"""Tables in a message, at most."""


def _has_subquery(part: Any) -> bool:
    if isinstance(part, dict):
        return part.get("class") == "SUBQUERY" or any(map(_has_subquery, part.values()))
    return isinstance(part, list) and any(map(_has_subquery, part))


def first_paragraph(problem: Exception) -> str:
    """Return what DuckDB says, without the line that it quotes: that is of the rewritten text."""
    return str(problem).split("\n\nLINE ")[0].rstrip()
