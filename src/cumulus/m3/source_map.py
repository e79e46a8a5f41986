"""Where the parts of a program stand in the text that it was read from.

Programs are plain data without places; whoever read one from text may hand its `Places` to `validate`, so that an
error names line and column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from cumulus.algebra.lexer import Token

Part: TypeAlias = tuple[str | int, ...]
"""What is placed: ("relation" | "function" | "map" | "view" | "cube", name), ("trigger", i) or ("statement", i, j)."""


@dataclass(slots=True)
class Places:
    """The places of a program's parts: `spans` are the indices of the first token and of the one behind the last."""

    text: str
    name: str
    tokens: list[Token]
    spans: dict[Part, tuple[int, int]] = field(default_factory=dict)

    def find(self, part: Part, word: str = "", *, in_term: bool = False) -> tuple[int, int]:
        """Return line and column of the first `word` inside `part`, or of the part; (0, 0) if it is not there.

        With `in_term`, the target of a statement is passed over if `word` stands in its term too.
        """
        if part not in self.spans:
            return 0, 0
        start, stop = self.spans[part]
        inside = self.tokens[start:stop]
        found = [token for token in inside if word and token.text == word] or inside[:1]
        if in_term:
            op = next((place for place, token in enumerate(inside) if token.is_sign("+=", ":=")), 0)
            found = [token for token in inside[op:] if token in found] or found
        return found[0].line, found[0].column
