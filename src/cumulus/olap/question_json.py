"""Selections as JSON: the body of a request, and the address of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from cumulus.errors import UsageError
from cumulus.olap import conditions
from cumulus.olap.question import Question

Q = TypeVar("Q", bound=Question)

WORDS = (
    "cube", "by", "measures", "where", "pivot", "totals", "having", "order_by", "top", "limit", "read", "after",
    "max_staleness", "at",
)  # fmt: skip
TOP_WORDS = ("count", "by", "per", "others")


def as_json(question: Question) -> dict[str, Any]:
    """Return what says the same; words that say nothing are left out."""
    best, fresh = question.best, question.freshness
    found: dict[str, Any] = {
        "cube": question.shape.name,
        "by": [axis.name for axis in question.levels.axes],
        "measures": None if question.measures is None else list(question.measures),
        "where": [conditions.as_json(each) for each in question.where],
        "pivot": list(question.levels.pivoted),
        "totals": list(question.levels.totals),
        "having": [[each.measure, each.operator, each.value] for each in question.keeps],
        "order_by": [f"-{name}" if descending else name for name, descending in question.order],
        "top": None
        if best is None
        else {
            "count": best.count,
            "by": f"-{best.by}" if best.least else best.by,
            "per": list(best.per),
            "others": best.others,
        },
        "limit": question.most,
        "read": fresh.read,
        "after": getattr(fresh.after, "at", fresh.after),
        "max_staleness": fresh.max_staleness,
        "at": fresh.at,
    }
    return {word: value for word, value in found.items() if value is not None and (value != [] or word == "by")}


def apply(question: Q, given: Mapping[str, Any]) -> Q:
    """Return a selection with all that JSON says.

    Raises
    ------
    UsageError
        For a word that is not known, or a value that it cannot have.
    """
    _check(given, WORDS, "a selection")
    name = given.get("cube", question.shape.name)
    if name != question.shape.name:
        raise UsageError(f"this is a selection of {name}, not of {question.shape.name}", hint=f"Open cube {name}.")
    made = question.rollup(*_texts(given, "by"))
    if given.get("measures") is not None:
        made = made.showing(_texts(given, "measures"))
    for each in _list(given, "where"):
        if not isinstance(each, Mapping):
            raise UsageError(f'"where": {each!r} is no condition', hint='Such as {"level": "y", "in": [1994]}.')
        made = made.add(conditions.from_json(question.shape, each))
    made = made.pivot(*_texts(given, "pivot"))
    if _list(given, "totals"):
        made = made.totals(*_texts(given, "totals"))
    for each in _list(given, "having"):
        if not (isinstance(each, list) and len(each) == 3 and isinstance(each[1], str)):
            raise UsageError(f'"having": {each!r}', hint='Such as ["revenue", ">", 1000].')
        made = made.having(*each)
    made = made.order_by(*_texts(given, "order_by"))
    top = given.get("top")
    if top is not None:
        if not isinstance(top, Mapping) or not isinstance(top.get("by"), str):
            raise UsageError(f'"top": {top!r}', hint='Such as {"count": 10, "by": "revenue"}.')
        _check(top, TOP_WORDS, "top")
        made = made.top(top.get("count", 10), top["by"], _texts(top, "per"), bool(top.get("others")))
    made = made.limit(given.get("limit"))
    return made.reading(
        read=given.get("read"),
        after=given.get("after"),
        max_staleness=given.get("max_staleness"),
        at=given.get("at"),
    )


def _check(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for word in given:
        if word not in known:
            raise UsageError(f"{what} has no {word!r}", hint=f"There are {', '.join(known)}.")


def _list(given: Mapping[str, Any], word: str) -> list[Any]:
    value = given.get(word)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UsageError(f'"{word}": {value!r} is no list', hint="Give a list.")
    return value


def _texts(given: Mapping[str, Any], word: str) -> list[str]:
    found = _list(given, word)
    for each in found:
        if not isinstance(each, str):
            raise UsageError(f'"{word}": {each!r} is no text', hint="Give a list of names.")
    return found
