"""Types of a statement's variables and terms, before any code is written."""

from __future__ import annotations

from collections.abc import Mapping

from cumulus.algebra import terms
from cumulus.algebra.terms import Range, Term, Var, children
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGDECIMAL, BIGINT, BOOLEAN, DOUBLE, HUGEINT, MAX_PRECISION, Kind, SqlType, decimal
from cumulus.engine.native.kernel.lanes import NotNativeError, bits_of
from cumulus.m3.program import MapDef
from cumulus.scalars.registry import FUNCTIONS, result_type
from cumulus.scalars.typing import Typed, is_nullable
from cumulus.scalars.user import UserFunction

Types = Mapping[str, Typed]


class Typing:
    """What is known of the variables of one statement."""

    def __init__(
        self,
        maps: Mapping[str, MapDef],
        relations: Mapping[str, tuple[Column, ...]],
        functions: Mapping[str, UserFunction],
    ) -> None:
        self._maps = maps
        self._relations = relations
        self._functions = functions

    def variables(self, term: Term | Range, known: Types) -> dict[str, Typed]:
        """Return `known` with the variables that `term` binds anywhere.

        Raises
        ------
        NotNativeError
            If a variable has no type.
        """
        found = dict(known)
        self._bind(term, found)
        return found

    def _bind(self, term: Term | Range, found: dict[str, Typed]) -> None:
        match term:
            case terms.MapRead(name, _, keys):
                self._columns(self._maps[name].keys, keys, found)
            case terms.Atom(name, variables) | terms.Batch(name, variables):
                self._columns(self._relations[name], tuple(map(Var, variables)), found)
            case terms.Lift(variable, inner):
                self._bind(inner, found)
                if variable not in found:
                    found[variable] = Typed(self.scalar(inner, found), is_nullable(inner, found))
            case terms.Sum(parts):
                self._bind_either(parts, found)
            case _:
                for child in children(term):
                    self._bind(child, found)

    def _bind_either(self, parts: tuple[Term, ...], found: dict[str, Typed]) -> None:
        """Bind what the parts of a sum bind: a variable may be whatever one of them makes it."""
        before = dict(found)
        for part in parts:
            mine = dict(before)
            self._bind(part, mine)
            for name, typed in mine.items():
                if name not in before:
                    found[name] = _either(found[name], typed) if name in found else typed

    def _columns(self, columns: tuple[Column, ...], keys: tuple[Term | Range, ...], found: dict[str, Typed]) -> None:
        for column, key in zip(columns, keys, strict=True):
            if isinstance(key, Var):
                if key.name not in found:
                    if column.type is None:
                        raise NotNativeError(f"the column {column.name} without a declared type")
                    found[key.name] = Typed(column.type, not column.not_null)
            else:
                self._bind(key, found)

    def scalar(self, term: Term, variables: Types) -> SqlType:
        """Return the type of a scalar, or of a number where a scalar is wanted."""
        match term:
            case terms.Const(_, found) | terms.Cast(_, found):
                return found
            case Var(name):
                return variables[name].type
            case terms.Compare():
                return BOOLEAN
            case terms.Extremum(_, variable, inner):
                inside = self.variables(inner, {k: v for k, v in variables.items() if k != variable})
                if variable not in inside:
                    raise NotNativeError(f"{term}, which is the end of nothing")
                return inside[variable].type
            case terms.MapExtremum(_, name, keys):
                found_type = self._maps[name].keys[keys.index(None)].type
                if found_type is None:
                    raise NotNativeError(f"the keys of {name} without declared types")
                return found_type
            case terms.Apply(name, args) if name in self._functions:
                return self._functions[name].signature.result
            case terms.Apply(name, args):
                if name not in FUNCTIONS:
                    raise NotNativeError(f"the function {name}, of which nothing is known")
                literals = tuple(arg.value if isinstance(arg, terms.Const) else None for arg in args)
                return result_type(name, tuple(self.scalar(arg, variables) for arg in args), literals)
            case _:
                return self.number(term, variables)

    def number(self, term: Term, variables: Types) -> SqlType:
        """Return BIGINT for a multiplicity, else HUGEINT, DECIMAL(38, s) or DOUBLE: how a sum of the term is kept.

        `variables` are those of `Typing.variables`, or more.
        """
        match term:
            case terms.Atom() | terms.Batch() | terms.Compare() | terms.Lift() | terms.Exists():
                return BIGINT
            case terms.AggSum(_, inner):
                return self.number(inner, variables)
            case terms.MapRead(_, _, _, "CHANGED"):
                return BIGINT
            case terms.MapRead(name, column):
                definition = self._maps[name]
                return _kept(definition.values[definition.column_index(column)].type, name)
            case terms.Sum(parts):
                types = [self.number(part, variables) for part in parts]
                return _widest(types, max((each.scale for each in types), default=0))
            case terms.Product(parts):
                types = [self.number(part, variables) for part in parts]
                return _widest(types, sum(each.scale for each in types))
            case _:
                return _kept(self.scalar(term, variables), str(term))


def _either(one: Typed, other: Typed) -> Typed:
    types = [each.type for each in (one, other) if each.type.kind is not Kind.NULL]
    wider = max(types, key=bits_of) if types else one.type
    for each in types:
        if each.kind is not wider.kind and not (each.is_integer and wider.is_integer):
            raise NotNativeError(f"a variable that is {each} or {wider}")
    return Typed(wider, one.nullable or other.nullable or len(types) < 2)


def _kept(found: SqlType | None, what: str) -> SqlType:
    if found is None or found.kind in (Kind.VARCHAR, Kind.INTERVAL):
        raise NotNativeError(f"{what}, whose type is {found}")
    if found.is_float:
        return DOUBLE
    if found.kind is Kind.BIGDECIMAL:
        return found
    if found.kind is Kind.DECIMAL:
        return decimal(MAX_PRECISION, found.scale)
    return HUGEINT if found.kind is Kind.HUGEINT else BIGINT


def _widest(types: list[SqlType], scale: int) -> SqlType:
    if DOUBLE in types:
        return DOUBLE
    if BIGDECIMAL in types:
        return BIGDECIMAL
    if any(each.kind is Kind.DECIMAL for each in types):
        if scale > MAX_PRECISION:
            raise NotNativeError(f"a product with {scale} digits behind the point")
        return decimal(MAX_PRECISION, scale)
    return HUGEINT if HUGEINT in types else BIGINT
