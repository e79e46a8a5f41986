"""SQL text to `cumulus.sql.ast`, with sqlglot: the statements of a script.

sqlglot reads DuckDB's dialect, statement by statement; this module takes its tree apart, names every construct that has
no place here, and keeps the place of everything. What is wrong with one statement does not keep the others from being
read: a script tells the errors of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokens import Token  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.names import Name
from cumulus.errors import SqlError, UnsupportedError, UsageError
from cumulus.sql.ast import CreateTable, CreateView, DropView, Script, Statement
from cumulus.sql.source import SqlText, Words, identifier
from cumulus.sql.syntax.ddl import create_table
from cumulus.sql.syntax.dialect import TAKEN
from cumulus.sql.syntax.heads import Options, StatementHead, head_of
from cumulus.sql.syntax.mistakes import tree_of
from cumulus.sql.syntax.operators import check_operators
from cumulus.sql.syntax.queries import query_of
from cumulus.sql.syntax.words import check_names, check_nesting, statements_of, too_deep, words_of


def parse_script(text: str, name: str = "", functions: Sequence[FunctionSignature] = (), begin: int = 0) -> Script:
    """Parse a script: CREATE TABLE, CREATE VIEW, CREATE CUBE, DROP VIEW and DROP CUBE statements.

    Parameters
    ----------
    name
        What errors call the text, usually its file name.
    functions
        The user's functions that it may call, in any case.
    begin
        Where the text starts that the user gives now: places are told from there on.

    Raises
    ------
    UsageError
        A function has a name that SQL uses for something else.
    SqlSyntaxError
        The text cannot be split into statements.

    Returns
    -------
    Script
        With the errors of the statements that are no SQL, or that Cumulus does not take: see `Script.check`.

    Examples
    --------
    >>> script = parse_script("CREATE TABLE r (a INT NOT NULL); CREATE VIEW v AS SELECT a FROM r")
    >>> [type(statement).__name__ for statement in script.statements]
    ['CreateTable', 'CreateView']
    """
    for signature in functions:
        if signature.name.lower() in TAKEN:
            raise UsageError(f"{signature.name} means something else in SQL", hint="Give the function another name.")
    own = {signature.name.lower(): signature for signature in functions}
    source = SqlText(text, name, functions=own, begin=begin)
    tokens = words_of(source)
    source = replace(source, words=Words(tokens))
    statements: list[Statement] = []
    errors: list[SqlError] = []
    broken: set[str] = set()
    for words in statements_of(tokens):
        for piece in _pieces(source, words, errors):
            here = replace(source, first=piece[0].start)
            try:
                statements.append(_statement(here, piece))
                continue
            except SqlError as problem:
                errors.append(problem)
            except RecursionError:
                errors.append(too_deep(**here.place(-1)))
            broken |= _declared_names(piece)
    return Script(tuple(statements), source, tuple(errors), frozenset(broken))


def _pieces(source: SqlText, words: list[Token], errors: list[SqlError]) -> list[list[Token]]:
    """Return the statements between two semicolons: more than one is an error, and each is read all the same."""
    begins = [
        index
        for index, (word, after) in enumerate(pairwise(words))
        if (index and word.text.upper() == "CREATE" and after.text.upper() in _AFTER_CREATE)
    ]
    for begin in begins:
        errors.append(
            source.syntax_error(
                f"a semicolon is missing before {words[begin].text}",
                words[begin].start,
                hint="Statements are separated by semicolons.",
            )
        )
    return [words[begin:end] for begin, end in zip([0, *begins], [*begins, len(words)], strict=True)]


_AFTER_CREATE = frozenset(("TABLE", "VIEW", "CUBE", "OR", "STRICT", "TEMP", "TEMPORARY", "MATERIALIZED"))


def _declared_names(words: Sequence[Token]) -> set[str]:
    """Return the names that a statement may have been meant to declare."""
    end = next((index for index, word in enumerate(words) if word.text.upper() in ("(", "AS")), len(words))
    return {Name(word.text) for word in words[1:end]}


def _statement(source: SqlText, words: Sequence[Token]) -> Statement:
    check_names(source, words)
    check_nesting(source, words)
    check_operators(source, words)
    head = head_of(source, words)
    tree = tree_of(source, head.tokens)
    if isinstance(tree, exp.Create) and head.kind == "CREATE TABLE" and isinstance(tree.this, exp.Schema):
        _check_properties(source, tree)
        relation = create_table(source, tree, head.options)
        return CreateTable(relation, head.replaces, head.unless_there, head.at)
    if isinstance(tree, exp.Create) and head.kind == "CREATE TABLE":
        raise source.unsupported(
            "CREATE TABLE … AS is not a declaration of a base table",
            head.at,
            feature="CREATE TABLE AS",
            hint="List the columns with their types; fill the table with insert().",
        )
    if isinstance(tree, exp.Create):
        _check_properties(source, tree)
        return _create_view(source, tree, head)
    assert isinstance(tree, exp.Drop), tree
    (name,) = tree.args["tables"]
    for word in ("constraints", "purge", "concurrently", "sync", "force"):
        if tree.args.get(word):
            raise _refuse(
                source, f"{word.upper()} in {head.kind}", f"{head.kind} takes IF EXISTS, CASCADE and RESTRICT."
            )
    exists, cascade = bool(tree.args.get("exists")), bool(tree.args.get("cascade"))
    return DropView(identifier(name.this), exists, cascade, head.kind.removeprefix("DROP ").lower(), head.at)


def _check_properties(source: SqlText, tree: exp.Create) -> None:
    """Refuse clauses of CREATE that mean nothing here."""
    properties = tree.args.get("properties")
    for each in properties.expressions if properties is not None else ():
        if not isinstance(each, exp.MaterializedProperty):
            raise _refuse(source, each.sql(dialect="duckdb"), "Leave it out: docs/sql.md lists the clauses.")
    for clause in ("clone", "indexes", "no_schema_binding", "refresh", "concurrently", "clustered", "unique", "with_"):
        if tree.args.get(clause):
            raise _refuse(source, clause.strip("_").upper(), "Leave it out: docs/sql.md lists the clauses.")


def _refuse(source: SqlText, what: str, hint: str) -> UnsupportedError:
    return source.unsupported(f"{what} is not supported", -1, feature=what, hint=hint)


def _create_view(source: SqlText, tree: exp.Create, head: StatementHead) -> CreateView:
    target = tree.this
    columns: tuple[str, ...] = ()
    if isinstance(target, exp.Schema):
        columns = tuple(
            identifier(column.this if isinstance(column, exp.ColumnDef) else column) for column in target.expressions
        )
        target = target.this
    start = source.after_as(head.at)
    if tree.expression is None:
        raise source.syntax_error(
            "something is missing behind AS", max(start - 2, 0), hint=f"{head.kind} name AS SELECT …"
        )
    end = source.statement_end(start)
    return CreateView(
        name=identifier(target.this),
        query=query_of(source, tree.expression),
        text=source.text[start:end].strip(),
        columns=columns,
        strict=head.is_strict,
        replace=head.replaces,
        unless_there=head.unless_there,
        order=_order(source, head.options),
        cube=head.cube,
        at=head.at,
    )


def _order(source: SqlText, options: Options) -> str:
    """Return the order of materialisation that a view asks for, "" if none."""
    for name, (value, at) in options.items():
        if name != "order" or value not in ("0", "1", "full"):
            raise source.bind_error(
                f"unknown view option {name} = {value}",
                at,
                hint="The option is order = 0 (evaluate again), 1 (from stored rows) or full.",
            )
    return options["order"][0] if options else ""
