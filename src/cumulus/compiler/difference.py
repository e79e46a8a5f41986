"""What a change of a script changes in its program: relations, views, maps and statements added, dropped and kept.

Maps are the same if their columns have equal definitions up to renaming, whatever the maps are called; a map without
definitions is the same as one of its name. Statements are the same if they write the same column and add the same
term, up to the names of variables and of maps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cumulus.algebra.scope import rename, variables_of
from cumulus.algebra.terms import AggSum, MapExtremum, MapRead, Term, factors_of, rebuild
from cumulus.calculus.polynomial import monomials
from cumulus.compiler.maps.canonical_forms import canonical
from cumulus.m3.printer import print_statement
from cumulus.m3.program import MapDef, Program, Statement, Trigger, ViewDef

Form: TypeAlias = str


@dataclass(slots=True)
class KindDifference:
    """Differences of one kind of object (maps, views, …) between two programs.

    Parameters
    ----------
    kept
        Pairs of the old and the new name.
    changed
        Names, with what changed.
    """

    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    changed: list[tuple[str, str]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "added": self.added,
            "dropped": self.dropped,
            "kept": [{"old": old, "new": new} for old, new in self.kept],
            "changed": [{"name": name, "what": what} for name, what in self.changed],
        }


@dataclass(frozen=True, slots=True)
class ProgramDifference:
    """The difference of two programs.

    Parameters
    ----------
    statements
        Event such as ``+orders`` → its statements as text.
    texts
        Name of an added or dropped map → its definition.
    """

    relations: KindDifference
    views: KindDifference
    cubes: KindDifference
    maps: KindDifference
    statements: Mapping[str, KindDifference]
    texts: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`."""
        return {
            "relations": self.relations.as_dict(),
            "views": self.views.as_dict(),
            "cubes": self.cubes.as_dict(),
            "maps": {**self.maps.as_dict(), "definitions": dict(self.texts)},
            "statements": {event: part.as_dict() for event, part in self.statements.items()},
        }

    def __str__(self) -> str:
        lines: list[str] = []
        cubes = [("cubes", self.cubes)] if self.cubes != KindDifference() else []
        for title, part in (("relations", self.relations), ("views", self.views), *cubes, ("maps", self.maps)):
            lines.append(f"{title}: {_counts(part)}")
            lines += [f"  + {name}{self._map_text(title, '+', name)}" for name in part.added]
            lines += [f"  - {name}{self._map_text(title, '-', name)}" for name in part.dropped]
            lines += [f"  ~ {name}: {what}" for name, what in part.changed]
            lines += [f"  = {new}, before {old}" for old, new in part.kept if old != new]
        for event, part in self.statements.items():
            lines.append(f"ON {event}: {_counts(part)}")
            lines += [f"  + {text}" for text in part.added]
            lines += [f"  - {text}" for text in part.dropped]
        return "\n".join(lines)

    def _map_text(self, title: str, sign: str, name: str) -> str:
        return f"  {self.texts[sign + name]}" if title == "maps" and self.texts.get(sign + name) else ""


def _counts(part: KindDifference) -> str:
    told = [f"{len(part.added)} added", f"{len(part.dropped)} dropped"]
    told += [f"{len(part.changed)} changed"] if part.changed else []
    return ", ".join([*told, f"{len(part.kept)} kept"])


def compare(old: Program, new: Program) -> ProgramDifference:
    """Return what `new` adds to `old`, drops from it and keeps.

    Examples
    --------
    >>> from cumulus.compiler import compile_sql
    >>> table = "CREATE TABLE r (a INT, x INT);"
    >>> one = compile_sql(f"{table} CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a", batches=False)
    >>> two = compile_sql(f"{table} CREATE VIEW w AS SELECT a AS b, COUNT(*) AS m FROM r GROUP BY b", batches=False)
    >>> print(compare(one, two))
    relations: 0 added, 0 dropped, 1 kept
    views: 1 added, 1 dropped, 0 kept
      + w
      - v
    maps: 0 added, 0 dropped, 1 kept
      = w, before v
    ON +r: 0 added, 0 dropped, 1 kept
    ON -r: 0 added, 0 dropped, 1 kept
    """
    before, after = _Forms(old), _Forms(new)
    relations = _compare_named(
        {r.name: r for r in old.relations}, {r.name: r for r in new.relations}, "its declaration"
    )
    maps, texts = _compare_maps(before, after)
    views = _compare_named(
        {view.name: before.view(view) for view in old.views},
        {view.name: after.view(view) for view in new.views},
        "its definition",
    )
    cubes = _compare_named(
        {cube.name: cube for cube in old.cubes}, {cube.name: cube for cube in new.cubes}, "its dimensions or levels"
    )
    return ProgramDifference(relations, views, cubes, maps, _compare_statements(before, after), texts)


def _compare_named(old: Mapping[str, Any], new: Mapping[str, Any], what: str) -> KindDifference:
    return KindDifference(
        [name for name in new if name not in old],
        [name for name in old if name not in new],
        [(name, name) for name in old if name in new and old[name] == new[name]],
        [(name, what) for name in old if name in new and old[name] != new[name]],
    )


def _compare_maps(before: _Forms, after: _Forms) -> tuple[KindDifference, dict[str, str]]:
    part = KindDifference()
    texts: dict[str, str] = {}
    waiting: dict[Form, list[str]] = {}
    for each in before.program.maps:
        waiting.setdefault(before.maps[each.name], []).append(each.name)
    fresh: list[MapDef] = []
    for each in after.program.maps:
        same = waiting.get(after.maps[each.name])
        if same:
            # Of several maps of one form, one that keeps its name is the same.
            name = each.name if each.name in same else same[0]
            same.remove(name)
            part.kept.append((name, each.name))
        else:
            fresh.append(each)
    gone = [each for each in before.program.maps if each.name in {name for left in waiting.values() for name in left}]
    for each in list(fresh):
        old = next((one for one in gone if before.entries[one.name] == after.entries[each.name]), None)
        if old is not None:
            fresh.remove(each)
            gone.remove(old)
            part.changed.append((each.name, _changed_columns(before, old, after, each)))
    for sign, names, maps in (("+", part.added, fresh), ("-", part.dropped, gone)):
        for each in maps:
            names.append(each.name)
            texts[sign + each.name] = each.sql
    return part, texts


def _changed_columns(before: _Forms, old: MapDef, after: _Forms, new: MapDef) -> str:
    was, now = before.columns[old.name], after.columns[new.name]
    told = [f"column {name} is new" for name, form in now.items() if form not in was.values()]
    told += [f"column {name} is gone" for name, form in was.items() if form not in now.values()]
    renamed = f", before {old.name}" if old.name != new.name else ""
    return f"{', '.join(told) or 'its types or its count'}{renamed}"


def _compare_statements(before: _Forms, after: _Forms) -> dict[str, KindDifference]:
    found: dict[str, KindDifference] = {}
    events = [
        (trigger.on, trigger.relation) for program in (before.program, after.program) for trigger in program.triggers
    ]
    for on, relation in dict.fromkeys(events):
        was = _statement_forms(before, before.program.trigger(on, relation))
        now = _statement_forms(after, after.program.trigger(on, relation))
        left = Counter(form for form, _ in was)
        part = KindDifference()
        for form, text in now:
            if left[form]:
                left[form] -= 1
                part.kept.append((text, text))
            else:
                part.added.append(text)
        for form, text in reversed(was):
            if left[form]:
                left[form] -= 1
                part.dropped.insert(0, text)
        found[f"{on.value}{' ' if len(on.value) > 1 else ''}{relation}"] = part
    return found


def _statement_forms(forms: _Forms, trigger: Trigger | None) -> list[tuple[Form, str]]:
    if trigger is None:
        return []
    return [(forms.statement(trigger, each), print_statement(each, forms.program)) for each in trigger.statements]


class _Forms:
    """The parts of a program in a form without names."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.columns: dict[str, dict[str, Form]] = {}
        self.entries: dict[str, Form] = {}
        self.maps: dict[str, Form] = {}
        self._orders: dict[str, tuple[int, ...]] = {}
        for each in program.maps:
            self._add(each)

    def _add(self, each: MapDef) -> None:
        names = tuple(key.name for key in each.keys)
        if not each.definitions:
            self.columns[each.name] = {value.name: f"{each.name}.{value.name}" for value in each.values}
            self._orders[each.name] = tuple(range(len(names)))
            self.entries[each.name] = f"map {each.name} of {len(names)} keys"
        else:
            forms = [_definition_form(names, definition) for definition in each.definitions]
            self.columns[each.name] = {v.name: f[1] for v, f in zip(each.values, forms, strict=True)}
            counted = each.column_index(each.count) if each.count else 0
            self.entries[each.name], self._orders[each.name] = forms[counted][0], forms[counted][2]
        types = {v.name: str(v.type) for v in each.values}
        columns = sorted(f"{form} {types[name]}" for name, form in self.columns[each.name].items())
        count = self.columns[each.name].get(each.count, "")
        keys = [each.keys[place] for place in self._orders[each.name]]
        along = each.ordered and [key.name for key in keys].index(each.ordered)
        self.maps[each.name] = f"{columns} {count} {[str(key.type) for key in keys]} {along}"

    def _read(self, node: Any) -> Any:
        """Return a term with maps under their forms, keys in the order of the form."""
        changed = rebuild(node, self._read)
        match changed:
            case MapRead(name, column, keys, state) if name in self.columns:
                only = next(iter(self.columns[name]))
                which = "" if state == "CHANGED" else self.columns[name][column or only]
                return MapRead(self.maps[name], which, tuple(keys[p] for p in self._orders[name]), state)
            case MapExtremum(end, name, keys) if name in self.columns:
                return MapExtremum(end, self.maps[name], tuple(keys[p] for p in self._orders[name]))
            case _:
                return changed

    def statement(self, trigger: Trigger, statement: Statement) -> Form:
        """Return a statement without names."""
        events = {name: f"event {place}" for place, name in enumerate(trigger.variables)}
        term = rename(self._read(statement.term), events)
        order = self._orders.get(statement.map, tuple(range(len(statement.keys))))
        keys = [events.get(statement.keys[place], statement.keys[place]) for place in order]
        factors = factors_of(term)
        named = {name: f"key {place}" for place, name in enumerate(keys) if name not in events.values()}
        numbered = canonical(named.values(), [rename(factor, named) for factor in factors])
        column = statement.column or next(iter(self.columns.get(statement.map, {"": ""})))
        target = self.columns.get(statement.map, {}).get(column, statement.map)
        shown = [name if name in events.values() else named[name] for name in keys]
        return f"{target} {shown} {statement.op} {numbered.skeleton} {numbered.values} {numbered.keys}"

    def view(self, view: ViewDef) -> Form:
        """Return a view without the names of its maps, keys and value columns."""
        names: dict[str, str] = {}
        for name in reversed(view.maps):
            definition = self.program.map(name)
            for value in definition.values:
                names[f"{name}.{value.name}"] = names[value.name] = self.columns[name][value.name]
            order = self._orders[name]
            names |= {definition.keys[place].name: f"key {at}" for at, place in enumerate(order)}
        scalars = [str(rename(self._read(scalar), names)) for scalar in view.expressions]
        directions = [(item.descending, item.nulls_first) for item in view.order_by]
        columns = [f"{column.name} {column.type} {column.not_null}" for column in view.columns]
        shape = (view.where is None, view.repeat is None, view.limit, view.offset)
        return f"{columns} {[self.entries[name] for name in view.maps]} {scalars} {directions} {shape}"


def _definition_form(keys: tuple[str, ...], definition: Term) -> tuple[Form, Form, tuple[int, ...]]:
    """Return what entries a column has, the column itself, and the places of its keys in the order of the form."""
    body = definition.term if isinstance(definition, AggSum) else definition
    found = monomials(body)
    if len(found) == 1:
        form = canonical(keys, found[0].factors)
        order = tuple(keys.index(name) for name in form.keys)
        return form.skeleton, f"{form.skeleton} {found[0].coefficient} {form.values}", order
    names = {name: f"key {place}" for place, name in enumerate(keys)}
    for name in sorted(variables_of(body) - set(keys)):
        names.setdefault(name, f"own {len(names)}")
    text = str(rename(body, names))
    return text, text, tuple(range(len(keys)))
