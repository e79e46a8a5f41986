"""Function calls by name: what DuckDB's names mean in `cumulus.scalars.registry`.

Most functions have the same name there and take their arguments as they stand. Here are the others: second names, and
those that are short for something that exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from cumulus.catalog.text_values import PARTS
from cumulus.catalog.types import DATE, DOUBLE, VARCHAR
from cumulus.sql.ast import CastTo, Expr, Literal, SqlCall
from cumulus.sql.source import SqlText

Args: TypeAlias = tuple[Expr, ...]

SECOND_NAMES = {
    "substr": "substring", "len": "length", "char_length": "length", "character_length": "length", "lcase": "lower",
    "ucase": "upper", "prefix": "starts_with", "instr": "strpos", "position": "strpos", "pow": "power",
    "ceiling": "ceil", "datediff": "date_diff", "datetrunc": "date_trunc", "datepart": "date_part",
    "weekday": "dayofweek", "weekofyear": "week", "dayofmonth": "day", "multiply": "mul", "subtract": "sub",
    "divide": "intdiv", "greatest_common_divisor": "gcd", "least_common_multiple": "lcm", "suffix": "ends_with",
    "ord": "unicode", "to_hex": "hex", "to_binary": "bin", "editdist3": "levenshtein", "mismatches": "hamming",
    "datesub": "date_sub", "mean": "avg",
}  # fmt: skip
_OWN_NAMES = frozenset(("add", "sub", "mul", "div", "intdiv", "neg", "eq", "ne", "lt", "le", "gt", "ge"))
"""Names that `cumulus.scalars.registry` has and SQL does not: there they are written with signs."""
_SPELT = frozenset(("coalesce", "row", "try"))
"""Names that an unnamed column shows otherwise than as a call."""
_CHANGING = frozenset((
    "now", "today", "current_date", "current_timestamp", "current_time", "get_current_timestamp", "random", "uuid",
    "transaction_timestamp", "current_localtimestamp", "current_localtime", "gen_random_uuid", "setseed", "uuidv4",
    "uuidv7", "nextval", "currval", "localtime", "localtimestamp",
))  # fmt: skip


def call_of(source: SqlText, name: str, args: Args, at: int) -> Expr:
    """Return the call of the function that SQL calls `name`, which is in lower case.

    Raises
    ------
    BindError
        If a function that is short for something has the wrong number of arguments.
    UnsupportedError
        If the function gives another value each time.
    """
    if name in source.functions:
        return SqlCall(name, args, at)
    if name in _CHANGING:
        raise source.unsupported(
            f"{name} is not the same each time, and a view is a function of its tables",
            at,
            feature=name,
            hint="Write the value as a row of a table or as a literal, or compare with it in query().",
        )
    if name in _OWN_NAMES and name not in _SHORT:
        raise source.unsupported(f"there is no function {name}", at, feature=name, hint="Write the sign.")
    if name in ("date_part", "datepart") and len(args) == 2:
        return _part(source, name, args, at)
    short = _SHORT.get(name)
    if short is not None:
        least, most, make = short
        if not least <= len(args) <= most:
            count = f"{least}" if least == most else f"{least} to {most}" if most < _MANY else f"{least} or more"
            raise source.bind_error(f"{name} takes {count} arguments, not {len(args)}", at)
        made = make(args, at)
        return replace(made, shown=(f"{name}(", args)) if isinstance(made, SqlCall) and name != "ifnull" else made
    return SqlCall(SECOND_NAMES.get(name, name), args, at, shown=(f"{name}(", args) if name not in _SPELT else None)


def part_of(source: SqlText, part: str, time: Expr, at: int, shown: tuple[str, Args] | None = None) -> Expr:
    """Return EXTRACT(part FROM time), which an unnamed column shows as `date_part`."""
    known = PARTS.get(part.lower())
    if known is None:
        hint = f"There are {', '.join(sorted(set(PARTS.values())))}."
        raise source.bind_error(f"there is no date part {part!r}", at, hint=hint)
    if shown is None:
        shown = ("date_part(", (Literal(part.lower(), VARCHAR, at), time))
    return SqlCall(known, (time,), at, shown=shown)


def _part(source: SqlText, name: str, args: Args, at: int) -> Expr:
    part = args[0]
    if isinstance(part, Literal) and isinstance(part.value, str):
        return part_of(source, part.value, args[1], at, shown=(f"{name}(", args))
    return SqlCall("date_part", args, at)


def _concat(args: Args, at: int) -> Expr:
    """CONCAT takes NULL for the empty string; `||` does not."""
    texts = [SqlCall("coalesce", (CastTo(arg, VARCHAR, at), Literal("", VARCHAR, at)), at) for arg in args]
    return reduce(lambda left, right: SqlCall("concat", (left, right), at), texts)


def _floor_of_quotient(args: Args, at: int) -> Expr:
    return SqlCall("floor", (SqlCall("div", args, at),), at)


_MANY = 1 << 30
_SHORT: dict[str, tuple[int, int, Callable[[Args, int], Expr]]] = {
    "concat": (1, _MANY, _concat),
    "ifnull": (2, 2, lambda args, at: SqlCall("coalesce", args, at)),
    "if": (3, 3, lambda args, at: SqlCall("case", args, at)),
    "log": (1, 2, lambda args, at: SqlCall("log10" if len(args) == 1 else "log", args, at)),
    "pi": (0, 0, lambda args, at: Literal(math.pi, DOUBLE, at)),
    "fdiv": (2, 2, _floor_of_quotient),
    "add": (2, 2, lambda args, at: SqlCall("add", args, at)),
    "date_add": (2, 2, lambda args, at: SqlCall("add", args, at)),
    "days_in_month": (1, 1, lambda args, at: SqlCall("day", (SqlCall("last_day", args, at),), at)),
    "date": (1, 1, lambda args, at: CastTo(args[0], DATE, at)),
}
"""Name → least and greatest number of arguments, and what it is short for."""
