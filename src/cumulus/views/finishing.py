"""The finishing step: from entries of maps to rows of a view (`cumulus.m3.program.ViewDef`).

What the maps cannot hold is done here: ratios and AVG, NULL for a SUM over nothing, HAVING, bags, ORDER BY and LIMIT.
The expressions of a view are compiled to Python once.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from cumulus.algebra.order import order_key
from cumulus.algebra.terms import Scalar, Term, Var
from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.catalog.types import EXACT, INTEGER_BITS, Kind, coercer
from cumulus.errors import EvaluationError, ValidationError
from cumulus.interrupts import Deferring
from cumulus.m3.program import Program, ViewDef
from cumulus.m3.view_reads import grouping_columns, names_in, read_of, top_of
from cumulus.scalars.python_code import NAN, NamePool, PythonCode, ScalarCoder, canonical
from cumulus.scalars.user import Functions, given_functions, runnable
from cumulus.views.affected_rows import AffectedRows
from cumulus.views.entries import Entries, Items, Key, MapSource, Values, WholeMaps


class Finished(NamedTuple):
    """What one entry gives: a row, how often it stands, and the values of ORDER BY."""

    row: Row
    copies: int
    order: tuple[Any, ...]


Raw: TypeAlias = tuple[Row, int, tuple[Any, ...]]
"""A `Finished` as it comes."""


class Finisher:
    """The finishing step of one view.

    Parameters
    ----------
    functions
        The user's scalar functions that the program calls: a list of them, or by name.

    Raises
    ------
    ValidationError
        If an expression names no key or value column, or a column has a type that the expression does not have.
    """

    def __init__(self, program: Program, view: ViewDef, functions: Functions | None = None) -> None:
        self.program, self.view, self.functions = program, view, functions
        self.maps = tuple(map(program.map, view.maps))
        first = self.maps[0]
        for other in self.maps[1:]:
            if len(other.keys) != len(first.keys):
                raise ValidationError(
                    f"view {view.name}: map {other.name} does not have the keys of {first.name}",
                    hint="All maps of a view have the same keys.",
                )
        self.top = top_of(program, view)
        self.affected = AffectedRows(program, view)
        """Which rows an entry of a map may change."""
        self.values: dict[str, tuple[int, int]] = {}
        """Name of a value → which of the view's maps, which column."""
        for place, each in reversed(list(enumerate(self.maps))):
            for column, value in enumerate(each.values):
                self.values[f"{each.name}.{value.name}"] = place, column
                if place == 0:
                    self.values[value.name] = place, column
        self.names = {
            name: PythonCode(f"m{place}_{column}", self.maps[place].values[column].type, False)
            for name, (place, column) in self.values.items()
        }
        """The code of everything that an expression may name."""
        self.names |= {
            key.name: PythonCode(f"k{place}", key.type, not key.not_null) for place, key in enumerate(first.keys)
        }
        self._zeros = tuple((0,) * len(each.values) for each in self.maps)
        self._has_keys = bool(first.keys)
        self._count = first.column_index(first.count) if first.count else None
        self._floats = [
            place for place, column in enumerate(view.columns) if column.type is None or column.type.is_float
        ]
        self._functions = runnable(program.functions, given_functions(functions))
        self._entry = self._compile(NamePool(self._functions))
        self._expressions: dict[tuple[Scalar, Column | None], tuple[tuple[str, ...], Callable[..., Any]]] = {}

    @cached_property
    def grouping(self) -> dict[str, int]:
        """The columns that are keys of the maps: see `cumulus.m3.view_reads.grouping_columns`."""
        return grouping_columns(self.view, self.maps[0])

    # --- one entry --------------------------------------------------------------------------------------------------

    def entry(self, key: Key, values: Sequence[Values | None], entries: Entries) -> Finished | None:
        """Return what one key gives.

        Parameters
        ----------
        key
            Of the view's maps.
        values
            Of each map at `key`, None where it has no entry.
        entries
            What the view's expressions read of maps beside that.

        Returns
        -------
        Finished or None
            None if the view shows nothing for the key: no entry, a negative multiplicity, or not what HAVING wants.

        Raises
        ------
        EvaluationError
            Naming the view.
        """
        first = values[0]
        if self._has_keys and (first is None or (self._count is not None and first[self._count] < 0)):
            return None
        if None in values:
            values = [zero if each is None else each for each, zero in zip(values, self._zeros, strict=True)]
        try:
            found = self._entry(key, entries, *values)
        except Exception as problem:  # a user's function may raise anything
            reason = problem.message if isinstance(problem, EvaluationError) else f"{problem}"
            hint = problem.hint if isinstance(problem, EvaluationError) else ""
            raise EvaluationError(
                f"view {self.view.name} at {key!r}: {reason}", view=self.view.name, hint=hint
            ) from problem
        if found is None or found[1] <= 0:
            return None
        for place in self._floats:
            if found[0][place] != found[0][place]:  # one NaN, so that equal rows are equal
                return Finished(tuple(NAN if value != value else value for value in found[0]), *found[1:])
        return tuple.__new__(Finished, found)

    def _compile(self, pool: NamePool) -> Callable[..., Raw | None]:
        """Return the function from a key and the values of each map to a row."""
        lines = ["def finish(key, entries, *maps):"]
        if self.maps[0].keys:
            lines.append(f"    {', '.join(f'k{i}' for i in range(len(self.maps[0].keys)))}, = key")
        for place, each in enumerate(self.maps):
            names = ", ".join(f"m{place}_{column}" for column in range(len(each.values)))
            if names:  # what is folded may be ends alone
                lines.append(f"    {names}, = maps[{place}]")

        def lookup(name: str) -> PythonCode:
            if name not in self.names:
                raise ValidationError(
                    f"view {self.view.name}: there is no key or value {name}", hint=f"Names: {', '.join(self.names)}."
                )
            return self.names[name]

        coder = ScalarCoder(pool, lookup, lambda term: self._read(term, coder))
        if self.view.where is not None:
            lines += [f"    if not {coder.code(self.view.where).text}:", "        return None"]
        copies = "1" if self.view.repeat is None else coder.code(self.view.repeat).text
        row = [
            self._typed(coder.code(scalar), scalar, column, pool)
            for scalar, column in zip(self.view.select, self.view.columns, strict=True)
        ]
        order = [coder.code(item.expression).text for item in self.view.order_by]
        lines.append(f"    return ({''.join(text + ', ' for text in row)}), {copies}, ({', '.join([*order, ''])})")
        exec("\n".join(lines), pool.names)
        made: Callable[..., Raw | None] = pool.names["finish"]
        return made

    def expression(self, scalar: Scalar, column: Column | None) -> tuple[tuple[str, ...], Callable[..., Any]]:
        """Return the names of keys and values that an expression needs, and the function of entries and these.

        If a column is given, the value is one of its type, as in the rows.
        """
        if (scalar, column) not in self._expressions:
            names = tuple(sorted(names_in(self.program, scalar)))
            given = {name: self.names[name]._replace(text=f"v{place}") for place, name in enumerate(names)}
            pool = NamePool(self._functions)
            coder = ScalarCoder(pool, given.__getitem__, lambda term: self._read(term, coder))
            code = coder.code(scalar)
            text = code.text if column is None else self._typed(code, scalar, column, pool)
            exec(
                f"def compute(entries, {', '.join(code.text for code in given.values())}):\n    return {text}",
                pool.names,
            )
            self._expressions[scalar, column] = names, pool.names["compute"]
        return self._expressions[scalar, column]

    def _read(self, term: Term, coder: ScalarCoder) -> PythonCode:
        """Return the code of what an expression reads of a map."""
        read = read_of(self.program, term)
        if read is None:
            raise ValidationError(f"view {self.view.name}: {term} is not a scalar", hint="Keep it in a map.")
        keys = "".join(f"{_key_code(coder.code(key), coder.pool)}, " for key in read.keys if key is not None)
        name = coder.pool.literal(read.map.name)
        if read.end:
            searched = read.map.keys[read.axis]
            return PythonCode(
                f"entries.end({name}, {read.end!r}, {read.axis}, ({keys}), {read.column})", searched.type, True
            )
        assert read.column is not None, "an entry is read for one of its values"
        column = read.map.values[read.column]
        zero = "0.0" if column.type is not None and column.type.is_float else "0"
        at = coder.pool.bind(_value_at, "value_at")
        return PythonCode(f"{at}(entries, {name}, ({keys}), {read.column}, {zero})", column.type, False)

    def _typed(self, code: PythonCode, scalar: Scalar, column: Column, pool: NamePool) -> str:
        """Return the expression of a value in the column's type."""
        if column.type is None:
            return code.text
        is_key = isinstance(scalar, Var) and scalar.name in {key.name for key in self.maps[0].keys}
        # A key that a statement computed may be the 0 of an empty sum: a decimal gets its digits here.
        as_it_is = is_key and column.type.kind is not Kind.DECIMAL
        if code.type == column.type and (as_it_is or not column.type.is_exact):
            return code.text
        coerced = pool.bind(coercer(column.type), "coerced")
        if column.type.kind not in INTEGER_BITS:
            return f"{coerced}({code.text})"
        most = 1 << (INTEGER_BITS[column.type.kind] - 1)
        number = f"whole if type(whole := {code.text}) is int and {-most} <= whole < {most}"
        return f"({number} else {coerced}(whole))"

    # --- all entries ------------------------------------------------------------------------------------------------

    def rows(self, items: Items, source: MapSource | None = None, *, skip_errors: bool = False) -> list[Row]:
        """Return the rows of the view, in its order where it has one.

        Parameters
        ----------
        source
            Of the same maps, where they can be asked for single entries, too.
        skip_errors
            Leave out the rows of which an expression cannot be computed.

        Raises
        ------
        EvaluationError
            Naming the view.
        """
        first = self.maps[0]
        whole = WholeMaps(items, source, 0 if source is None else source.stored_count(first.name))
        others = [whole.entries(each.name) for each in self.maps[1:]]
        entries: Iterable[tuple[Key, Values | None]] = items(first.name)
        if not first.keys:
            entries = list(entries) or [((), None)]
        finished = []
        with decimal.localcontext(EXACT):
            for key, values in entries:
                try:
                    found = self.entry(key, [values, *(other.get(key) for other in others)], whole)
                except EvaluationError:
                    if not skip_errors:
                        raise
                    continue
                if found is not None:
                    finished.append(found)
        return self._rows_in_order(finished)

    def first_rows(self, source: MapSource) -> tuple[list[Row], Any] | None:
        """Return the rows of the view, made from the entries of `first`, and where they end; None if it has none.

        The end is the value by which the last row of a full window was found, else None.
        """
        found = self.first(source)
        if found is None:
            return None
        assert self.view.limit is not None, "a view without a limit shows all rows"
        finished = [each for _, each in found]
        rows, left = self._rows_in_order(finished), self.view.offset + self.view.limit
        for each in finished:  # which are in order now
            left -= each.copies
            if left <= 0 < self.view.limit:
                return rows, each.order[0]
        return rows, None

    def first(self, source: MapSource) -> list[tuple[Key, Finished]] | None:
        """Return the entries that may be among the rows of a view with a limit, no more than needed.

        None if the view shows all rows, or no map is kept in its order.

        Raises
        ------
        EvaluationError
            Naming the view.
        """
        entries = None if self.top is None else source.in_order(self.maps[0].name, *self.top)
        if entries is None:
            return None
        assert self.view.limit is not None, "a view without a limit shows all rows"
        missing = self.view.offset + self.view.limit
        finished: list[tuple[Key, Finished]] = []
        # What comes last, wherever an engine has NULL in its order.
        nulls: list[tuple[Key, Finished]] = []
        with decimal.localcontext(EXACT):
            for key, values in entries:
                found = self.entry(key, [values, *(source.read(each.name, key) for each in self.maps[1:])], source)
                if found is None:
                    continue
                if found.order[0] is None:
                    nulls.append((key, found))
                    continue
                # Rows that are equal so far may be told apart by what comes next in ORDER BY.
                if missing <= 0 and (not finished or found.order[0] != finished[-1][1].order[0]):
                    break
                finished.append((key, found))
                missing -= found.copies
        return finished + nulls if missing > 0 else finished

    def _rows_in_order(self, finished: list[Finished]) -> list[Row]:
        """Return the rows of a view's entries, which are sorted in place."""
        # By the last item of ORDER BY first, each time keeping the order of equals.
        for place, item in reversed(list(enumerate(self.view.order_by))):
            nulls = [each for each in finished if each.order[place] is None]
            others = [each for each in finished if each.order[place] is not None]
            others.sort(key=lambda each: order_key(each.order[place]), reverse=item.descending)
            finished[:] = nulls + others if item.nulls_first else others + nulls
        rows = [row for row, copies, _ in finished for _ in range(copies)]
        if self.view.limit is None:
            return rows[self.view.offset :] if self.view.offset else rows
        return rows[self.view.offset : self.view.offset + self.view.limit]

    def is_kept_in_order(self, source: MapSource) -> bool:
        """Whether `first_rows` has them."""
        return self.top is not None and source.in_order(self.maps[0].name, *self.top) is not None

    def to_arrow(self, rows: Iterable[Row]) -> pa.Table:
        """Return rows of the view as Arrow."""
        ready_arrays()
        try:
            return table_of(self.view.columns, rows)
        except (pa.ArrowException, OverflowError) as problem:
            raise EvaluationError(
                f"view {self.view.name}: {problem}",
                view=self.view.name,
                hint="Cast the column to a type that holds its values.",
            ) from None


_has_arrays = [False]


def ready_arrays() -> None:
    """Let pyarrow import what it imports with its first array, pandas, while Ctrl-C waits.

    An import that ends in the middle leaves modules behind that are no good for as long as the process lives.
    """
    if not _has_arrays[0]:
        with Deferring():
            import pyarrow.compute  # noqa: F401  # what works on arrays needs it, too

            pa.array([0])
        _has_arrays[0] = True


def _key_code(code: PythonCode, pool: NamePool) -> str:
    """Return the code of a key to look up by, as it stands in maps."""
    if code.type is None or code.type.is_float:
        return f"{pool.bind(canonical, 'canonical')}({code.text})"
    return code.text


def _value_at(entries: Entries, map: str, key: Key, column: int, zero: Any) -> Any:
    values = entries.read(map, key)
    return zero if values is None else values[column]


def finish(program: Program, view: ViewDef, items: Items, functions: Functions | None = None) -> pa.Table:
    """Return the rows of a view as Arrow.

    Examples
    --------
    >>> from cumulus.catalog.types import BIGINT, INTEGER
    >>> from cumulus.m3.program import MapDef
    >>> counts = MapDef("m", (Column("a", INTEGER),), (Column("n", BIGINT),), count="n")
    >>> view = ViewDef("v", (Column("a", INTEGER), Column("n", BIGINT)), ("m",), (Var("a"), Var("n")))
    >>> finish(Program(maps=(counts,), views=(view,)), view, lambda name: [((7,), (2,)), ((8,), (-1,))]).to_pylist()
    [{'a': 7, 'n': 2}]
    """
    finisher = Finisher(program, view, functions)
    return finisher.to_arrow(finisher.rows(items))
