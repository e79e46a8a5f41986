"""`cumulus compile --trace`: every delta, and what each pass of simplification makes of it."""

from __future__ import annotations

import re

from cumulus.algebra.terms import Term
from cumulus.calculus.delta import RelationChange
from cumulus.calculus.simplify import Trace
from cumulus.compiler.options import CompilerOptions

_MARKED = re.compile(r'"([^"\0]*)\0"')
_PRIME = r"\1'"
_SIGNS = {1: "+", -1: "-", 0: "BATCH "}


def traced(options: CompilerOptions, definition: Term, change: RelationChange, delta: Term) -> Trace | None:
    """Tell the delta of a definition and return what tells its simplification; None if nobody wants to know.

    Examples
    --------
    >>> from cumulus.algebra.terms import ONE, Atom
    >>> step = traced(CompilerOptions(trace=print), Atom("r", ("a",)), RelationChange("r", +1, ("x",)), ONE)
    ON +r(x) of r(a)
      delta: 1
    >>> step("lifts", ONE)
      lifts: 1
    """
    if options.trace is None:
        return None
    tell = options.trace

    def step(name: str, term: Term) -> None:
        # A definition's variables carry a mark while they stand beside a trigger's; people read it as a prime.
        tell(f"  {name}: {_MARKED.sub(_PRIME, str(term))}")

    variables = f"({', '.join(change.variables)})" if change.sign else ""
    tell(f"ON {_SIGNS[change.sign]}{change.relation}{variables} of {_MARKED.sub(_PRIME, str(definition))}")
    step("delta", delta)
    return step
