"""The least or greatest key of a slice, and the least or greatest value at which a term is not 0, as Python source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cumulus.algebra.order import all_but
from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import ZERO, End, MapEnd, MapRead
from cumulus.engine.analysis.separation import axis_of, is_scalar, without_marks
from cumulus.engine.interpreter.loop_sources import DictSource, map_source, read_source
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import PythonCode

if TYPE_CHECKING:
    from cumulus.engine.interpreter.terms import Env, TermCoder


def write_map_end(term: MapEnd, env: Env, coder: TermCoder) -> PythonCode:
    """Write the search for the least or greatest key of a slice; return the variable that holds it, None if none."""
    store = coder.store(term.map)
    source = map_source(store, store.definition.values[0].name, coder)
    bound = [coder.scalar(key, env).text for key in term.keys if key is not None]

    def exists(entry: str) -> str:
        return "" if store.count is None or store.flat else f"{entry}[{store.count}]"

    return _search(term.end, source, term.keys.index(None), bound, exists, coder)


def write_end(term: End, env: Env, coder: TermCoder) -> PythonCode:
    """Write the search for the least or greatest value at which a term is not 0; return the variable that holds it.

    A single read of a map is searched where it lies. Of any other term the sums by the variable are made first.
    """
    inside = {name: code for name, code in env.items() if name != term.variable}
    inner = without_marks(term.term, inside)
    if inner is ZERO:
        return PythonCode("None")
    if term.variable not in outputs(inner):
        raise ValidationError(f"{term.variable} is not bound in {term}", hint="The term of an end binds its variable.")
    axis, bound = 0, list[str]()
    place = axis_of(inner, term.variable, inside)
    if place is not None and isinstance(inner, MapRead):
        axis, source = place, read_source(inner, coder)
        bound = [coder.scalar(key, inside).text for at, key in enumerate(inner.keys) if at != axis and is_scalar(key)]
    else:
        source = coder.grouped(inner, [term.variable], inside)
    return _search(
        term.end, source, axis, bound, lambda entry: source.value(entry).text if source.may_be_zero else "", coder
    )


def _search(
    end: str, source: DictSource, axis: int, bound: list[str], test: Callable[[str], str], coder: TermCoder
) -> PythonCode:
    """Write the search for an end of the part of `source` whose keys other than `axis` are `bound`.

    `test` gives the condition on an entry under which its key counts, "" if there is none.
    """
    writer, column = coder.writer, source.columns[axis]
    found, key, here = writer.fresh("end"), writer.fresh("key"), writer.fresh("here")
    writer.line(f"{found} = None")
    places = all_but(axis, source.width)
    over = source.text
    if places:
        part = bound[0] if len(bound) == 1 else f"({', '.join(bound)})"
        over = f"{source.slice(places)}.get({part}, ())"
    with writer.block(f"for {key} in {over}:"):
        condition = test(f"{source.text}[{key}]")
        if condition:
            writer.line(f"if not {condition}: continue")
        writer.line(f"{here} = {key if source.is_bare else f'{key}[{axis}]'}")
        mine, best = (PythonCode(name, column.type, False) for name in (here, found))
        closer = coder.compare("<" if end == "MIN" else ">", mine, best)
        with writer.block(f"if {here} is not None and ({found} is None or {closer}):"):
            writer.line(f"{found} = {here}")
    return PythonCode(found, column.type, True)
