"""Statements in what is typed: where one ends, and which kind it is."""

from __future__ import annotations

import re

QUERIES = ("SELECT", "FROM", "WITH", "VALUES", "TABLE", "DESCRIBE", "SUMMARIZE", "PIVOT", "UNPIVOT")
"""The words that a query begins with."""

_SKIPPED = re.compile(
    r"""
      '(?:[^']|'')*'                      # a text
    | "(?:[^"]|"")*"                      # a quoted name
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$     # a text between dollars
    | --[^\n]*                            # a comment to the end of the line
    | /\*.*?\*/                           # a comment
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING = ("'", '"', "/*", "--")
_HEAD = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:(?P<insert>INSERT\s+(?:OR\s+\w+\s+)?INTO)|(?P<delete>DELETE\s+FROM)|(?P<update>UPDATE))\s+"
    r'(?P<table>"(?:[^"]|"")*"|\w+)',
    re.IGNORECASE | re.DOTALL,
)
_NOTHING = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)*")
_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*\(?\s*(\w+)", re.DOTALL)


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements that a semicolon ends, without it, and what follows the last one.

    Examples
    --------
    >>> split_statements("SELECT ';' ; SELECT 2; SELECT")
    (["SELECT ';'", 'SELECT 2'], 'SELECT')
    >>> split_statements("SELECT 'half; a text")
    ([], "SELECT 'half; a text")
    """
    statements = []
    start = place = 0
    while place < len(text):
        if skipped := _SKIPPED.match(text, place):
            place = skipped.end()
        elif text.startswith(_OPENING, place):
            break  # what was opened is not closed yet
        elif text[place] == ";":
            statement = text[start:place].strip()
            if not is_empty(statement):
                statements.append(statement)
            start = place = place + 1
        else:
            place += 1
    return statements, text[start:].strip()


def take_line(begun: str, line: str) -> tuple[list[str], str]:
    """Return the statements that a further line ends, and what it begins.

    Where a statement may begin, a line with a dot in front is one of its own.
    """
    if not begun and line.lstrip().startswith("."):
        return [line.strip()], ""
    return split_statements(f"{begun}\n{line}" if begun else line)


def is_empty(statement: str) -> bool:
    """Whether there is nothing but comments.

    Examples
    --------
    >>> is_empty("-- bye\\n/* */"), is_empty("/* a */ FROM t /* b */"), is_empty("'--'")
    (True, False, False)
    """
    return _NOTHING.fullmatch(statement) is not None


def first_word(statement: str) -> str:
    """Return the first word of a statement in capitals, "" if there is none.

    Examples
    --------
    >>> first_word("-- all of it\\nfrom orders")
    'FROM'
    """
    found = _WORD.match(statement)
    return found[1].upper() if found else ""


def changed_table(statement: str) -> str | None:
    """Return the table that an INSERT, DELETE or UPDATE changes, None if the statement begins otherwise.

    Examples
    --------
    >>> changed_table("INSERT INTO orders VALUES (1)"), changed_table('DELETE FROM "order" WHERE x')
    ('orders', 'order')
    >>> changed_table("FROM orders")
    """
    found = _HEAD.match(statement)
    if found is None:
        return None
    name = found["table"]
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
