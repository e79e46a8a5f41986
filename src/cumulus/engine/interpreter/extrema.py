"""Python source for extrema: MIN or MAX of the keys of a slice, or of the values at which a term is not 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cumulus.algebra.order import all_but
from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import ZERO, Extremum, MapExtremum, MapRead, Term
from cumulus.engine.analysis.separation import axis_of, is_scalar, without_marks
from cumulus.engine.interpreter.loops import DictSource, LoopSources
from cumulus.engine.interpreter.numbers import Env, EnvScalars
from cumulus.engine.interpreter.writer import Writer
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import PythonCode


@dataclass(frozen=True, slots=True)
class ExtremumCoder:
    """Writes the searches of one function; `grouped` writes the sums of a term by some variables into a dict."""

    writer: Writer
    sources: LoopSources
    scalars: EnvScalars
    grouped: Callable[[Term, list[str], Env], DictSource]

    def map_end(self, term: MapExtremum, env: Env) -> PythonCode:
        """Write the search for the least or greatest key of a slice; return the variable of it, None if none."""
        store = self.sources.store(term.map)
        source = self.sources.of_map(store, store.definition.values[0].name)
        bound = [self.scalars.code(key, env).text for key in term.keys if key is not None]

        def exists(entry: str) -> str:
            return "" if store.count is None or store.flat else f"{entry}[{store.count}]"

        return self._search(term.end, source, term.keys.index(None), bound, exists)

    def end(self, term: Extremum, env: Env) -> PythonCode:
        """Write the search for the least or greatest value at which a term is not 0; return the variable that holds it.

        A single read of a map is searched where it lies. Of any other term the sums by the variable are made first.
        """
        inside = {name: code for name, code in env.items() if name != term.variable}
        inner = without_marks(term.term, inside)
        if inner is ZERO:
            return PythonCode("None")
        if term.variable not in outputs(inner):
            raise ValidationError(
                f"{term.variable} is not bound in {term}", hint="The term of an end binds its variable."
            )
        axis, bound = 0, list[str]()
        place = axis_of(inner, term.variable, inside)
        if place is not None and isinstance(inner, MapRead):
            axis, source = place, self.sources.of_read(inner)
            others = [key for at, key in enumerate(inner.keys) if at != axis]
            bound = [self.scalars.code(key, inside).text for key in others if is_scalar(key)]
        else:
            source = self.grouped(inner, [term.variable], inside)
        return self._search(
            term.end, source, axis, bound, lambda entry: source.value(entry).text if source.may_be_zero else ""
        )

    def _search(
        self, end: str, source: DictSource, axis: int, bound: list[str], test: Callable[[str], str]
    ) -> PythonCode:
        """Write the search for an end of the part of `source` whose keys other than `axis` are `bound`.

        `test` gives the condition on an entry under which its key counts, "" if there is none.
        """
        writer, column = self.writer, source.columns[axis]
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
            closer = self.scalars.compare("<" if end == "MIN" else ">", mine, best)
            with writer.block(f"if {here} is not None and ({found} is None or {closer}):"):
                writer.line(f"{found} = {here}")
        return PythonCode(found, column.type, True)
