"""Co-partitioning (one-round layouts): which relations can be spread so that no bucket ever needs another.

Decided on M3 alone (docs/m3.md, "One-round layouts"). Relations are partitioned by key columns, or replicated: then
their events fire in every bucket. `lay_out` finds the tag of every map for a given choice or says which statement
forbids it; `cumulus.explain.layout.choice` looks for the best choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from cumulus.algebra.float_sums import Cell, add_cells, is_rest
from cumulus.algebra.printing import print_scalar
from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import ONE, Number, add
from cumulus.catalog.partition import bucket_of_row
from cumulus.errors import LayoutError
from cumulus.explain.layout.placement import (
    PART_TAG,
    SAME_TAG,
    Distribution,
    MapSpread,
    NotOneRound,
    PlaceKind,
    Placer,
    Spread,
)
from cumulus.m3.dataflow import topological
from cumulus.m3.printer import print_statement
from cumulus.m3.program import On, Program, Statement, Trigger, ViewDef

Key = tuple[object, ...]
Values = tuple[Number | Cell, ...]
Columns = tuple[str, ...]
Partitioned = Mapping[str, Columns]
"""Relation → the columns whose values choose the bucket of a row; other relations are in every bucket."""
_LONGEST = 120
"""Characters of a statement that an error quotes whole."""
At = tuple[int, int]
"""A statement, by the index of its trigger and its own."""


def _plus(old: Any, new: Any) -> Any:
    return add_cells(old, new, 1) if type(old) is tuple else add(old, new)


def _is_something(value: Any) -> bool:
    return not is_rest(value) if type(value) is tuple else bool(value)


class Merge(Enum):
    """How the entries of one map in all buckets become the map."""

    ANY = "the same in every bucket: take any one"
    UNION = "each entry in one bucket: nothing to merge"
    ADD = "partial sums: add them up, column by column"


@dataclass(frozen=True, slots=True)
class Layout:
    """A legal one-round layout.

    Parameters
    ----------
    program
        What is laid out.
    partitioned
        Relation → the columns whose bucket (`cumulus.catalog.partition.bucket_of_row`) its rows go to. All other
        relations are replicated. Empty: one bucket.
    tags
        Of every map.
    first_only
        The statements that only bucket 0 runs.
    batches
        Relations whose `ON BATCH` trigger is right in this layout; of others the single-event triggers are used.
    reasons
        Relation that is not partitioned → why it is not.
    """

    program: Program
    partitioned: Partitioned
    tags: Mapping[str, MapSpread]
    first_only: frozenset[At] = frozenset()
    batches: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def one_bucket(self) -> bool:
        """Whether nothing is partitioned: more than one bucket would only repeat the work."""
        return not self.partitioned

    def merge(self, name: str) -> Merge:
        """Return how the buckets' entries of the map `name` are merged."""
        match self.tags[name].spread:
            case Spread.SAME:
                return Merge.ANY
            case Spread.LOCAL:
                return Merge.UNION
            case Spread.PART:
                return Merge.ADD

    def merge_of_view(self, view: str) -> Merge:
        """Return the most that has to be done for any map that `view` reads; the view is finished after it."""
        needed = {self.merge(name) for name in self.program.view(view).reads}
        return next((merge for merge in (Merge.ADD, Merge.UNION) if merge in needed), Merge.ANY)

    def stored(self, name: str, buckets: Iterable[Iterable[tuple[Key, Values]]]) -> dict[Key, Values]:
        """Return what one bucket would store of the map `name`, from what is stored in every bucket, bucket 0 first.

        That is more than readers see: an entry whose COUNT is 0 is stored as long as another value is not. Sums of
        DOUBLE are cells (`cumulus.algebra.float_sums`), before and after.
        """
        definition, merge = self.program.map(name), self.merge(name)
        entries: dict[Key, Values] = {}
        for found in buckets:
            if merge is not Merge.ADD:
                entries.update(found)
                if merge is Merge.ANY:
                    break
                continue
            for key, values in found:
                old = entries.get(key)
                entries[key] = values if old is None else tuple(map(_plus, old, values))
        count = definition.column_index(definition.count) if definition.count else None
        return {
            key: values
            for key, values in entries.items()
            if (count is not None and values[count]) or any(map(_is_something, values))
        }

    def merged(self, name: str, buckets: Iterable[Iterable[tuple[Key, Values]]]) -> dict[Key, Values]:
        """Return the entries of the map `name`, from what is stored of it in every bucket, bucket 0 first.

        An entry that does not exist, as where parts cancel, is left out: by the COUNT column if there is one, else if
        all values are 0. Sums of DOUBLE are cells (`cumulus.algebra.float_sums`), before and after.
        """
        definition, stored = self.program.map(name), self.stored(name, buckets)
        if not definition.count:
            return stored
        count = definition.column_index(definition.count)
        return {key: values for key, values in stored.items() if values[count]}

    def bucket_program(self, bucket: int, buckets: int) -> Program:
        """Return what one of `buckets` runs: bucket 0 all, the others without the statements that only bucket 0 runs.

        An entry that a map starts with is where an event would have put it: in every bucket, in the bucket of its key,
        or in bucket 0. Batch triggers that are not right in this layout are left out.
        """
        if self.one_bucket:
            return self.program
        triggers = []
        for index, trigger in enumerate(self.program.triggers):
            if trigger.on is On.BATCH and trigger.relation not in self.batches:
                continue
            kept = tuple(
                statement
                for place, statement in enumerate(trigger.statements)
                if bucket == 0 or (index, place) not in self.first_only
            )
            triggers.append(replace(trigger, statements=kept))
        maps = tuple(
            replace(each, initial=tuple(e for e in each.initial if self.starts_in(each.name, e[0], bucket, buckets)))
            for each in self.program.maps
        )
        return replace(self.program, triggers=tuple(triggers), maps=maps)

    def starts_in(self, name: str, key: Key, bucket: int, buckets: int) -> bool:
        """Whether a bucket has an entry of a map that was there before it: at the start, or moved from other buckets.

        Parameters
        ----------
        name, key
            The map, and the key of the entry.
        bucket, buckets
            Which bucket, of how many.
        """
        tag = self.tags[name]
        match tag.spread:
            case Spread.SAME:
                return True
            case Spread.LOCAL:
                return bucket_of_row([key[position] for position in tag.keys], buckets) == bucket
            case Spread.PART:
                return bucket == 0

    def tag_text(self, name: str) -> str:
        """Return the tag of a map in words: ``same``, ``local(oid)`` or ``part``."""
        tag = self.tags[name]
        if tag.spread is not Spread.LOCAL:
            return str(tag.spread.value)
        keys = self.program.map(name).keys
        return f"local({', '.join(keys[position].name for position in tag.keys)})"

    def explain(self) -> str:
        """Return the layout in words: what is partitioned, every map's tag, and why nothing more is partitioned."""
        lines = []
        streams = [item.name for item in self.program.relations if not item.static]
        if self.one_bucket:
            lines.append("One bucket: no relation can be partitioned.")
        else:
            parts = partition_text(self.partitioned)
            lines.append(f"One round in any number of buckets: {parts}.")
            others = [name for name in streams if name not in self.partitioned]
            if others:
                lines.append(f"In every bucket: {', '.join(others)}.")
            wide = max(map(len, self.tags), default=0)
            tags = {name: self.tag_text(name) for name in self.tags}
            wider = max(map(len, tags.values()), default=0)
            lines += [f"  {name:<{wide}}  {tag:<{wider}}  {self.merge(name).value}" for name, tag in tags.items()]
            if self.first_only:
                lines.append("Only in bucket 0:")
                lines += [f"  {_statement_text(self.program, at)}" for at in sorted(self.first_only)]
        if self.reasons:
            lines.append("Not partitioned:")
            lines += [f"  {name}: {reason}" for name, reason in self.reasons.items()]
        return "\n".join(lines)


def partition_text(partitioned: Partitioned) -> str:
    """Return in words which relations are partitioned, and by what.

    Examples
    --------
    >>> partition_text({"orders": ("oid",), "lineitem": ("oid", "number")})
    'orders by oid, lineitem by oid and number'
    """
    return ", ".join(f"{name} by {' and '.join(columns)}" for name, columns in partitioned.items())


def lay_out(program: Program, partitioned: Partitioned) -> Layout:
    """Return the layout that partitions the given relations by the given columns.

    Raises
    ------
    LayoutError
        If it is not legal in one round, naming the statement and why; or if the program is cyclic, naming the cycle.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "ON +orders(cid, oid) { n[cid] += 1; total[] += 1 }"
    >>> layout = lay_out(parse(text), {"orders": ("cid",)})
    >>> layout.tag_text("n"), layout.tag_text("total")
    ('local(k1)', 'part')
    """
    for relation, columns in partitioned.items():
        known = program.relation(relation).column_names
        for place, column in enumerate(columns or ("",)):
            if column not in known or column in columns[:place]:
                fault = "is named twice" if column in known else "is no column"
                raise LayoutError(f"{relation}: {column!r} {fault}", hint=f"Its columns: {', '.join(known)}.")
    return _Trial(program, partitioned).layout()


class _Trial:
    """A choice of columns, tried on a program: where the terms of its statements and views are right."""

    def __init__(self, program: Program, partitioned: Partitioned) -> None:
        self.program = program
        self.partitioned = partitioned
        self.tags: dict[str, MapSpread] = {}

    def layout(self) -> Layout:
        """Return the layout; LayoutError if there is none."""
        program, tags = self.program, self.tags
        writers: dict[str, list[At]] = {}
        for index, trigger in enumerate(program.triggers):
            if program.is_batch_form(trigger):
                continue  # it follows the triggers of single events
            for place, statement in enumerate(trigger.statements):
                writers.setdefault(statement.map, []).append((index, place))
        first_only: set[At] = set()
        for name in topological(program):
            places = {at: self._place(at) for at in writers.get(name, ())}
            tags[name] = self._tag(name, places)
            if tags[name] != SAME_TAG:
                first_only |= {at for at, found in places.items() if found.kind is PlaceKind.SAME}
        for view in program.shown_views:  # nobody finishes the others where they lie: their entries are folded
            self._check_view(view)
        batches = set()
        for index, trigger in enumerate(program.triggers):
            first_of_batch = self._first_of_batch(index) if trigger.on is On.BATCH else None
            if first_of_batch is not None:
                batches.add(trigger.relation)
                first_only |= first_of_batch
        ordered = {definition.name: tags[definition.name] for definition in program.maps}
        return Layout(program, dict(self.partitioned), ordered, frozenset(first_only), frozenset(batches))

    def _place(self, at: At) -> Distribution:
        """Return where the value of a statement's term is right, the target's key taken into account."""
        trigger, statement = _statement_at(self.program, at)
        relation = self.program.relation(trigger.relation)
        positions = tuple(map(relation.position, self.partitioned.get(trigger.relation, ())))
        try:
            return _checked_place(trigger, statement, self.tags, positions)
        except NotOneRound as reason:
            raise self._refusal(_statement_text(self.program, at), reason, "another column") from None

    def _check_view(self, view: ViewDef) -> None:
        """Check that what the expressions of a view read of maps is where its rows are."""
        keys = [key.name for key in self.program.map(view.maps[0]).keys]
        tags = [self.tags[name] for name in view.maps]
        homes = {tuple(keys[position] for position in tag.keys) for tag in tags if tag.spread is Spread.LOCAL}
        placer = Placer(ONE, self.tags, bound=keys)
        for scalar in view.expressions:
            try:
                placer.of_view(scalar, homes)
            except NotOneRound as reason:
                where = f"VIEW {view.name}: {print_scalar(scalar)}"
                raise self._refusal(where, reason, "a key of the view") from None

    def _refusal(self, where: str, reason: NotOneRound, other: str) -> LayoutError:
        short = where if len(where) <= _LONGEST else f"{where[: _LONGEST // 2].rstrip()} …"
        return LayoutError(
            f"not one round with {partition_text(self.partitioned) or 'one bucket'}: in {short}, {reason}",
            hint=f"Replicate one of the relations, or partition by {other}.",
        )

    def _tag(self, name: str, places: Mapping[At, Distribution]) -> MapSpread:
        kinds = {found.kind for found in places.values()}
        if kinds <= {PlaceKind.SAME}:
            return SAME_TAG
        statements = {at: _statement_at(self.program, at)[1] for at in places}
        if kinds == {PlaceKind.HOME}:
            # A variable may stand in several keys; the same positions must do for all statements.
            common = [
                set.intersection(
                    *(
                        {position for position, key in enumerate(statements[at].keys) if key == found.home[column]}
                        for at, found in places.items()
                        if column < len(found.home)
                    )
                )
                for column in range(max(len(found.home) for found in places.values()))
            ]
            if all(common) and len({len(found.home) for found in places.values()}) == 1:
                return MapSpread(Spread.LOCAL, tuple(map(min, common)))
        assigned = [at for at, statement in statements.items() if statement.op == ":="]
        if assigned and PlaceKind.SAME in kinds:
            statement = _statement_text(self.program, assigned[0])
            raise LayoutError(
                f"not one round: {statement} replaces {name}, which other statements fill differently",
                hint="Fill a map by += or by :=, not by both.",
            )
        return PART_TAG

    def _first_of_batch(self, index: int) -> set[At] | None:
        """Return the statements of a batch trigger that only bucket 0 runs; None if it does not suit the tags."""
        first: set[At] = set()
        for place, statement in enumerate(self.program.triggers[index].statements):
            try:
                found = self._place((index, place))
            except LayoutError:
                return None
            tag = self.tags[statement.map]
            if tag.spread is Spread.LOCAL:
                own = tuple(statement.keys[position] for position in tag.keys)
                if found.kind is not PlaceKind.HOME or own != found.home:
                    return None
            elif found.kind is PlaceKind.SAME:
                first |= set() if tag == SAME_TAG else {(index, place)}
            elif tag == SAME_TAG:
                return None
        return first


def _statement_at(program: Program, at: At) -> tuple[Trigger, Statement]:
    trigger = program.triggers[at[0]]
    return trigger, trigger.statements[at[1]]


def _statement_text(program: Program, at: At) -> str:
    trigger, statement = _statement_at(program, at)
    return f"ON {trigger.on.event(trigger.relation)}: {print_statement(statement, program)}"


def _checked_place(
    trigger: Trigger, statement: Statement, tags: Mapping[str, MapSpread], positions: tuple[int, ...]
) -> Distribution:
    if statement.op == ":=":
        spread = sorted(name for name in maps_of(statement.term) if tags[name].spread is Spread.PART)
        if spread:
            raise NotOneRound(f":= needs the whole of {spread[0]}, which lies in parts")
        placer = Placer(statement.term, tags)
        place = placer.statement(statement.term)
    elif trigger.on is On.BATCH:
        batch = (trigger.relation, positions) if positions else None
        placer = Placer(statement.term, tags, batch)
        place = placer.statement(statement.term)
        if positions and place.kind is PlaceKind.SAME:
            raise NotOneRound("it does not depend on the rows of the batch")
    else:
        home = tuple(trigger.variables[position] for position in positions)
        placer = Placer(statement.term, tags, bound=trigger.variables, event=home)
        place = placer.statement(statement.term)
    if place.kind is PlaceKind.HOME:
        # Name the target's keys that are the home, if it has them.
        own = {placer.representative(key): key for key in reversed(statement.keys)}
        if set(place.home) <= own.keys():
            return Distribution(PlaceKind.HOME, tuple(own[variable] for variable in place.home))
        return Distribution(PlaceKind.PART)
    return place
