"""Scalar functions of regular expressions, by RE2: the library that DuckDB has inside.

RE2 needs time in proportion to the text, whatever the pattern; Python's `re` has other rules for what it knows and
others for how long it takes, and an event must not wait for a pattern.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cumulus.catalog.types import BOOLEAN, VARCHAR
from cumulus.errors import MissingError
from cumulus.scalars.function import INTEGERS_TO_32, TEXT, ScalarFunction, define, failure

_NO_OPTIONS_HINT = "The options are c, i, l, m, n, p and s; regexp_replace has g, too."


@lru_cache(maxsize=1024)
def compile_pattern(name: str, pattern: str, options: str) -> Any:
    """Return a pattern, compiled for function `name`."""
    try:
        import re2
    except ImportError:
        raise MissingError(f"{name} needs the package google-re2", hint="pip install google-re2") from None
    chosen = re2.Options()
    chosen.log_errors = False
    for option in options:
        match option:
            case "c" | "i":
                chosen.case_sensitive = option == "c"
            case "s":
                chosen.dot_nl = True
            case "m" | "n" | "p":
                chosen.dot_nl = False
            case "l":
                chosen.literal = True
            case " " | "\t" | "\n":
                pass
            case "g":
                raise failure(name, (pattern, options), "the option g is one of regexp_replace", _NO_OPTIONS_HINT)
            case _:
                raise failure(name, (pattern, options), f"there is no option {option!r}", _NO_OPTIONS_HINT)
    try:
        return re2.compile(pattern, chosen)
    except re2.error as problem:
        reason = problem.args[0].decode() if isinstance(problem.args[0], bytes) else problem
        raise failure(name, (pattern,), f"the pattern is wrong: {reason}") from None


def matches(text: str, pattern: str, options: str = "") -> bool:
    """Whether `pattern` is found somewhere in `text`."""
    return compile_pattern("regexp_matches", pattern, options).search(text) is not None


def full_match(text: str, pattern: str, options: str = "") -> bool:
    """Whether `pattern` is all of `text`."""
    return compile_pattern("regexp_full_match", pattern, options).fullmatch(text) is not None


def extract(text: str, pattern: str, group: int = 0, options: str = "") -> str:
    """Return what the first match has in a group; empty if there is no match or no such group."""
    if not 0 <= group <= 9:
        raise failure("regexp_extract", (text, pattern, group), "a group has a number from 0 to 9")
    found = compile_pattern("regexp_extract", pattern, options).search(text)
    if found is None or group > found.re.groups:
        return ""
    return found.group(group) or ""


def replace(text: str, pattern: str, rewrite: str, options: str = "") -> str:
    r"""Return `text` with the first match rewritten (every one with option g); \0 to \9 are groups."""
    regexp = compile_pattern("regexp_replace", pattern, options.replace("g", ""))
    pieces = _rewrite(rewrite, regexp.groups)
    if "g" not in options:
        hit = regexp.search(text)
        if hit is None:
            return text
        return text[: hit.start()] + _expand(pieces, hit) + text[hit.end() :]
    parts: list[str] = []
    copied = at = 0
    last_end = -1
    while at <= len(text):
        hit = regexp.search(text, at)
        if hit is None:
            break
        start, end = hit.start(), hit.end()
        if start == end and start == last_end:  # an empty match right behind the last one does not count
            at = start + 1
            continue
        parts += [text[copied:start], _expand(pieces, hit)]
        copied = last_end = end
        at = end
    return "".join([*parts, text[copied:]])


@lru_cache(maxsize=1024)
def _rewrite(text: str, groups: int) -> tuple[str | int, ...]:
    pieces: list[str | int] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            pieces.append(character)
            continue
        following = next(characters, "")
        if following == "\\":
            pieces.append("\\")
        elif following.isascii() and following.isdigit() and int(following) <= groups:
            pieces.append(int(following))
        else:
            reason = f"the pattern has no group {following}" if following.isdigit() else "\\ stands before 0 to 9 or \\"
            raise failure("regexp_replace", (text,), f"the replacement is wrong: {reason}")
    return tuple(pieces)


def _expand(pieces: tuple[str | int, ...], found: Any) -> str:
    return "".join([piece if isinstance(piece, str) else found.group(piece) or "" for piece in pieces])


def escape(text: str) -> str:
    """Return the pattern that matches `text` and nothing else."""
    return "".join(
        character if character == "_" or not character.isascii() or character.isalnum() else f"\\{character}"
        for character in text
    ).replace("\\\0", "\\x00")


PATTERNS = frozenset(("regexp_matches", "regexp_full_match", "regexp_extract", "regexp_replace"))
"""Functions whose second argument is a pattern."""
REGEXP_FUNCTIONS: tuple[ScalarFunction, ...] = (
    define("regexp_matches", matches, BOOLEAN, TEXT, TEXT, TEXT, optional=1),
    define("regexp_full_match", full_match, BOOLEAN, TEXT, TEXT, TEXT, optional=1),
    define("regexp_extract", extract, VARCHAR, TEXT, TEXT, INTEGERS_TO_32, TEXT, optional=2),
    define("regexp_replace", replace, VARCHAR, TEXT, TEXT, TEXT, TEXT, optional=1),
    define("regexp_escape", escape, VARCHAR, TEXT),
)
