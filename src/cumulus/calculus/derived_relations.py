"""Derived relations: relations whose rows are made of sums, such as a sub-query or a view in FROM.

A derived relation has one row for a key (and for values of its `inputs`, which only filter). The row's columns are
scalars over sums: `SELECT k, AVG(x) … GROUP BY k` is the relation of (k, s(k) / n(k)) at the keys where n(k) > 0. In
the calculus it is an atom like a base table; only the compiler looks inside, where it reads the row before or after
a change. So no term nests, and the degree of a term falls with each delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cumulus.algebra.scope import in_text_order, relations_of, rename, variables_of
from cumulus.algebra.terms import Atom, Scalar, Term
from cumulus.calculus.delta import AFTER
from cumulus.catalog.schema import Column
from cumulus.catalog.schema import Relation as Table
from cumulus.catalog.types import SqlType
from cumulus.scalars.typing import Typed


@dataclass(frozen=True, slots=True)
class SumRelation:
    """A number per key: the sum of `term` over its rows. `term` has the join in it and binds the keys."""

    name: str
    term: Term
    type: SqlType


@dataclass(frozen=True, slots=True)
class ExtremumRelation:
    """The least ("MIN") or greatest ("MAX") value of `variable` per key among the rows of `term`, which binds it."""

    name: str
    end: str
    variable: str
    term: Term
    type: SqlType


@dataclass(frozen=True, slots=True)
class DerivedRelation:
    """A derived relation.

    Parameters
    ----------
    keys
        Variables that every sum binds.
    inputs
        Variables that the sums only mention: they must be bound where the relation is read.
    sums
        What is added up per key; the count of rows comes first.
    where
        A condition over keys, inputs, sums and ends: the row is there where it is 1.
    columns
        Each further column and its scalar, over the same.
    is_lookup
        Whether there is a row for every key, even one of which there are no rows (sums are 0 then).

    Examples
    --------
    >>> from cumulus.algebra.terms import ONE, Var
    >>> from cumulus.catalog.types import BIGINT
    >>> count = SumRelation("n", Atom("r", ("a", "b")), BIGINT)
    >>> known = {name: Typed(BIGINT, False) for name in ("a", "b", "n", "x")}
    >>> query = DerivedRelation("q", ("a",), (), (count,), (), ONE, (("x", Var("n")),), known)
    >>> query.parameters, query.split(Atom("q", ("k", "v")))
    (('a', 'x'), (frozenset({'k'}), frozenset(), frozenset({'v'})))
    """

    name: str
    keys: tuple[str, ...]
    inputs: tuple[str, ...]
    sums: tuple[SumRelation, ...]
    ends: tuple[ExtremumRelation, ...]
    where: Term
    columns: tuple[tuple[str, Scalar], ...]
    variables: Mapping[str, Typed] = field(hash=False)
    is_lookup: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """All variables of its atom, in order: keys, inputs, columns."""
        return (*self.keys, *self.inputs, *(name for name, _ in self.columns))

    @property
    def numbers(self) -> tuple[SumRelation | ExtremumRelation, ...]:
        """What a row is made of."""
        return (*self.sums, *self.ends)

    def numbers_in(self, scalars: Iterable[Scalar]) -> list[SumRelation | ExtremumRelation]:
        """Return the numbers that the row's condition or one of some scalars mentions."""
        mentioned = variables_of(self.where).union(*(variables_of(scalar) for scalar in scalars))
        return [each for each in self.numbers if each.name in mentioned]

    @property
    def bodies(self) -> tuple[Term, ...]:
        """The terms that are added up or searched."""
        return tuple(each.term for each in self.numbers)

    def table(self, called: str = "") -> Table:
        """Return the relation as the catalog describes tables."""
        given = {*self.keys, *self.inputs} if self.is_lookup else set()  # it may be asked for NULL
        columns = (
            Column(name, self.variables[name].type, name not in given and not self.variables[name].nullable)
            for name in self.parameters
        )
        return Table(called or self.name, tuple(columns))

    def split(self, atom: Atom) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Return the variables of an atom of this relation: keys, inputs, columns."""
        keys, inputs = len(self.keys), len(self.keys) + len(self.inputs)
        names = atom.variables
        return frozenset(names[:keys]), frozenset(names[keys:inputs]), frozenset(names[inputs:])


class Registry:
    """The derived relations of a script, by name."""

    def __init__(self, derived: Iterable[DerivedRelation] = ()) -> None:
        self._derived = {each.name: each for each in derived}
        self._bases: dict[str, frozenset[str]] = {}
        self._names: dict[tuple[str, ...], str] = {}

    def add(self, make: Callable[[str], DerivedRelation]) -> DerivedRelation:
        """Add a relation, given what makes it of a name, and return it; one that is there already gives its name."""
        derived = make(f"#{len(self._derived) + 1}")
        form = _form(derived)
        if form in self._names:
            return make(self._names[form])
        self._names[form] = derived.name
        self._derived[derived.name] = derived
        return derived

    def __iter__(self) -> Iterator[DerivedRelation]:
        return iter(self._derived.values())

    def __len__(self) -> int:
        return len(self._derived)

    def get(self, name: str) -> DerivedRelation | None:
        """Return the relation called `name`, before or after a change; None for a base table."""
        return self._derived.get(name.removesuffix(AFTER))

    def of(self, factor: Term) -> DerivedRelation | None:
        """Return the relation that a factor is an atom of, None if it is none."""
        return self.get(factor.name) if isinstance(factor, Atom) else None

    def bases(self, term: Term) -> frozenset[str]:
        """Return the base tables that a term depends on."""
        tables: set[str] = set()
        for name in relations_of(term):
            derived = self.get(name)
            if derived is None:
                tables.add(name)
            else:
                if derived.name not in self._bases:
                    self._bases[derived.name] = frozenset[str]().union(*(self.bases(body) for body in derived.bodies))
                tables |= self._bases[derived.name]
        return frozenset(tables)

    def dependents(self, relation: str) -> frozenset[str]:
        """Return the names of the relations that depend on a base table."""
        return frozenset(
            each.name for each in self._derived.values() if any(relation in self.bases(body) for body in each.bodies)
        )

    def lookups(self) -> frozenset[str]:
        """Return the names of the relations that have a row for every key."""
        return frozenset(each.name for each in self._derived.values() if each.is_lookup)

    def locals_of(self, derived: DerivedRelation) -> frozenset[str]:
        """Return the variables that only the inside of a relation has."""
        inside = frozenset[str]().union(*(variables_of(body) for body in derived.bodies))
        made = {each.name for each in derived.numbers} | {each.variable for each in derived.ends}
        return (inside | made) - set(derived.parameters)


def _form(derived: DerivedRelation) -> tuple[str, ...]:
    """Return what is the same of two relations that differ in names only."""
    terms = [*derived.bodies, derived.where, *(scalar for _, scalar in derived.columns)]
    order: dict[str, None] = dict.fromkeys(derived.parameters)
    order |= dict.fromkeys(each.name for each in derived.numbers)
    for term in terms:
        order |= dict.fromkeys(in_text_order(term))
    order |= dict.fromkeys(each.variable for each in derived.ends)  # a term that is 0 does not mention it
    names = {name: f"v{index}" for index, name in enumerate(order)}
    shape = (len(derived.keys), len(derived.inputs), len(derived.sums), len(derived.columns), derived.is_lookup)
    ends = [f"{each.end} {names[each.variable]}" for each in derived.ends]
    return (str(shape), *ends, *(str(rename(term, names)) for term in terms))
