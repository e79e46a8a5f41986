"""SQL over the views: DuckDB over Arrow, and only the views that the SQL mentions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import duckdb
import pyarrow as pa

from cumulus.errors import UsageError


def ask(sql: str, views: Iterable[str], table_of: Callable[[str], pa.Table]) -> pa.Table:
    """Return the result of a query over views.

    Parameters
    ----------
    sql
        Any SELECT in DuckDB's dialect.
    views
        The names that it may mention.
    table_of
        Gives the rows of a view; called for those mentioned only.

    Raises
    ------
    UsageError
        If DuckDB refuses the SQL.
    """
    names = {name.lower(): name for name in views}
    with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        try:
            mentioned = {name.lower() for name in connection.get_table_names(sql)}
            for folded in sorted(mentioned & names.keys()):
                connection.register(names[folded], table_of(names[folded]))
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error as problem:
            raise UsageError(str(problem), hint=f"Views: {', '.join(names.values()) or 'none'}.") from None
        except AttributeError:  # DuckDB gives None for what has no rows
            raise UsageError("this is not a query", hint="Write a SELECT.") from None
