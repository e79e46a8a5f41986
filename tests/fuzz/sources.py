"""Random FROM clauses: which relations, joined how, under what names their columns are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzz.expressions import Col, Expressions, Scope
from fuzz.schema import Reference
from fuzz.tree import Derived, Expr, Join, Query, Source, TableRef

JOIN_KINDS = {
    "comma join": 3.0, "JOIN ON": 4.0, "USING": 1.2, "NATURAL": 0.7, "CROSS JOIN": 0.4, "LEFT JOIN": 2.0,
    "RIGHT JOIN": 1.0, "FULL JOIN": 1.0,
}  # fmt: skip
RANGES = ("<", "<=", ">", ">=", "<>")


@dataclass(frozen=True)
class Known:
    """A relation that FROM may name: a table, an earlier view, a common table expression."""

    name: str
    columns: tuple[tuple[str, str], ...]
    origin: str = "table"


@dataclass(frozen=True)
class From:
    """Sources joined so far: the comma list, the columns, and conditions that belong into WHERE."""

    sources: tuple[Source, ...]
    columns: tuple[Col, ...]
    where: tuple[Expr, ...] = ()
    hidden: frozenset[Col] = frozenset()
    """Columns that USING or NATURAL has merged into one that stands under its bare name."""
    ambiguous: frozenset[str] = frozenset()
    """Merged columns whose bare name stands for another column too."""

    def names(self) -> list[str]:
        """Return what columns may be called without their table, as often as there are columns so called."""
        return [*(column.name for column in self.columns if column not in self.hidden), *self.ambiguous]


class Sources(Expressions):
    """Makes FROM clauses.

    Attributes
    ----------
    known
        What FROM may name, common table expressions last.
    room
        How many more references to tables the view may have.
    references
        Tables, each with a reference to another one, along which most joins go.
    of_alias
        Alias → the table, view or common table expression that has got it last.
    """

    known: list[Known]
    room: int
    references: list[tuple[str, Reference]]
    of_alias: dict[str, str]

    def derived(self, depth: int) -> tuple[Query, tuple[tuple[str, str], ...]]:
        """Return a query for FROM, and its columns."""
        raise NotImplementedError

    def new_alias(self, name: str) -> str:
        """Return an alias that is unique in the view: now and then the table's own name."""
        raise NotImplementedError

    def froms(self, count: int, depth: int, first: tuple[Known, ...] = ()) -> From:
        """Return a FROM clause of `count` sources, those of `first` among them."""
        made = self._leaf(first[0] if first else None, depth, None)
        for index in range(1, count):
            given = first[index] if index < len(first) else None
            if self.room <= 0 and given is None:
                break
            made = self._joined(made, given, depth, may_nest=index + 1 < count)
        return made

    def _leaf(self, given: Known | None, depth: int, beside: From | None) -> From:
        """Return one source alone."""
        if given is None and depth < 2 and self.room > 0 and self.chance(0.1, *DERIVED):
            query, columns = self.derived(depth + 1)
            alias = self.new_alias("")
            return From((Derived(query, alias),), tuple(Col(name, kind, alias) for name, kind in columns))
        known = given or self._known(beside)
        self.room -= known.origin != "cte"
        alias = self.new_alias(known.name)
        self.of_alias[alias] = known.name
        columns = tuple(Col(name, kind, alias) for name, kind in known.columns)
        return From((TableRef(known.name, alias, known.origin),), columns)

    def _known(self, beside: From | None) -> Known:
        used = [source.name for source in beside.sources if isinstance(source, TableRef)] if beside else []
        if used and self.chance(0.12, "self join"):
            return next(known for known in self.known if known.name == used[0])
        views = [known for known in self.known if known.origin == "view"]
        if views and self.chance(0.15, "view over view"):
            return self.one(views)
        ctes = [known for known in self.known if known.origin == "cte"]
        if ctes and self.draw.random() < 0.3:
            return self.one(ctes)
        related = [
            other
            for child, reference in self.references
            for name, other in ((child, reference.parent), (reference.parent, child))
            if name in used
        ]
        if related and self.draw.random() < 0.9:
            chosen = self.one(related)
            return next(known for known in self.known if known.name == chosen)
        return self.one([known for known in self.known if known.origin == "table"])

    def _joined(self, left: From, given: Known | None, depth: int, *, may_nest: bool) -> From:
        """Return one more source joined."""
        right = self._leaf(given, depth, left)
        if may_nest and self.room > 1 and self.draw.random() < 0.1:
            right = self._joined(right, None, depth, may_nest=False)
            if len(right.sources) > 1 or right.hidden:
                return self._comma(left, right)
        common = [
            name
            for name in dict.fromkeys(right.names())
            if left.names().count(name) == 1 == right.names().count(name)
            and self._kind_of(left, name) == self._kind_of(right, name)
        ]
        weights = dict(JOIN_KINDS)
        shared = set(left.names()) & set(right.names())
        if not common:
            weights["USING"] = 0
        if not common or shared != set(common):
            weights["NATURAL"] = 0
        if len(left.columns) > 12:
            weights["CROSS JOIN"] = 0
        kind = self.pick(weights)
        if kind == "comma join":
            return self._comma(left, right)
        sources = left.sources[-1], right.sources[0]
        both = replace(left, sources=left.sources[:-1], columns=(*left.columns, *right.columns))
        if kind in ("USING", "NATURAL"):
            chosen = tuple(common)
            if kind == "USING":
                chosen = tuple(self.draw.sample(common, min(len(common), self.one((1, 1, 2)))))
            # What a comma has put beside the join is no side of it: NATURAL and USING do not see it.
            if len(left.sources) > 1:
                return self._comma(left, right)
            return self._merged(both, sources, chosen, natural=kind == "NATURAL")
        if kind == "CROSS JOIN":
            join = Join(kind, *sources)
        else:
            # ON sees only the two sides of its join.
            inside = {source.alias for source in _leaves(sources[0])}
            seen = tuple(column for column in left.columns if column.alias in inside)
            on = self._on(seen or left.columns, right.columns, outer=kind != "JOIN ON")
            join = Join(kind if kind != "JOIN ON" else "JOIN", *sources, on)
        return self._without_ambiguity(replace(both, sources=(*both.sources, join)))

    def _kind_of(self, made: From, name: str) -> str:
        return next(column.kind for column in made.columns if column.name == name)

    def _comma(self, left: From, right: From) -> From:
        columns = (*left.columns, *right.columns)
        made = From(
            (*left.sources, *right.sources), columns, (), left.hidden | right.hidden, left.ambiguous | right.ambiguous
        )
        made = self._without_ambiguity(made)
        # The condition stands in WHERE, where a merged column may be ambiguous by now.
        mine = tuple(column for column in left.columns if column in made.columns)
        where = (*left.where, *right.where, *self._on(mine, right.columns, outer=False))
        return replace(made, where=where)

    def _merged(self, both: From, sources: tuple[Source, Source], names: tuple[str, ...], *, natural: bool) -> From:
        weights = {"JOIN": 4.0, "LEFT JOIN": 1.2, "RIGHT JOIN": 0.6, "FULL JOIN": 0.6}
        join = Join(self.pick(weights), *sources, (), () if natural else names, natural)
        kinds = {column.name: column.kind for column in both.columns}
        own = tuple(column for column in both.columns if column.alias or column.name not in names)
        columns = (*(Col(name, kinds[name]) for name in names), *own)
        hidden = both.hidden | {column for column in own if column.name in names}
        return self._without_ambiguity(replace(both, sources=(*both.sources, join), columns=columns, hidden=hidden))

    def _without_ambiguity(self, made: From) -> From:
        """Forget merged columns whose bare name now stands for another column too."""
        names = made.names()
        lost = {column for column in made.columns if not column.alias and names.count(column.name) > 1}
        columns = tuple(column for column in made.columns if column not in lost)
        return replace(made, columns=columns, ambiguous=made.ambiguous | {column.name for column in lost})

    def _on(self, left: tuple[Col, ...], right: tuple[Col, ...], *, outer: bool) -> tuple[Expr, ...]:
        """Return conditions that join two sides."""
        sides = Scope(left)
        mine = tuple(column for column in right if column.alias)
        if self.chance(0.1, "theta join"):
            met = self.meeting(sides, mine, RANGES)
            if met is not None:
                return (replace(met, marks=("comparison", "theta join")), *self._equal(sides, mine, share=0.4))
        conditions = self.along(left, mine, 0.85) or self._equal(sides, mine, share=1.0) or (Expr("TRUE"),)
        if self.draw.random() < (0.25 if outer else 0.1):
            # A condition about one side only: where an outer join differs from an inner one.
            conditions += (self.predicate(Scope(self.one((left, mine)))),)
        elif self.draw.random() < 0.12:
            conditions += self._equal(sides, mine, share=1.0)
        return tuple(dict.fromkeys(conditions))

    def along(self, left: tuple[Col, ...], right: tuple[Col, ...], share: float) -> tuple[Expr, ...]:
        """Return the conditions of a join along a reference with a probability, if there is one between two sides."""
        if not self.references or self.draw.random() >= share:
            return ()
        sides = (left, right), (right, left)
        found = [
            met
            for child, reference in self.references
            for children, parents in sides
            for one in self._aliases(children, child)
            for two in self._aliases(parents, reference.parent)
            if one != two and (met := _equal_columns(reference, children, one, parents, two))
        ]
        return self.one(found) if found else ()

    def _aliases(self, columns: tuple[Col, ...], table: str) -> list[str]:
        """Return under which names columns of a table are there."""
        aliases = dict.fromkeys(column.alias for column in columns if column.alias)
        return [each for each in aliases if self.of_alias.get(each) == table]

    def _equal(self, sides: Scope, mine: tuple[Col, ...], share: float) -> tuple[Expr, ...]:
        met = self.meeting(sides, mine, ("=",)) if self.draw.random() < share else None
        if met is None:
            return ()
        if self.draw.random() < 0.05:
            return (replace(met, template="{0} IS NOT DISTINCT FROM {1}", marks=("IS DISTINCT FROM",)),)
        return (met,)


def _equal_columns(
    reference: Reference, children: tuple[Col, ...], child: str, parents: tuple[Col, ...], parent: str
) -> tuple[Expr, ...]:
    """Return the equations of a reference, if all its columns are there."""
    mine = {column.name: column for column in children if column.alias == child}
    theirs = {column.name: column for column in parents if column.alias == parent}
    pairs = list(zip(reference.columns, reference.parent_columns, strict=True))
    if not all(one in mine and two in theirs for one, two in pairs):
        return ()
    return tuple(Expr("{0} = {1}", (mine[a].expr(), theirs[b].expr()), marks=("comparison",)) for a, b in pairs)


DERIVED = ("derived table (plain)", "derived table (aggregated)")


def _leaves(source: Source) -> list[TableRef | Derived]:
    if isinstance(source, Join):
        return _leaves(source.left) + _leaves(source.right)
    return [source]
