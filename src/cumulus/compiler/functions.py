"""A user's functions in a compiled program: which it calls, and the calls without the casts that carried types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from cumulus.algebra.terms import Apply, Cast, Product, Sum, Term, rebuild
from cumulus.catalog.functions import FunctionSignature
from cumulus.m3.infer import nodes
from cumulus.m3.program import Program


def declare_functions(program: Program, functions: Sequence[FunctionSignature]) -> Program:
    """Return `program` with the signatures of those of some functions that it calls.

    The binder writes ``score(a, b)`` as ``CAST(score(a, b) AS DOUBLE)``, so that the compiler sees the type of the
    value. In a program the signature says it, and the cast goes.

    Examples
    --------
    >>> from cumulus.catalog.types import DOUBLE
    >>> from cumulus.m3 import parse
    >>> program = parse("RELATION r(a DOUBLE); MAP q[](v DOUBLE); ON +r(a) { q[] += CAST(score(a) AS DOUBLE) }")
    >>> declared = declare_functions(program, [FunctionSignature("score", (DOUBLE,), DOUBLE)])
    >>> print(declared.functions[0], "|", declared.triggers[0].statements[0].term)
    score(DOUBLE) DOUBLE | score(a)
    """
    known = {signature.name: signature for signature in functions}
    called: dict[str, None] = {}

    def plain(term: Any) -> Any:
        if isinstance(term, Cast) and isinstance(term.arg, Apply) and term.arg.function in known:
            called[term.arg.function] = None
            if known[term.arg.function].result == term.type:
                return plain(term.arg)
        if isinstance(term, Sum | Product):  # as they stand: `sum_of` would type a literal anew
            return type(term)(tuple(plain(part) for part in term.parts))
        return rebuild(term, plain)

    @cache  # what is evaluated again is one term for all changes
    def changed(term: Term) -> Term:
        calls = any(isinstance(node, Apply) and node.function in known for node in nodes(term))
        found: Term = plain(term) if calls else term
        return found

    maps = tuple(replace(each, definitions=tuple(changed(term) for term in each.definitions)) for each in program.maps)
    views = tuple(view.rewritten(changed) for view in program.views)
    triggers = tuple(
        replace(trigger, statements=tuple(replace(each, term=changed(each.term)) for each in trigger.statements))
        for trigger in program.triggers
    )
    used = tuple(signature for name, signature in known.items() if name in called)
    return replace(program, maps=maps, views=views, triggers=triggers, functions=used)
