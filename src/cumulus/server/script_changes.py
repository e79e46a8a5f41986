"""What has changed in a script of tables and views since a server was last started with it, as SQL."""

from __future__ import annotations

from typing import Any

from cumulus.compiler.declarations import declarations
from cumulus.errors import SqlError, UsageError
from cumulus.sql.ast import CreateTable, CreateView, tables_read
from cumulus.sql.syntax.parse import parse_script


def script_change(before: str, after: str, name: str) -> str:
    """Return SQL that makes the views of one script those of another; "" if these are the same.

    Parameters
    ----------
    name
        What errors call the new script.

    Raises
    ------
    SqlError
        If the new script is wrong.
    UsageError
        If it has other tables: their rows are those of the old ones.

    Examples
    --------
    >>> table = "CREATE TABLE r (a INT);"
    >>> print(script_change(f"{table} CREATE VIEW v AS SELECT a FROM r", f"{table} CREATE VIEW v AS FROM r", "r.sql"))
    DROP VIEW IF EXISTS "v";
    CREATE VIEW v AS FROM r;
    """
    old, new = _Statements(before, ""), _Statements(after, name)
    for table, relation in old.tables.items():
        if new.tables.get(table) != relation:
            told = "has other columns, keys or options" if table in new.tables else "is not there any more"
            raise UsageError(
                f"{name}: table {table} {told}, and the server keeps rows of the one that was there",
                hint="Write it as it was, or start a server with a new --data and bring the rows there.",
            )
    changed: set[str] = set()
    for view in old.views:  # a view stands behind those that it reads
        if new.words.get(view) != old.words[view] or not changed.isdisjoint(old.reads(view) | new.reads(view)):
            changed.add(view)
    statements = [f'DROP {old.kind(view)} IF EXISTS "{view}"' for view in reversed(old.views) if view in changed]
    statements += [text for table, text in new.texts.items() if table in new.tables and table not in old.tables]
    statements += [new.texts[view] for view in new.views if view in changed or view not in old.views]
    return "\n".join(f"{each};" for each in statements)


class _Statements:
    """The tables and the views that a script leaves behind, and the statements that make them, as text and as words."""

    def __init__(self, text: str, name: str) -> None:
        script = parse_script(text, name)
        declared = declarations(script)
        if declared.errors:
            raise SqlError.together(declared.errors)
        self.tables, self._views = declared.tables, declared.views
        self.views = list(declared.views)
        self.texts: dict[str, str] = {}
        self.words: dict[str, list[Any]] = {}
        """Two texts of the same words differ in blanks and comments."""
        tokens = script.source.words.tokens
        for statement in script.statements:
            if not isinstance(statement, CreateTable | CreateView):
                continue
            made = statement.relation.name if isinstance(statement, CreateTable) else statement.name
            start, end = script.source.words.statement(statement.at)
            words = [token for token in tokens if start <= token.start and (end < 0 or token.start < end)]
            self.texts[made] = text[start : words[-1].end + 1]
            self.words[made] = [(token.token_type, token.text) for token in words]

    def kind(self, view: str) -> str:
        """Return what a view is called: VIEW, or CUBE."""
        return self._views[view].kind.upper()

    def reads(self, view: str) -> set[str]:
        """Return what a view reads."""
        return set(tables_read(self._views[view].query)) if view in self._views else set()
