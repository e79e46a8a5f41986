"""One-round layouts: which relations can be spread over buckets so that no bucket ever needs another.

Decided on M3 alone (docs/m3.md, "One-round layouts"). Relations are partitioned by one key column each, or replicated:
then their events fire in every bucket. `lay_out` finds the tag of every map for a given choice or says which statement
forbids it; `choose_layout` looks for the best choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from cumulus.algebra.printing import print_scalar
from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import ONE, Number, add
from cumulus.catalog.partition import bucket_of
from cumulus.errors import LayoutError
from cumulus.layout.placement import PART_TAG, SAME_TAG, Illegal, Place, PlaceKind, Placer, Spread, Tag
from cumulus.layout.shared_keys import partition_choices, references
from cumulus.m3.dataflow import topological
from cumulus.m3.printer import print_statement
from cumulus.m3.program import On, Program, Statement, Trigger, ViewDef

Key = tuple[object, ...]
Values = tuple[Number, ...]


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
        Relation → the column whose bucket (`cumulus.catalog.partition.bucket_of`) its rows go to. All other relations
        are replicated. Empty: one bucket.
    tags
        Of every map.
    first_only
        (trigger, statement), by index, that only bucket 0 runs.
    batches
        Relations whose `ON BATCH` trigger is right in this layout; of others the single-event triggers are used.
    reasons
        Relation that is not partitioned → why it is not.
    """

    program: Program
    partitioned: Mapping[str, str]
    tags: Mapping[str, Tag]
    first_only: frozenset[tuple[int, int]] = frozenset()
    batches: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def one_bucket(self) -> bool:
        """Whether nothing is partitioned: more than one bucket would only repeat the work."""
        return not self.partitioned

    def key_position(self, relation: str) -> int | None:
        """Return the 0-based position of the partition column of `relation`; None if it is replicated."""
        column = self.partitioned.get(relation)
        return None if column is None else self.program.relation(relation).position(column)

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

    def merged(self, name: str, buckets: Iterable[Iterable[tuple[Key, Values]]]) -> dict[Key, Values]:
        """Return the entries of the map `name`, from its entries in every bucket, bucket 0 first.

        An entry that does not exist, as where parts cancel, is left out: by the COUNT column if there is one, else if
        all values are 0.
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
                entries[key] = values if old is None else tuple(map(add, old, values))
        count = definition.column_index(definition.count) if definition.count else None
        return {key: values for key, values in entries.items() if (any(values) if count is None else values[count])}

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
            replace(each, initial=tuple(e for e in each.initial if self._starts_in(each.name, e[0], bucket, buckets)))
            for each in self.program.maps
        )
        return replace(self.program, triggers=tuple(triggers), maps=maps)

    def _starts_in(self, name: str, key: Key, bucket: int, buckets: int) -> bool:
        """Whether `bucket` opens with the entry that the map `name` starts with at `key`."""
        tag = self.tags[name]
        match tag.spread:
            case Spread.SAME:
                return True
            case Spread.LOCAL:
                return bucket_of(key[tag.key], buckets) == bucket
            case Spread.PART:
                return bucket == 0

    def tag_text(self, name: str) -> str:
        """Return the tag of a map in words: ``same``, ``local(oid)`` or ``part``."""
        tag = self.tags[name]
        if tag.spread is not Spread.LOCAL:
            return str(tag.spread.value)
        return f"local({self.program.map(name).keys[tag.key].name})"

    def explain(self) -> str:
        """Return the layout in words: what is partitioned, every map's tag, and why nothing more is partitioned."""
        lines = []
        streams = [item.name for item in self.program.relations if not item.static]
        if self.one_bucket:
            lines.append("One bucket: no relation can be partitioned.")
        else:
            parts = ", ".join(f"{name} by {column}" for name, column in self.partitioned.items())
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
                lines += [f"  {_statement_text(self.program, *place)}" for place in sorted(self.first_only)]
        if self.reasons:
            lines.append("Not partitioned:")
            lines += [f"  {name}: {reason}" for name, reason in self.reasons.items()]
        return "\n".join(lines)


def lay_out(program: Program, partitioned: Mapping[str, str]) -> Layout:
    """Return the layout that partitions the given relations by the given columns.

    Raises
    ------
    LayoutError
        If it is not legal in one round, naming the statement and why; or if the program is cyclic, naming the cycle.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> text = "ON +orders(cid, oid) { n[cid] += 1; total[] += 1 }"
    >>> layout = lay_out(parse(text), {"orders": "cid"})
    >>> layout.tag_text("n"), layout.tag_text("total")
    ('local(k1)', 'part')
    """
    for relation, column in partitioned.items():
        if column not in program.relation(relation).column_names:
            raise LayoutError(f"{relation} has no column {column}", hint="Name a column of the relation.")
    tags: dict[str, Tag] = {}
    first_only: set[tuple[int, int]] = set()
    writers = _writers(program)
    for name in topological(program):
        places = [
            (index, place, _place(program, partitioned, tags, index, place))
            for index, place in writers.get(name, [])
            if not _is_batch_form(program, index)
        ]
        tags[name] = _tag(program, name, places)
        if tags[name] != SAME_TAG:
            first_only |= {(index, place) for index, place, found in places if found.kind is PlaceKind.SAME}
    for view in program.views:
        _check_view(program, partitioned, tags, view)
    batches = set()
    for index, trigger in enumerate(program.triggers):
        if trigger.on is On.BATCH and _batch_fits(program, partitioned, tags, index):
            batches.add(trigger.relation)
            first_only |= _same_in_batch(program, partitioned, tags, index)
    ordered = {definition.name: tags[definition.name] for definition in program.maps}
    return Layout(program, dict(partitioned), ordered, frozenset(first_only), frozenset(batches))


def _writers(program: Program) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for index, trigger in enumerate(program.triggers):
        for place, statement in enumerate(trigger.statements):
            found.setdefault(statement.map, []).append((index, place))
    return found


def _is_batch_form(program: Program, index: int) -> bool:
    """Whether a trigger is the batch form of single-event triggers, which then decide about the tags."""
    trigger = program.triggers[index]
    return trigger.on is On.BATCH and any(
        other.relation == trigger.relation and other.on is not On.BATCH for other in program.triggers
    )


def _statement_text(program: Program, index: int, place: int) -> str:
    trigger = program.triggers[index]
    sign = "BATCH " if trigger.on is On.BATCH else trigger.on.value
    return f"ON {sign}{trigger.relation}: {print_statement(trigger.statements[place], program)}"


def _place(program: Program, partitioned: Mapping[str, str], tags: Mapping[str, Tag], index: int, place: int) -> Place:
    """Return where the value of a statement's term is right, the target's key taken into account."""
    trigger = program.triggers[index]
    statement = trigger.statements[place]
    column = partitioned.get(trigger.relation)
    position = program.relation(trigger.relation).position(column) if column is not None else None
    try:
        return _checked_place(trigger, statement, tags, position)
    except Illegal as reason:
        raise LayoutError(
            f"not one round with {_named(partitioned)}: in {_statement_text(program, index, place)}, {reason}",
            hint="Replicate one of the relations, or partition by another column.",
        ) from None


def _check_view(program: Program, partitioned: Mapping[str, str], tags: Mapping[str, Tag], view: ViewDef) -> None:
    """Check that what the expressions of a view read of maps is where its rows are."""
    keys = [key.name for key in program.map(view.maps[0]).keys]
    homes = {keys[tags[name].key] for name in view.maps if tags[name].spread is Spread.LOCAL}
    placer = Placer(ONE, tags, bound=keys)
    for scalar in view.expressions:
        try:
            placer.of_view(scalar, homes)
        except Illegal as reason:
            raise LayoutError(
                f"not one round with {_named(partitioned)}: in VIEW {view.name}: {print_scalar(scalar)}, {reason}",
                hint="Replicate one of the relations, or partition by a key of the view.",
            ) from None


def _named(partitioned: Mapping[str, str]) -> str:
    return ", ".join(f"{relation} by {column}" for relation, column in partitioned.items()) or "one bucket"


def _checked_place(trigger: Trigger, statement: Statement, tags: Mapping[str, Tag], position: int | None) -> Place:
    if statement.op == ":=":
        spread = sorted(name for name in maps_of(statement.term) if tags[name].spread is Spread.PART)
        if spread:
            raise Illegal(f":= needs the whole of {spread[0]}, which lies in parts")
        placer = Placer(statement.term, tags)
        found = placer.statement(statement.term)
    elif trigger.on is On.BATCH:
        batch = (trigger.relation, position) if position is not None else None
        placer = Placer(statement.term, tags, batch)
        found = placer.statement(statement.term)
        if position is not None and found.kind is PlaceKind.SAME:
            raise Illegal("it does not depend on the rows of the batch")
    else:
        placer = Placer(statement.term, tags, bound=trigger.variables)
        home = trigger.variables[position] if position is not None else ""
        found = placer.statement(statement.term, home)
    if found.kind is PlaceKind.HOME:
        # Name the target's key that is the home, if it has one.
        own = [key for key in statement.keys if placer.representative(key) == found.home]
        return Place(PlaceKind.HOME, own[0]) if own else Place(PlaceKind.PART)
    return found


def _tag(program: Program, name: str, places: list[tuple[int, int, Place]]) -> Tag:
    kinds = {place.kind for _, _, place in places}
    if kinds <= {PlaceKind.SAME}:
        return SAME_TAG
    if kinds == {PlaceKind.HOME}:
        # A variable may stand in several keys; one position must do for all statements.
        positions = [
            {
                position
                for position, key in enumerate(program.triggers[index].statements[place].keys)
                if key == found.home
            }
            for index, place, found in places
        ]
        common = set.intersection(*positions)
        if common:
            return Tag(Spread.LOCAL, min(common))
    assigned = [(index, place) for index, place, _ in places if program.triggers[index].statements[place].op == ":="]
    if assigned and PlaceKind.SAME in kinds:
        statement = _statement_text(program, *assigned[0])
        raise LayoutError(
            f"not one round: {statement} replaces {name}, which other statements fill differently",
            hint="Fill a map by += or by :=, not by both.",
        )
    return PART_TAG


def _batch_fits(program: Program, partitioned: Mapping[str, str], tags: Mapping[str, Tag], index: int) -> bool:
    """Whether the batch trigger at `index` fills its maps in a way that suits the tags they have."""
    trigger = program.triggers[index]
    for place, statement in enumerate(trigger.statements):
        try:
            found = _place(program, partitioned, tags, index, place)
        except LayoutError:
            return False
        tag = tags[statement.map]
        if tag.spread is Spread.SAME and found.kind is not PlaceKind.SAME:
            return False
        if tag.spread is Spread.LOCAL and not (found.kind is PlaceKind.HOME and statement.keys[tag.key] == found.home):
            return False
    return True


def _same_in_batch(
    program: Program, partitioned: Mapping[str, str], tags: Mapping[str, Tag], index: int
) -> set[tuple[int, int]]:
    return {
        (index, place)
        for place, statement in enumerate(program.triggers[index].statements)
        if tags[statement.map] != SAME_TAG and _place(program, partitioned, tags, index, place).kind is PlaceKind.SAME
    }


def choose_layout(
    program: Program, sizes: Mapping[str, float] | None = None, hint: Mapping[str, str] | None = None
) -> Layout:
    """Return the legal layout that partitions the most, or one bucket with the reasons.

    Parameters
    ----------
    program
        A program; a cyclic one gets one bucket.
    sizes
        Relation → expected rows (any unit). Without it a relation counts the more, the more others it refers to.
    hint
        Relation → column: partition these, and what else is possible.

    Returns
    -------
    Layout
        With `reasons` for every stream that is not partitioned.

    Raises
    ------
    LayoutError
        If `hint` is not legal, naming the statement.
    """
    chosen = lay_out(program, hint) if hint else None
    streams = {trigger.relation for trigger in program.triggers}
    try:
        topological(program)
    except LayoutError as cyclic:
        if hint:
            raise
        whole = {definition.name: SAME_TAG for definition in program.maps}
        return Layout(program, {}, whole, reasons=dict.fromkeys(sorted(streams), cyclic.message))
    guessed = _weights(program)
    weights = {name: float((sizes or {}).get(name, guessed[name])) for name in streams}

    def weight(partitioned: Mapping[str, str]) -> float:
        return sum(weights[name] for name in partitioned)

    reasons: dict[str, str] = {}
    choices = sorted(partition_choices(program), key=lambda choice: -weight(choice))
    if chosen is None:
        candidates = [found for choice in choices if (found := _largest(program, choice, weight, reasons))]
        chosen = max(
            candidates,
            # Keys have many values, other columns perhaps three; after that, the less to add up the better.
            key=lambda found: (weight(found.partitioned), _key_count(program, found), _local_count(found)),
            default=lay_out(program, {}),
        )
    for choice in choices:
        # Views that share no map may be spread by keys of their own.
        rest = {name: column for name, column in choice.items() if name not in chosen.partitioned}
        for name, column in sorted(rest.items(), key=lambda item: -weights[item[0]]):
            wider = _legal(program, {**chosen.partitioned, name: column}, reasons, name)
            chosen = wider or chosen
    others = sorted(streams - set(chosen.partitioned))
    return replace(chosen, reasons={name: reasons.get(name, "it has no column to join by") for name in others})


def _weights(program: Program) -> dict[str, float]:
    """Guess relative sizes: facts refer to dimensions, and each relation referred to makes one four times as large."""
    parents = references(program)
    weights: dict[str, float] = {}
    for relation in parents:
        found: set[str] = set()
        waiting = [relation]
        while waiting:
            for parent in parents.get(waiting.pop(), frozenset()) - found:
                found.add(parent)
                waiting.append(parent)
        weights[relation] = 4.0 ** len(found - {relation})
    return weights


def _key_count(program: Program, layout: Layout) -> int:
    """Count the partition columns that are in a primary or foreign key of their relation."""
    found = 0
    for name, column in layout.partitioned.items():
        relation = program.relation(name)
        keys = {*relation.key, *(own for reference in relation.foreign_keys for own in reference.columns)}
        found += column in keys
    return found


def _local_count(layout: Layout) -> int:
    """Count the maps that need no adding up."""
    return sum(layout.merge(name) is not Merge.ADD for name in layout.tags)


def _legal(program: Program, partitioned: Mapping[str, str], reasons: dict[str, str], about: str) -> Layout | None:
    try:
        return lay_out(program, partitioned)
    except LayoutError as illegal:
        reasons.setdefault(about, illegal.message)
        return None


def _largest(
    program: Program,
    choice: Mapping[str, str],
    weight: Callable[[Mapping[str, str]], float],
    reasons: dict[str, str],
) -> Layout | None:
    """Return a layout that partitions as much of `choice` as can be: one relation more at a time, heaviest first."""
    found: Layout | None = _legal(program, choice, {}, "")
    if found is not None:
        return found
    best: Layout | None = None
    names = sorted(choice, key=lambda name: -weight({name: choice[name]}))
    for start in names:
        grown = _legal(program, {start: choice[start]}, reasons, start)
        if grown is None:
            continue
        for name in names:
            if name not in grown.partitioned:
                wider = _legal(program, {**grown.partitioned, name: choice[name]}, reasons, name)
                grown = wider or grown
        if best is None or weight(grown.partitioned) > weight(best.partitioned):
            best = grown
    return best
