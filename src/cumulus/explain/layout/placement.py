"""Where the value of a term is right when relations are spread over buckets: the reasoning behind one-round layouts.

A partitioned relation's row lives in the bucket of its key column; a replicated relation's rows are in every bucket.
From that follows, for the term of a statement as each bucket computes it with what it has, one of four places:

=============  ==========================================================================================
place          in each bucket the term gives
=============  ==========================================================================================
SAME           the true value
HOME x         the true value in the bucket of x, and 0 in all others
DEPENDENT x    the true value in the bucket of x, and anything in the others
PART           a part: the sum over the buckets is the true value
=============  ==========================================================================================

A product with a HOME x factor is HOME x if its other factors are SAME, HOME x or DEPENDENT x. Only what is linear in a
PART keeps it one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Product,
    Range,
    Sum,
    Term,
    Var,
    children,
    factors_of,
    product_of,
)


class Spread(Enum):
    """How a map lies in the buckets."""

    SAME = "same"
    LOCAL = "local"
    PART = "part"


@dataclass(frozen=True, slots=True)
class MapSpread:
    """Distribution of a map: `same` everywhere, `local` by the key at position `key`, or in `part`s that add up."""

    spread: Spread
    key: int = -1


SAME_TAG = MapSpread(Spread.SAME)
PART_TAG = MapSpread(Spread.PART)


class PlaceKind(Enum):
    """The four distributions of a term."""

    SAME = "same"
    HOME = "home"
    DEPENDENT = "dependent"
    PART = "part"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of a term; `home` represents all variables that are equal to it."""

    kind: PlaceKind
    home: str = ""


SAME = Distribution(PlaceKind.SAME)
PART = Distribution(PlaceKind.PART)


class NotOneRound(Exception):  # noqa: N818  # never leaves the room: the layout turns it into a LayoutError
    """The term has no place; the message says why, to be read after the statement."""


class Placer:
    """Finds the place of the terms of one statement.

    Parameters
    ----------
    term
        The statement's term; equalities among its factors make variables stand for each other.
    tags
        Of all maps that the term reads.
    batch
        In an `ON BATCH` trigger of a partitioned relation: its name and the position of its key column.
    bound
        The event variables.
    """

    def __init__(
        self,
        term: Term,
        tags: Mapping[str, MapSpread],
        batch: tuple[str, int] | None = None,
        bound: Iterable[str] = (),
    ) -> None:
        self._tags = tags
        self._batch = batch
        self._bound = frozenset(bound)
        self._equal: dict[str, str] = {}
        for factor in factors_of(term):
            match factor:
                case Lift(left, Var(right)) | Compare("=", Var(left), Var(right)):
                    self._equal[self.representative(left)] = self.representative(right)
                case _:
                    pass

    def representative(self, variable: str) -> str:
        """Return the variable that stands for `variable` and all that are equal to it."""
        while variable in self._equal and self._equal[variable] != variable:
            variable = self._equal[variable]
        return variable

    def home_of(self, variable: str) -> Distribution:
        """Return the place HOME `variable`."""
        return Distribution(PlaceKind.HOME, self.representative(variable))

    def statement(self, term: Term, event_home: str = "") -> Distribution:
        """Return the place of a statement's term; `event_home` is the key of a partitioned event.

        Raises
        ------
        Illegal
            If there is none.
        """
        if event_home:
            return self._product([self.home_of(event_home), self.place(term, self._bound)])
        found = self.place(term, self._bound)
        if found.kind is PlaceKind.DEPENDENT:
            raise NotOneRound(f"it is not 0 outside the bucket of {found.home}")
        return found

    def place(self, term: Term, bound: frozenset[str]) -> Distribution:
        """Return the place of a term in value context; `bound` are the variables bound outside it."""
        match term:
            case Const() | Var():
                return SAME
            case MapRead():
                return self._read(term, bound)
            case Atom(name, variables) | Batch(name, variables):
                if self._batch is None or self._batch[0] != name:
                    return SAME
                return self.home_of(variables[self._batch[1]])
            case Sum(parts):
                return self._sum([self.place(part, bound) for part in parts])
            case Product(parts):
                places = []
                for part in parts:
                    places.append(self.place(part, bound))
                    bound |= set(outputs(part))
                return self._product(places)
            case AggSum(group, inner):
                return self._projected(self.place(inner, bound), frozenset(group) | bound)
            case Exists(inner):
                found = self.place(inner, bound)
                if found.kind is PlaceKind.PART:
                    raise NotOneRound("EXISTS needs a whole value, not parts of it")
                return found
            case Lift(variable, inner):
                found = self.place(inner, bound)
                if found.kind is PlaceKind.PART:
                    raise NotOneRound(f"{variable} is bound to a value that lies in parts")
                return found if found.kind is PlaceKind.SAME else Distribution(PlaceKind.DEPENDENT, found.home)
            case Apply() | Cast() | Compare() | MapExtremum() | Extremum():
                return self._scalar(term, bound)

    def _read(self, read: MapRead, bound: frozenset[str]) -> Distribution:
        tag = self._tags[read.map]
        # Keys are scalars: what they read must be right before the entry is found.
        inside = self._product([SAME, *(self._scalar(key, bound) for key in read.keys if not isinstance(key, Var))])
        if tag.spread is Spread.SAME:
            return inside
        if inside.kind is not PlaceKind.SAME:
            raise NotOneRound(f"a key of {read.map} is computed from spread values")
        if tag.spread is Spread.LOCAL:
            key = read.keys[tag.key]
            if isinstance(key, Var):
                return self.home_of(key.name)
        if read.state == "CHANGED":
            raise NotOneRound(f"whether an entry of {read.map} has changed is not known where it lies in parts")
        return PART

    def _scalar(self, term: Term | Range, bound: frozenset[str]) -> Distribution:
        """Return the place of a scalar: SAME or DEPENDENT, since nothing in it need be linear."""
        homes: set[str] = set()
        waiting = [term]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Extremum):
                homes |= self._end_home(node, bound)
                continue
            waiting.extend(children(node))
            match node:
                case MapRead(name, _, keys) | MapExtremum(_, name, keys):
                    tag = self._tags[name]
                    if tag.spread is Spread.SAME:
                        continue
                    key: Term | Range | None = keys[tag.key] if tag.spread is Spread.LOCAL else None
                    if not isinstance(key, Var):
                        raise NotOneRound(f"a condition or function needs the whole of {name}, which lies in parts")
                    homes.add(self.representative(key.name))
                case Atom(name, variables) if self._batch is not None and self._batch[0] == name:
                    homes.add(self.representative(variables[self._batch[1]]))
                case _:
                    pass
        if len(homes) > 1:
            raise NotOneRound(f"a condition or function needs values at {' and '.join(sorted(homes))} together")
        return Distribution(PlaceKind.DEPENDENT, homes.pop()) if homes else SAME

    def _end_home(self, term: Extremum, bound: frozenset[str]) -> set[str]:
        """Return where an end is right: nothing if it is so everywhere."""
        outside = bound - {term.variable}
        # What the end binds is its own: only variables bound outside keep what they are equal to.
        known = [Compare("=", Var(a), Var(b)) for a, b in self._equal.items() if {a, b} <= outside]
        inner = Placer(product_of([*known, term.term]), self._tags, self._batch, self._bound)
        found = inner.place(term.term, outside)
        if found.kind is PlaceKind.PART:
            raise NotOneRound(f"{term.end} needs a whole value, not parts of it")
        if found.home and found.home not in {inner.representative(name) for name in outside}:
            raise NotOneRound(f"{term.end} goes over {found.home}, and its values lie in different buckets")
        return {self.representative(found.home)} if found.home else set()

    def of_view(self, scalar: Term, homes: Iterable[str]) -> None:
        """Check that an expression of a view has its value where the row is: in the buckets of the keys `homes`.

        Raises
        ------
        Illegal
            If it reads what lies elsewhere.
        """
        found = self._scalar(scalar, self._bound)
        if found.home and found.home not in homes:
            raise NotOneRound(f"it reads what lies in the bucket of {found.home}, where its rows do not")

    def _sum(self, places: Sequence[Distribution]) -> Distribution:
        kinds = {place.kind for place in places}
        homes = {place.home for place in places if place.home}
        if kinds == {PlaceKind.SAME}:
            return SAME
        if kinds <= {PlaceKind.HOME, PlaceKind.PART}:
            return places[0] if kinds == {PlaceKind.HOME} and len(homes) == 1 else PART
        if PlaceKind.PART in kinds:
            raise NotOneRound("parts are added to a value that is the same in every bucket")
        if len(homes) > 1:
            raise NotOneRound(f"values at {' and '.join(sorted(homes))} are added up")
        return Distribution(PlaceKind.DEPENDENT, homes.pop())

    def _product(self, places: Sequence[Distribution]) -> Distribution:
        spread = [place for place in places if place.kind is not PlaceKind.SAME]
        if not spread:
            return SAME
        if any(place.kind is PlaceKind.PART for place in spread):
            if len(spread) > 1:
                raise NotOneRound(
                    "a value that lies in parts is multiplied with another that is not the same everywhere"
                )
            return PART
        homes = {place.home for place in spread}
        if len(homes) > 1:
            raise NotOneRound(f"it joins values at {' and '.join(sorted(homes))}, which are not in one bucket")
        is_home = any(place.kind is PlaceKind.HOME for place in spread)
        return Distribution(PlaceKind.HOME if is_home else PlaceKind.DEPENDENT, homes.pop())

    def _projected(self, place: Distribution, visible: frozenset[str]) -> Distribution:
        if not place.home or place.home in {self.representative(name) for name in visible}:
            return place
        if place.kind is PlaceKind.DEPENDENT:
            raise NotOneRound(f"{place.home}, on which the value depends, is summed away")
        return PART
