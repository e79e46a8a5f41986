"""A query over base tables as the view that it could be: compiled, so that its meaning can be compared with others'."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import duckdb

from cumulus.algebra.printing import quoted
from cumulus.compiler.options import CompilerOptions
from cumulus.compiler.pipeline import compile_script
from cumulus.errors import CumulusError
from cumulus.m3.program import Program
from cumulus.sql.ast import CreateTable
from cumulus.sql.syntax.parse import parse_script
from cumulus.view_answers.forms import Meaning
from cumulus.view_answers.query_shape import QueryShape, Unanswerable, same, source_text, text_of, without_alias
from cumulus.views.duckdb_sql.trees import Tree, function_name, is_column, names_of, own


@dataclass(frozen=True, slots=True)
class ComparableQuery:
    """A query that groups by what the views must have, compiled.

    Parameters
    ----------
    keys
        The expressions that it groups by.
    numbers
        The aggregates, after the keys in its columns.
    """

    meaning: Meaning
    keys: tuple[Tree, ...]
    numbers: tuple[Tree, ...]
    extra: tuple[Tree, ...]


class ComparableQueries:
    """One query, without some of its conditions; views of one kind share them.

    Parameters
    ----------
    connection
        As `query_shape.connected` makes it.
    program
        Whose tables the query reads.
    shape
        The query.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, program: Program, shape: QueryShape) -> None:
        self.connection, self.program, self.shape = connection, program, shape
        self._known: dict[tuple[tuple[int, ...], bool], ComparableQuery | Unanswerable] = {}

    def without(self, extra: tuple[Tree, ...], is_bag: bool) -> ComparableQuery:
        """Return the query as it is compared, without some of its conditions.

        Parameters
        ----------
        extra
            The conditions that a view may lack: their columns become keys.
        is_bag
            Whether it is compared with views that have single rows.

        Raises
        ------
        Unanswerable
            If it is no query that a view may be.
        """
        at = (tuple(map(id, extra)), is_bag)
        if at not in self._known:
            try:
                self._known[at] = self._compile(extra, is_bag=is_bag)
            except Unanswerable as problem:
                self._known[at] = problem
        found = self._known[at]
        if isinstance(found, Unanswerable):
            raise found
        return found

    def _compile(self, extra: tuple[Tree, ...], *, is_bag: bool) -> ComparableQuery:
        """Compile the query without some conditions, over the groups that they and it need."""
        without = [each for each in self.shape.conditions if not any(each is other for other in extra)]
        keys = [] if is_bag else [*self.shape.groups]
        for each in [*(self.shape.outside if is_bag else ()), *(self.shape.groups if is_bag else ()), *extra]:
            keys += _columns(each, {same(key) for key in keys})
        keys = [key for place, key in enumerate(keys) if same(key) not in map(same, keys[:place])]
        numbers: list[Tree] = []
        for tree in () if is_bag else self.shape.aggregate_calls:
            wanted = [tree, *(parts_of_mean(tree) if is_mean(tree) else ())]
            numbers += [each for each in wanted if same(each) not in map(same, numbers)]
        listed = [f"{text_of(self.connection, each)} AS c{place}" for place, each in enumerate([*keys, *numbers])]
        if not numbers:
            listed.append(f"COUNT(*) AS c{len(keys)}")
        having = self.shape.node.get("having") if not extra and not is_bag else None
        program = self._compiled(listed, without, keys, having)
        return ComparableQuery(Meaning(program, program.views[0]), tuple(keys), tuple(numbers), extra)

    def _compiled(
        self, listed: Sequence[str], conditions: Sequence[Tree], keys: Sequence[Tree], having: Tree | None
    ) -> Program:
        query = f"SELECT {', '.join(listed)} FROM {source_text(self.connection, self.shape.node['from_table'])}"
        if conditions:
            query += " WHERE " + " AND ".join(text_of(self.connection, each) for each in conditions)
        if keys:
            query += " GROUP BY " + ", ".join(text_of(self.connection, each) for each in keys)
        if having is not None and not any(is_column(each) and len(names_of(each)) == 1 for each in own(having)):
            query += f" HAVING {text_of(self.connection, having)}"
        tables = " ".join(
            f"CREATE TABLE {quoted(table.name)} ("
            + ", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns)
            + ");"
            for table in self.program.relations
        )
        name = "query"
        while name in {table.name.lower() for table in self.program.relations}:
            name += "_"
        try:
            script = parse_script(f"{tables} CREATE VIEW {quoted(name)} AS {query}").check()
            statements = tuple(
                replace(each, relation=self.program.relation(each.relation.name))
                if isinstance(each, CreateTable)
                else each
                for each in script.statements
            )
            return compile_script(replace(script, statements=statements), CompilerOptions())
        except (CumulusError, RecursionError) as problem:
            why = str(problem).splitlines()[0].split(": ", 1)[-1] if str(problem) else "it is too deep"
            raise Unanswerable(f"it is no query that a view may be: {why}") from None


def _columns(tree: Tree, groups: Collection[str]) -> list[Tree]:
    """Return the columns of tables in an expression, but for those inside of grouping expressions."""
    if same(tree) in groups:
        return []
    if is_column(tree):
        return [without_alias(tree)] if len(names_of(tree)) > 1 else []
    found: list[Tree] = []
    for part in tree.values():
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, dict):
                found += _columns(each, groups)
    return found


def is_mean(tree: Tree) -> bool:
    """Whether a tree is the call of AVG over all values."""
    return function_name(tree) in ("avg", "mean") and not tree.get("distinct")


def parts_of_mean(tree: Tree) -> tuple[Tree, Tree]:
    """Return the sum and the count behind an AVG."""
    total, count = ({**tree, "function_name": name, "qualified_name": {"path": [name]}} for name in ("sum", "count"))
    return total, count
