"""What is wrong with a program: problems, and the checks of names that all parts share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import (
    ZERO,
    Apply,
    Cast,
    Compare,
    Const,
    Extremum,
    MapExtremum,
    MapRead,
    Range,
    Term,
    Var,
    children,
)
from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.types import BIGINT, BOOLEAN, INTERVAL, VARCHAR, Kind, SqlType
from cumulus.errors import CumulusError
from cumulus.m3.infer import nodes
from cumulus.m3.program import MapDef, Program
from cumulus.m3.source_map import Part
from cumulus.scalars.registry import FUNCTIONS, can_cast, result_type

Types = Mapping[str, SqlType | None]
"""Variable → its type, None where it is not declared."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: in which part, at which word of it (of its term, if `in_term`), and what to do."""

    part: Part
    message: str
    word: str = ""
    hint: str = ""
    in_term: bool = False


def repeated(names: Collection[str]) -> list[str]:
    """Return the names that stand more than once."""
    listed = list(names)
    return [name for index, name in enumerate(listed) if name in listed[:index]]


def read_problems(program: Program, part: Part, term: Term) -> Iterator[Problem]:
    """Yield what is wrong with the map reads anywhere in `term`: unknown maps, arity, columns."""
    maps = {definition.name: definition for definition in program.maps}
    for node in nodes(term):
        if isinstance(node, Extremum) and node.variable not in outputs(node.term) and node.term is not ZERO:
            hint = f"{node.end}[x](term) is the end of the values of x at which the term is not 0."
            yield Problem(part, f"the term of {node.end} does not bind {node.variable}", node.variable, hint)
        if not isinstance(node, (MapRead, MapExtremum)):
            continue
        definition = maps.get(node.map)
        if definition is None:
            yield Problem(part, f"there is no map {node.map}", node.map, "Declare it, or write to it somewhere.")
            continue
        if len(node.keys) != len(definition.keys):
            yield Problem(part, f"map {node.map} has {len(definition.keys)} keys, not {len(node.keys)}", node.map)
        if isinstance(node, MapRead) and node.state != "CHANGED":
            yield from column_problems(part, definition, node.column)
        elif isinstance(node, MapRead) and (node.column or any(isinstance(key, Range) for key in node.keys)):
            hint = f"CHANGED {node.map}[k] is 1 for a key k whose entry has changed, in whatever column."
            yield Problem(part, f"CHANGED {node.map} takes keys only", node.map, hint)


def column_problems(part: Part, definition: MapDef, column: str) -> Iterator[Problem]:
    """Yield what is wrong with naming `column` of a map."""
    try:
        definition.column_index(column)
    except KeyError:
        names = ", ".join(value.name for value in definition.values)
        if column:
            message = f"map {definition.name} has no value column {column}"
        else:
            message = f"map {definition.name} has {len(definition.values)} value columns and none is named"
        yield Problem(part, message, column or definition.name, f"Its value columns are {names}.")


def function_problems(part: Part, term: Term, functions: Collection[str]) -> Iterator[Problem]:
    """Yield the functions in `term` that nobody knows."""
    for node in nodes(term):
        if isinstance(node, Apply) and node.function not in FUNCTIONS and node.function not in functions:
            yield Problem(
                part,
                f"there is no function {node.function}",
                node.function,
                "If it is a relation, declare it; if it is a function of yours, too: FUNCTION f(DOUBLE) DOUBLE;",
            )


def type_class(sql_type: SqlType) -> str:
    """Return the class of types that compare with a type: numbers, text, points in time, booleans, intervals."""
    if sql_type.is_numeric:
        return "a number"
    if sql_type.is_temporal:
        return "a date"
    return {VARCHAR.kind: "text", BOOLEAN.kind: "a boolean", INTERVAL.kind: "an interval"}.get(sql_type.kind, "NULL")


class TypeChecker:
    """Types of scalars where they are known, given those of variables, and what is wrong with them in a part."""

    def __init__(self, program: Program, part: Part, types: Types) -> None:
        self._maps = {definition.name: definition for definition in program.maps}
        self._functions = {signature.name: signature for signature in program.functions}
        self._part = part
        self._types = types
        self.problems: list[Problem] = []

    def scalar(self, scalar: Term | Range) -> SqlType | None:
        """Return the type of a scalar, None if it is not known; note what is wrong in it."""
        match scalar:
            case Const(_, own):
                return own
            case Cast(arg, own):
                self.scalar(arg)
                return own
            case Var(name):
                return self._types.get(name)
            case Compare(_, left, right):
                self._comparable(left, right)
                return BOOLEAN
            case MapRead(name, column, keys):
                for key in keys:
                    self.scalar(key)
                return BIGINT if scalar.state == "CHANGED" else self._column_type(name, column)
            case MapExtremum(_, name, keys):
                definition = self._maps.get(name)
                if definition is None or len(definition.keys) != len(keys):
                    return None
                return definition.keys[keys.index(None)].type
            case Extremum(_, variable, inner):
                return self._bound_type(variable, inner) or self._types.get(variable)
            case Apply(name, args):
                return self._applied(name, tuple(self.scalar(arg) for arg in args))
            case Range():
                for end in children(scalar):
                    self.scalar(end)
                return None
            case _:
                return None

    def _bound_type(self, variable: str, term: Term) -> SqlType | None:
        """Return the type of the first key that `variable` stands for in `term`."""
        for node in nodes(term):
            if isinstance(node, MapRead) and node.map in self._maps:
                for key, column in zip(node.keys, self._maps[node.map].keys, strict=False):
                    if key is Var(variable) and column.type is not None:
                        return column.type
        return None

    def _column_type(self, name: str, column: str) -> SqlType | None:
        definition = self._maps.get(name)
        if definition is None:
            return None
        try:
            return definition.values[definition.column_index(column)].type
        except KeyError:
            return None

    def _applied(self, name: str, types: tuple[SqlType | None, ...]) -> SqlType | None:
        known = [own for own in types if own is not None]
        signature = self._functions.get(name)
        if signature is not None:
            return self._called(signature, types)
        if name not in FUNCTIONS or len(known) < len(types):
            return None
        try:
            return result_type(name, known)
        except (TypeError, CumulusError) as wrong:
            self._wrong(str(wrong).split("\n", 1)[0], name)
            return None

    def _called(self, signature: FunctionSignature, types: tuple[SqlType | None, ...]) -> SqlType:
        """Return what a function of the user's gives; note arguments that cannot be cast to its parameters."""
        name = signature.name
        if len(types) != len(signature.parameters):
            self._wrong(f"{name} takes {len(signature.parameters)} arguments, not {len(types)}: {signature}", name)
            return signature.result
        for own, parameter in zip(types, signature.parameters, strict=True):
            if own is not None and own.kind is not Kind.NULL and not can_cast(own, parameter):
                self._wrong(f"{name} takes {parameter}, not {own}: {signature}", name)
        return signature.result

    def _comparable(self, left: Term, right: Term) -> None:
        own, other = self.scalar(left), self.scalar(right)
        if own is None or other is None or Kind.NULL in (own.kind, other.kind):
            return
        if type_class(own) != type_class(other):
            self._wrong(f"{own} is compared with {other}")

    def number(self, scalar: Term) -> None:
        """Note it if a scalar that stands for a number is of another type."""
        found = self.scalar(scalar)
        if found is not None and type_class(found) in ("text", "a date", "an interval"):
            name = scalar.name if isinstance(scalar, Var) else ""
            self._wrong(f"{name or 'a value'} is {found} and not a number", name)

    def require_type(self, name: str, place: str, expected: SqlType | None) -> None:
        """Note a problem if the variable `name` is of another type class than `expected`, the type at `place`."""
        own = self._types.get(name)
        if own is None or expected is None or Kind.NULL in (own.kind, expected.kind):
            return
        if type_class(own) != type_class(expected):
            self._wrong(f"{name} is {own}, but {place} is {expected}", name)

    def _wrong(self, message: str, word: str = "") -> None:
        self.problems.append(Problem(self._part, message, word))
