"""Look-ups and loops as Python source: what one atom of a join is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from cumulus.algebra.terms import Range, Term, Var
from cumulus.engine.interpreter.error_guards import assigned, can_fail, holding
from cumulus.engine.interpreter.loop_sources import CHANGES, DictSource
from cumulus.engine.interpreter.numbers import Value
from cumulus.engine.interpreter.scalars import Env, EnvScalars
from cumulus.engine.interpreter.writer import Writer
from cumulus.errors import ValidationError
from cumulus.scalars.python_code import NamePool, PythonCode

Then: TypeAlias = Callable[[Env, list[Value]], None]
"""Writes what happens for each binding, with the values to multiply."""


@dataclass(slots=True)
class LoopCoder:
    """Writes look-ups, loops and conditions; `depth` is in how many loops the code stands."""

    writer: Writer
    pool: NamePool
    scalars: EnvScalars
    depth: int = 0

    def scan(self, source: DictSource, keys: tuple[Term | Range, ...], env: Env, then: Then) -> None:
        """Write the look-up or the loop that one atom is."""
        if len(keys) != source.width:
            raise ValidationError(f"{source.text} has {source.width} keys, not {len(keys)}")
        bound = {
            place: self.scalars.code(key, env)
            for place, key in enumerate(keys)
            if not isinstance(key, Range) and not (isinstance(key, Var) and key.name not in env)
        }
        with ExitStack() as computed:
            for place, code in bound.items():
                if can_fail(code.text, self.pool):
                    bound[place] = code._replace(text=self.writer.fresh("part"))
                    computed.enter_context(assigned(self.writer, self.pool, bound[place].text, code.text))
            outside = self.writer.row
            self._scan_bound(source, keys, bound, env, then)
            self.writer.row = outside

    def _scan_bound(
        self, source: DictSource, keys: tuple[Term | Range, ...], bound: Mapping[int, PythonCode], env: Env, then: Then
    ) -> None:
        entry = self.writer.fresh("entry")
        if len(bound) == source.width:
            key = source.key_text([bound[place].text for place in range(len(keys))])
            self.writer.line(f"{entry} = {source.text}.get({key})")
            with self.when(f"{entry} is not None"):
                self.writer.row = key if source.text == CHANGES else self.writer.row
                self._visit(source, entry, env, then)
            return
        places = tuple(sorted(bound))
        part = source.slice(places) if places else ""
        key = self.writer.fresh("key")
        if places:
            sub = bound[places[0]].text if len(places) == 1 else f"({', '.join(bound[i].text for i in places)})"
            header = f"for {key} in {part}.get({sub}, ()):"
        else:
            header = f"for {key}, {entry} in {source.text}.items():"
        with self.writer.block(header):
            self.depth += 1
            self.writer.row = key if source.text == CHANGES else self.writer.row
            if places:
                self.writer.line(f"{entry} = {source.text}[{key}]")
            self._unpack(source, keys, key, env, lambda inner: self._visit(source, entry, inner, then))
            self.depth -= 1

    def _unpack(
        self, source: DictSource, keys: tuple[Term | Range, ...], key: str, env: Env, then: Callable[[Env], None]
    ) -> None:
        """Bind the loop variables to parts of the key that stands in `key`, and filter."""
        inner = dict(env)
        tests: list[str] = []
        for place, pattern in enumerate(keys):
            column = source.columns[place]
            text = key if source.is_bare else f"{key}[{place}]"
            here = PythonCode(text, column.type, not column.not_null)
            if isinstance(pattern, Range):
                name = self.writer.fresh("end")
                self.writer.line(f"{name} = {text}")
                tests.extend(self._within(pattern, here._replace(text=name), env))
            elif isinstance(pattern, Var) and pattern.name not in env:
                if pattern.name in inner:
                    tests.append(self.scalars.coder(inner).compare("=", inner[pattern.name], here))
                    continue
                name = self.writer.fresh(pattern.name)
                self.writer.line(f"{name} = {text}")
                inner[pattern.name] = here._replace(text=name)
        if tests:
            with self.when(" and ".join(tests), inner):
                then(inner)
        else:
            then(inner)

    def _within(self, pattern: Range, here: PythonCode, env: Env) -> list[str]:
        coder = self.scalars.coder(env)
        tests = []
        for end, sign in ((pattern.low, ">"), (pattern.high, "<")):
            if end is not None:
                tests.append(coder.compare(f"{sign}=" if end[1] else sign, here, coder.code(end[0])))
        return tests

    def _visit(self, source: DictSource, entry: str, env: Env, then: Then) -> None:
        value = source.value(entry)
        if value.text == entry and not source.may_be_zero:
            then(env, [value])
            return
        name = entry if value.text == entry else self.writer.fresh("value")
        with holding(self.writer, self.pool, value.text, name=name):
            then(env, [value._replace(text=name)])

    def when(self, condition: str, env: Env | None = None) -> AbstractContextManager[None]:
        """Write an `if`; give `env` where variables of unknown type may be compared."""
        typed = all(code.type is not None for code in (env or {}).values())
        return holding(self.writer, self.pool, condition, typed=typed)
