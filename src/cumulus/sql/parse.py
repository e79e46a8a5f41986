"""SQL text to `cumulus.sql.ast`, with sqlglot: the statements of a script, and what they share.

sqlglot reads DuckDB's dialect; this module takes its tree apart, names every construct that has no place here, and
keeps the place of everything. `WITH (…)` after CREATE TABLE and `STRICT` are ours: they are read from the tokens and
blanked out before sqlglot sees the text, so that offsets stay true.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # public, though not re-exported

from cumulus.catalog.functions import Signature
from cumulus.errors import BindError, SqlSyntaxError, UnsupportedError, UsageError
from cumulus.sql.ast import CreateTable, CreateView, DropView, Script, Statement
from cumulus.sql.ddl import create_table
from cumulus.sql.dialect import TAKEN, CumulusSql
from cumulus.sql.queries import query_of
from cumulus.sql.source import Source, identifier, offset_of

DIALECT = CumulusSql
MAX_NESTING = 32
"""How deep brackets and CASE may stand in each other; what reads expressions afterwards recurses."""


def parse_script(text: str, name: str = "", functions: Sequence[Signature] = ()) -> Script:
    """Parse a script of CREATE TABLE, CREATE VIEW and DROP VIEW statements.

    Parameters
    ----------
    text
        Statements separated by semicolons.
    name
        What errors call the text, usually its file name.
    functions
        The user's functions that it may call, in any case.

    Raises
    ------
    UsageError
        A function has a name that SQL uses for something else.
    SqlSyntaxError
        The text is not SQL.
    UnsupportedError
        A statement or construct that Cumulus does not take.

    Examples
    --------
    >>> script = parse_script("CREATE TABLE r (a INT NOT NULL); CREATE VIEW v AS SELECT a FROM r")
    >>> [type(statement).__name__ for statement in script.statements]
    ['CreateTable', 'CreateView']
    """
    for signature in functions:
        if signature.name.lower() in TAKEN:
            raise UsageError(f"{signature.name} means something else in SQL", hint="Give the function another name.")
    tokens = _tokens(Source(text, name))
    source = Source(
        text,
        name,
        tuple(token.start for token in tokens if token.token_type is TokenType.SEMICOLON),
        tuple(token.start for token in tokens if token.text.upper() == "AS"),
        {signature.name.lower(): signature for signature in functions},
    )
    blanked, options, stricts = _own_clauses(source, tokens)
    statements: list[Statement] = []
    for tree in _trees(source, blanked):
        statements.append(_statement(source, tree, options, stricts))
    return Script(tuple(statements), source)


def _tokens(source: Source) -> list[Token]:
    try:
        tokens = list(sqlglot.tokenize(source.text, read=DIALECT))
    except TokenError as problem:
        at = _unterminated(source.text)
        raise SqlSyntaxError(
            f"cannot split the text into words: {str(problem).splitlines()[0]}",
            hint="Look for a quote that is not closed.",
            **source.place(at),
        ) from None
    depth = 0
    for token in tokens:
        if token.token_type in (TokenType.L_PAREN, TokenType.CASE):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.END):
            depth -= 1
        if depth > MAX_NESTING:
            raise too_deep(**source.place(token.start))
    return tokens


def too_deep(**place: Any) -> UnsupportedError:
    """Return the error of an expression that is nested more deeply than anything here can read."""
    return UnsupportedError(
        "this is nested too deeply",
        feature="deep nesting",
        hint=f"Brackets, CASE and operators may stand {MAX_NESTING} deep in each other; compute a part in a view.",
        **place,
    )


def _unterminated(text: str) -> int:
    """Return where a quote opens that never closes, as far as a simple scan can tell."""
    opened = -1
    quote = ""
    for index, char in enumerate(text):
        if quote:
            if char == quote:
                quote = ""
        elif char in "'\"":
            quote, opened = char, index
    return opened if quote else -1


def _trees(source: Source, text: str) -> list[exp.Expression]:
    # sqlglot warns on its own log about a statement that it gives up on; here that becomes an error instead.
    warnings = sqlglot.parser.logger
    silent, warnings.disabled = warnings.disabled, True
    try:
        trees = sqlglot.parse(text, read=DIALECT)
    except ParseError as problem:
        first = problem.errors[0]
        line, end = int(first["line"] or 0), int(first["col"] or 0)
        found = str(first["highlight"] or "")
        what = str(first["description"]).rstrip(".")
        near = f" near {found!r}" if found else ""
        raise SqlSyntaxError(
            f"not valid SQL{near}: {what[:1].lower()}{what[1:]}",
            line=line,
            column=max(end - len(found) + 1, 1),
            text=source.text,
            name=source.name,
        ) from None
    except TokenError as problem:
        raise SqlSyntaxError(str(problem).splitlines()[0], **source.place(-1)) from None
    except RecursionError:
        raise too_deep(**source.place(-1)) from None
    finally:
        warnings.disabled = silent
    return [tree for tree in trees if isinstance(tree, exp.Expression) and not isinstance(tree, exp.Semicolon)]


def _statement(
    source: Source,
    tree: exp.Expression,
    options: dict[int, dict[str, tuple[str, int]]],
    stricts: set[int],
) -> Statement:
    if isinstance(tree, exp.Create):
        kind = str(tree.args.get("kind") or "").upper()
        at = offset_of(tree)
        if kind == "TABLE" and isinstance(tree.this, exp.Schema):
            return CreateTable(create_table(source, tree, _clause_of(source, tree, options)), at)
        if kind == "VIEW":
            return _create_view(source, tree, at in stricts, _clause_of(source, tree, options))
        if kind == "TABLE":
            raise UnsupportedError(
                "CREATE TABLE … AS is not a declaration of a base table",
                feature="CREATE TABLE AS",
                hint="List the columns with their types; fill the table with insert().",
                **source.place(at),
            )
    if isinstance(tree, exp.Drop) and str(tree.args.get("kind")).upper() == "VIEW":
        return DropView(identifier(tree.find(exp.Identifier)), bool(tree.args.get("exists")), offset_of(tree))
    if isinstance(tree, exp.Command):
        raise _unparsed(source, tree)
    what = " ".join(tree.sql(dialect=DIALECT).split()[:3])
    raise UnsupportedError(
        f"a script declares tables and views; this is {what!r}",
        feature=what,
        hint="Use CREATE TABLE, CREATE VIEW and DROP VIEW; read views with query().",
        **source.place(offset_of(tree)),
    )


def _unparsed(source: Source, tree: exp.Command) -> SqlSyntaxError:
    """Return the error in a statement that sqlglot gave up on: parse what follows AS for the place."""
    rest = str(tree.expression.name if isinstance(tree.expression, exp.Expression) else tree.expression)
    begin = source.text.find(rest.strip())
    body = source.after_as(begin)
    if begin >= 0:
        # Blanks in front keep the offsets true.
        before = re.sub(r"[^\n]", " ", source.text[:body])
        _trees(source, before + source.text[body : source.statement_end(body)])
    return SqlSyntaxError("not valid SQL", hint="Look at the statement's first words.", **source.place(begin))


def _clause_of(
    source: Source, tree: exp.Create, options: dict[int, dict[str, tuple[str, int]]]
) -> dict[str, tuple[str, int]]:
    """Return the WITH options of a CREATE TABLE or VIEW: those that stand in the same statement."""
    begin = offset_of(tree)
    end = source.statement_end(begin)
    return next((values for at, values in options.items() if begin < at < end), {})


def _create_view(source: Source, tree: exp.Create, strict: bool, options: dict[str, tuple[str, int]]) -> CreateView:
    at = offset_of(tree)
    target = tree.this
    columns: tuple[str, ...] = ()
    if isinstance(target, exp.Schema):
        columns = tuple(
            identifier(column.this if isinstance(column, exp.ColumnDef) else column) for column in target.expressions
        )
        target = target.this
    body = tree.expression
    if body is None:
        raise SqlSyntaxError("CREATE VIEW needs AS SELECT …", **source.place(at))
    start = source.after_as(at)
    end = source.statement_end(start)
    return CreateView(
        name=identifier(target.this),
        query=query_of(source, body),
        text=source.text[start:end].strip(),
        columns=columns,
        strict=strict,
        replace=bool(tree.args.get("replace")),
        order=_order(source, options),
        at=at,
    )


def _order(source: Source, options: dict[str, tuple[str, int]]) -> str:
    """Return the order of materialisation that a view asks for, "" if none."""
    for name, (value, at) in options.items():
        if name != "order" or value not in ("0", "1", "full"):
            raise BindError(
                f"unknown view option {name} = {value}",
                hint="The option is order = 0 (evaluate again), 1 (from stored rows) or full.",
                **source.place(at),
            )
    return options["order"][0] if options else ""


def _own_clauses(source: Source, tokens: list[Token]) -> tuple[str, dict[int, dict[str, tuple[str, int]]], set[int]]:
    """Find `WITH (…)` of CREATE TABLE and VIEW, and `STRICT`; return the text with them blanked."""
    blanked = list(source.text)
    options: dict[int, dict[str, tuple[str, int]]] = {}
    stricts: set[int] = set()

    def blank(begin: int, end: int) -> None:
        for index in range(begin, end):
            if blanked[index] != "\n":
                blanked[index] = " "

    statement: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
            continue
        words = [item.text.upper() for item in statement]
        if words[:1] == ["CREATE"]:
            head = words[1:4]
            if "STRICT" in head and "VIEW" in head:
                strict = statement[1 + head.index("STRICT")]
                blank(strict.start, strict.end + 1)
                name = statement[2 + head.index("VIEW")] if len(statement) > 2 + head.index("VIEW") else strict
                stricts.add(name.start)
            if "TABLE" in words[1:3] or "VIEW" in head:
                found = _with_clause(source, statement if "TABLE" in words[1:3] else statement[: _as_of(statement)])
                if found is not None:
                    begin, end, values = found
                    blank(begin, end)
                    options[begin] = values
        statement = []
    return "".join(blanked), options, stricts


def _as_of(statement: list[Token]) -> int:
    """Return where the AS of a CREATE VIEW is, outside all brackets; 0 if there is none."""
    depth = 0
    for index, token in enumerate(statement):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.text.upper() == "AS":
            return index
    return 0


def _with_clause(source: Source, statement: list[Token]) -> tuple[int, int, dict[str, tuple[str, int]]] | None:
    depth = 0
    for index, token in enumerate(statement):
        if token.token_type is TokenType.L_PAREN:
            depth += 1
        elif token.token_type is TokenType.R_PAREN:
            depth -= 1
        elif depth == 0 and token.text.upper() == "WITH" and index > 2:
            break
    else:
        return None
    begin = statement[index].start
    words = statement[index + 1 :]
    if len(words) < 2 or words[0].token_type is not TokenType.L_PAREN or words[-1].token_type is not TokenType.R_PAREN:
        raise SqlSyntaxError("WITH must be followed by (option = value, …)", **source.place(begin))
    values: dict[str, tuple[str, int]] = {}
    rest = words[1:-1]
    while rest:
        if len(rest) < 3 or rest[1].text != "=":
            raise SqlSyntaxError("an option is written name = value", **source.place(rest[0].start))
        values[rest[0].text.lower()] = (rest[2].text.lower(), rest[0].start)
        if len(rest) > 3 and rest[3].token_type is not TokenType.COMMA:
            raise SqlSyntaxError("options are separated by commas", **source.place(rest[3].start))
        rest = rest[4:]
    return begin, words[-1].end + 1, values
