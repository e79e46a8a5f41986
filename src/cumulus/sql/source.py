"""The text behind a parsed tree: places of nodes, and names as SQL folds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from cumulus.catalog.functions import Signature


@dataclass(frozen=True, slots=True)
class Source:
    """A SQL text, what errors call it, and the user's functions that it may call, by their names in lower case."""

    text: str
    name: str = ""
    # Offsets of the semicolons and of the words AS, comments and strings left out.
    semicolons: tuple[int, ...] = ()
    words_as: tuple[int, ...] = ()
    functions: Mapping[str, Signature] = field(default_factory=dict)

    def place(self, at: int) -> dict[str, Any]:
        """Return line, column, text and name of an offset, as the keywords of a `SqlError`."""
        if at < 0:
            return {"text": self.text, "name": self.name}
        line = self.text.count("\n", 0, at) + 1
        return {"line": line, "column": at - self.text.rfind("\n", 0, at), "text": self.text, "name": self.name}

    def statement_end(self, start: int) -> int:
        """Return the offset of the semicolon that ends the statement around `start`, or the text's end."""
        return next((at for at in self.semicolons if at >= start), len(self.text))

    def after_as(self, start: int) -> int:
        """Return the offset behind the first AS after `start`, or the text's end."""
        return next((at + 2 for at in self.words_as if at >= start), len(self.text))


def identifier(node: Any) -> str:
    """Return a name as DuckDB compares it: lower case, as written inside double quotes."""
    if isinstance(node, exp.Identifier):
        return str(node.this) if node.args.get("quoted") else str(node.this).lower()
    if isinstance(node, exp.Expression) and isinstance(node.this, (exp.Expression, str)):
        return identifier(node.this)
    return str(node).lower()


def offset_of(node: exp.Expression) -> int:
    """Return the offset of the first placed thing in a tree, -1 if there is none."""
    starts = [child.meta["start"] for child in node.walk() if child.meta and "start" in child.meta]
    return min(starts, default=-1)
