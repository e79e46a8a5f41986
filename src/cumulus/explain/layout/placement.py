"""Where the value of a term is right when relations are spread over buckets: the reasoning behind one-round layouts.

A partitioned relation's row lives in the bucket of its key columns; a replicated relation's rows are in every bucket.
From that follows, for the term of a statement as each bucket computes it with what it has, one of four places:

=============  ==========================================================================================
place          in each bucket the term gives
=============  ==========================================================================================
SAME           the true value
HOME x         the true value in the bucket of x, and 0 in all others
DEPENDENT x    the true value in the bucket of x, and anything in the others
PART           a part: the sum over the buckets is the true value
=============  ==========================================================================================

Here x is one variable or several: the bucket of (a, b) is another than that of a. A product with a HOME x factor is
HOME x if its other factors are SAME, HOME x or DEPENDENT x. Only what is linear in a PART keeps it one.
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
    """Distribution of a map: `same` everywhere, `local` by the keys at the positions `keys`, or in `part`s that add up.

    The order of the positions is that of the columns by which tables are partitioned.
    """

    spread: Spread
    keys: tuple[int, ...] = ()


SAME_TAG = MapSpread(Spread.SAME)
PART_TAG = MapSpread(Spread.PART)


Home = tuple[str, ...]
"""Variables whose values say in which bucket something lies."""


def home_text(homes: Iterable[Home]) -> str:
    """Return homes in words."""
    return " and ".join(sorted(f"({', '.join(home)})" if len(home) > 1 else "".join(home) for home in homes))


class PlaceKind(Enum):
    """The four distributions of a term."""

    SAME = "same"
    HOME = "home"
    DEPENDENT = "dependent"
    PART = "part"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of a term; the variables of `home` represent all that are equal to them."""

    kind: PlaceKind
    home: Home = ()


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
        In an `ON BATCH` trigger of a partitioned relation: its name and the positions of its key columns.
    bound
        The event variables.
    event
        In the trigger of one event of a partitioned relation: the variables of its key columns.
    """

    def __init__(
        self,
        term: Term,
        tags: Mapping[str, MapSpread],
        batch: tuple[str, tuple[int, ...]] | None = None,
        bound: Iterable[str] = (),
        event: Home = (),
    ) -> None:
        self._tags = tags
        self._batch = batch
        self._bound = frozenset(bound)
        self._event = event
        self._equal: dict[str, str] = {}
        for factor in factors_of(term):
            match factor:
                case Lift(left, Var(right)) | Compare("=", Var(left), Var(right)):
                    self._equate(left, right)
                case MapRead(name, state="CHANGED", keys=keys) if event and tags[name].spread is Spread.LOCAL:
                    # What the event has changed of a local map it has changed at its own key: each statement of its
                    # trigger that writes there is at home in that key, and elsewhere this factor is 0.
                    for position, variable in zip(tags[name].keys, event, strict=False):
                        if len(tags[name].keys) == len(event) and isinstance(key := keys[position], Var):
                            self._equate(key.name, variable)
                case _:
                    pass

    def _equate(self, left: str, right: str) -> None:
        self._equal[self.representative(left)] = self.representative(right)

    def representative(self, variable: str) -> str:
        """Return the variable that stands for `variable` and all that are equal to it."""
        while variable in self._equal and self._equal[variable] != variable:
            variable = self._equal[variable]
        return variable

    def home_of(self, variables: Iterable[str]) -> Distribution:
        """Return the place HOME `variables`."""
        return Distribution(PlaceKind.HOME, tuple(map(self.representative, variables)))

    def statement(self, term: Term) -> Distribution:
        """Return the place of a statement's term.

        Raises
        ------
        NotOneRound
            If there is none.
        """
        if self._event:
            return self._product([self.home_of(self._event), self.place(term, self._bound)])
        found = self.place(term, self._bound)
        if found.kind is PlaceKind.DEPENDENT:
            raise NotOneRound(f"it is not 0 outside the bucket of {home_text([found.home])}")
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
                return self.home_of(variables[position] for position in self._batch[1])
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
            home = _variables(read.keys, tag)
            if home:
                return self.home_of(home)
        if read.state == "CHANGED":
            raise NotOneRound(f"whether an entry of {read.map} has changed is not known where it lies in parts")
        return PART

    def _scalar(self, term: Term | Range, bound: frozenset[str]) -> Distribution:
        """Return the place of a scalar: SAME or DEPENDENT, since nothing in it need be linear."""
        homes: set[Home] = set()
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
                    home = _variables(keys, tag) if tag.spread is Spread.LOCAL else ()
                    if not home:
                        raise NotOneRound(f"a condition or function needs the whole of {name}, which lies in parts")
                    homes.add(self.home_of(home).home)
                case Atom(name, variables) if self._batch is not None and self._batch[0] == name:
                    homes.add(self.home_of(variables[position] for position in self._batch[1]).home)
                case _:
                    pass
        if len(homes) > 1:
            raise NotOneRound(f"a condition or function needs values at {home_text(homes)} together")
        return Distribution(PlaceKind.DEPENDENT, homes.pop()) if homes else SAME

    def _end_home(self, term: Extremum, bound: frozenset[str]) -> set[Home]:
        """Return where an end is right: nothing if it is so everywhere."""
        outside = bound - {term.variable}
        # What the end binds is its own: only variables bound outside keep what they are equal to.
        known = [Compare("=", Var(a), Var(b)) for a, b in self._equal.items() if {a, b} <= outside]
        inner = Placer(product_of([*known, term.term]), self._tags, self._batch, self._bound, self._event)
        found = inner.place(term.term, outside)
        if found.kind is PlaceKind.PART:
            raise NotOneRound(f"{term.end} needs a whole value, not parts of it")
        if not set(found.home) <= {inner.representative(name) for name in outside}:
            raise NotOneRound(
                f"{term.end} goes over {home_text([found.home])}, and its values lie in different buckets"
            )
        return {self.home_of(found.home).home} if found.home else set()

    def of_view(self, scalar: Term, homes: Iterable[Home]) -> None:
        """Check that an expression of a view has its value where the row is: in the buckets of the keys `homes`.

        Raises
        ------
        NotOneRound
            If it reads what lies elsewhere.
        """
        found = self._scalar(scalar, self._bound)
        if found.home and found.home not in homes:
            where = home_text([found.home])
            raise NotOneRound(f"it reads what lies in the bucket of {where}, where its rows do not")

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
            raise NotOneRound(f"values at {home_text(homes)} are added up")
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
            raise NotOneRound(f"it joins values at {home_text(homes)}, which are not in one bucket")
        is_home = any(place.kind is PlaceKind.HOME for place in spread)
        return Distribution(PlaceKind.HOME if is_home else PlaceKind.DEPENDENT, homes.pop())

    def _projected(self, place: Distribution, visible: frozenset[str]) -> Distribution:
        if set(place.home) <= {self.representative(name) for name in visible}:
            return place
        if place.kind is PlaceKind.DEPENDENT:
            raise NotOneRound(f"{home_text([place.home])}, on which the value depends, is summed away")
        return PART


def _variables(keys: Sequence[Term | Range | None], tag: MapSpread) -> Home:
    """Return the variables that stand where a local map has the keys of its bucket; nothing if one is no variable."""
    found = [key.name for position in tag.keys if isinstance(key := keys[position], Var)]
    return tuple(found) if len(found) == len(tag.keys) else ()
