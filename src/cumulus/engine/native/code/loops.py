"""Looking up and looping: what one atom of a product is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

from cumulus.algebra.terms import Range, Term, Var
from cumulus.catalog.types import BIGINT, HUGEINT, Kind
from cumulus.engine.frames.value_words import NULL_WORD
from cumulus.engine.native.code.loop_sources import LoopSource
from cumulus.engine.native.code.numbers import Env, Evaluator, Then
from cumulus.engine.native.kernel.lanes import Lane, NotNativeError, Scalar, bits_of, from_words, kernel_type
from cumulus.engine.native.kernel.language import I64, I128, PTR, U32, Expr, Local, i64, select
from cumulus.engine.native.kernel.language import Immediate as Literal
from cumulus.engine.native.scalars.scalar_code import ScalarEmitter
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import MapLayout, Reason
from cumulus.engine.native.store.ordered_index import root_of
from cumulus.engine.native.store.row_layout import LAST, ROOT, address
from cumulus.errors import ValidationError


@dataclass(frozen=True, slots=True)
class SortedGroup:
    """Rows that an order sorts, as code has found them.

    Parameters
    ----------
    chain
        Which index has their chain; None if they are all rows of the map.
    first, root
        The first row of the chain, and the root of the tree; 0 where there is none.
    """

    chain: int | None
    first: Expr
    root: Local

    @property
    def start(self) -> Expr:
        """Where walks in order start: at the root, or at the first row of the chain if there is no tree."""
        return select(self.root.ne(0), self.root, self.first)


class Scanner:
    """Writes look-ups and loops into one function."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.writer, self.body = evaluator.writer, evaluator.body
        self.open_loops = 0
        """How many loops what is written now stands in."""

    def scan(self, source: LoopSource, keys: tuple[Term | Range, ...], env: Env, then: Then) -> None:
        """Write the look-up or the loop that one atom is."""
        store, row = source.store, self.evaluator.row
        with self.bound(store, keys, env) as bound:
            if len(bound) == len(store.keys):
                self._look_up(source, _words_in(bound), env, then)
            elif source.ahead is not None:
                # What the firing has written, then what it has not: then the same code would stand twice.
                self._scan_ahead(source, source.ahead, keys, bound, env, then)
            else:
                self._loop(store, bound, lambda row, place: self.entry(source, keys, row, place, env, then))
            self.evaluator.row = row

    def group(self, store: MapLayout, order: int, bound: Mapping[int, Sequence[Expr]]) -> SortedGroup:
        """Write the finding of the group that some keys name, in an order; one that is not small is a tree then."""
        body, record, shape = self.body, self.writer.record(store), store.shape
        chain = shape.chain(order)
        if chain is None:
            return SortedGroup(None, i64(0), body.load(I64, record, shape.tree(order) + ROOT, "root"))
        first = body.call(shape.first(chain), record, *_words_in(bound), hint="first")
        return SortedGroup(chain, first, root_of(body, shape, order, record, first))

    def place_of(self, store: MapLayout, row: Expr) -> Expr:
        """Write where a row of a map stands; it moves when any row is put."""
        return address(self.body, store.shape, self.writer.record(store), row)

    def next_of(self, store: MapLayout, chain: int, place: Expr) -> Local:
        """Write the reading of which row is next in a chain, at the place of one."""
        return self.body.load(U32, place, store.shape.link(chain), "following")

    @contextmanager
    def bound(self, store: MapLayout, keys: tuple[Term | Range, ...], env: Env) -> Iterator[dict[int, list[Expr]]]:
        """Write the keys of an atom that have a value, as words by place; what is inside runs where they can be."""
        if len(keys) != len(store.keys):
            raise ValidationError(f"{store.name} has {len(store.keys)} keys, not {len(keys)}")
        with ExitStack() as computed:
            bound: dict[int, list[Expr]] = {}
            for place, key in enumerate(keys):
                if isinstance(key, Range) or (isinstance(key, Var) and key.name not in env):
                    continue
                code = computed.enter_context(self.evaluator.evaluated(partial(self.evaluator.scalar, key, env)))
                words, possible = self.key_words(store.keys[place], code)
                if possible is not None:
                    computed.enter_context(self.body.when(possible))
                bound[place] = words
            yield bound

    def _look_up(self, source: LoopSource, words: list[Expr], env: Env, then: Then) -> None:
        body, store = self.body, source.store
        if source.ahead is None:
            row = body.call(store.shape.find, self.writer.record(store), *words, hint="row")
            with body.when(row.ne(0)):
                self.evaluator.row = row if source.is_batch else self.evaluator.row
                number = source.value(body, self.place_of(store, row))
                self.evaluator.unless_zero(number, lambda: then(env, [number]))
            return
        place = self._new_place(source.store, source.ahead, words)
        with body.when(place.to(I64).ne(0)):
            number = source.value(body, place)
            self.evaluator.unless_zero(number, lambda: then(env, [number]))

    def _new_place(self, store: MapLayout, ahead: MapLayout, words: Sequence[Expr]) -> Local:
        """Write the look-up of an entry as it will be; return where it stands, nowhere if it is not there.

        A map and what stands beside it have their values at the same places of a row.
        """
        body = self.body
        place = body.let(Literal(PTR, 0), "place")
        changed = body.call(ahead.shape.find, self.writer.record(ahead), *words, hint="changed")
        with body.when(changed.ne(0)):
            body.set(place, self.place_of(ahead, changed))
        with body.otherwise():
            row = body.call(store.shape.find, self.writer.record(store), *words, hint="row")
            with body.when(row.ne(0)):
                body.set(place, self.place_of(store, row))
        return place

    def _scan_ahead(
        self,
        source: LoopSource,
        ahead: MapLayout,
        keys: tuple[Term | Range, ...],
        bound: Mapping[int, list[Expr]],
        env: Env,
        then: Then,
    ) -> None:
        """Write a loop over a map as it will be, made from a list of rows, so that the inner code stands once."""
        body, store = self.body, source.store
        picked = self.writer.scratch(("picked", self.writer.next_scratch()), store.key_names, store.keys, (), marks=1)
        record = self.writer.record(picked)
        body.call(picked.shape.clear, record)

        def pick(row: Expr, place: Expr) -> None:
            del row
            found = [body.load(I64, place, 8 * word) for word in range(store.shape.keys)]
            chosen = body.call(picked.shape.put, record, *found, hint="picked")
            with body.when(chosen.eq(0), likely=False):
                self.writer.no_memory(body, store)
            with body.otherwise():
                body.store(I64, self.place_of(picked, chosen & ROW), picked.shape.value(0), 1)

        self._loop(store, bound, pick)
        self._loop(ahead, bound, pick)

        def each(row: Expr, place: Expr) -> None:
            del row
            found = [body.load(I64, place, 8 * word) for word in range(store.shape.keys)]
            at = self._new_place(store, ahead, found)
            with body.when(at.to(I64).ne(0)):
                self.entry(source, keys, i64(0), at, env, then)

        self._loop(picked, {}, each)

    def _loop(self, store: MapLayout, bound: Mapping[int, Sequence[Expr]], visit: Callable[[Expr, Expr], None]) -> None:
        """Write a loop over the rows of a map that have some key words."""
        body, record = self.body, self.writer.record(store)
        if not bound:
            with self.looping():
                for place, row in self.rows_of(store):
                    visit(row, place)
            return
        index = store.index(tuple(sorted(bound)))
        row = body.call(store.shape.first(index), record, *_words_in(bound), hint="row")
        with body.loop_while(row.ne(0)), self.looping():
            place = body.let(self.place_of(store, row), "place")
            following = self.next_of(store, index, place)
            visit(row, place)
            body.set(row, following)

    @contextmanager
    def looping(self) -> Iterator[None]:
        """Say that what is inside is written into a loop."""
        self.open_loops += 1
        yield
        self.open_loops -= 1

    def rows_of(self, store: MapLayout) -> Iterator[tuple[Local, Local]]:
        """Write a loop over the rows of a map, there or not, unless marks say so."""
        body, record = self.body, self.writer.record(store)
        with body.counting(1, body.load(I64, record, LAST, "last") + 1, "row") as row:
            place = body.let(self.place_of(store, row), "place")
            if not store.marks:
                yield place, row
                return
            with body.when(body.load(I64, place, store.shape.value(store.value_words), "mark").ne(0)):
                yield place, row

    def entry(
        self, source: LoopSource, keys: tuple[Term | Range, ...], row: Expr, place: Expr, env: Env, then: Then
    ) -> None:
        """Write what happens at a row of a loop: its number, if that is not 0, and its keys."""
        if source.is_batch:
            self.evaluator.row = row
        number = source.value(self.body, place)
        self.evaluator.unless_zero(
            number, lambda: self._unpack(source.store, keys, place, env, lambda inner: then(inner, [number]))
        )

    def _unpack(
        self, store: MapLayout, keys: tuple[Term | Range, ...], place: Expr, env: Env, then: Callable[[Env], None]
    ) -> None:
        """Bind the loop variables to parts of the key, and filter."""
        inner = dict(env)
        with ExitStack() as tests:
            for position, pattern in enumerate(keys):
                if isinstance(pattern, Range):
                    here = self.key_at(store, position, place)
                    holds = tests.enter_context(self.evaluator.evaluated(partial(self._within, pattern, here, env)))
                    tests.enter_context(self.body.when(holds))
                elif isinstance(pattern, Var) and pattern.name not in env:
                    here = self.key_at(store, position, place)
                    if pattern.name in inner:
                        holds = self.evaluator.compare("=", inner[pattern.name], here)
                        tests.enter_context(self.body.when(holds))
                    else:
                        inner[pattern.name] = here
            then(inner)

    def key_at(self, store: MapLayout, position: int, place: Expr) -> Scalar:
        """Write the reading of a key column of a row."""
        words = [self.body.load(I64, place, 8 * word, "key") for word in store.words_of(position)]
        return from_words(self.body, store.keys[position], words)

    def _within(self, pattern: Range, here: Scalar, env: Env, coder: ScalarEmitter) -> Expr:
        inside = self.evaluator.scalars(env, coder)
        tests = [
            inside.comparisons.compare(f"{op}=" if end[1] else op, here, inside.code(end[0]))
            for end, op in ((pattern.low, ">"), (pattern.high, "<"))
            if end is not None
        ]
        return reduce(and_, tests)

    @contextmanager
    def fitting(self, store: MapLayout, keys: Sequence[Scalar]) -> Iterator[list[Expr]]:
        """Write a whole key as words; what is inside runs where they can hold it, elsewhere that is reported."""
        with ExitStack() as fits:
            words: list[Expr] = []
            for lane, key in zip(store.keys, keys, strict=True):
                part, possible = self.key_words(lane, key)
                if possible is not None:
                    with self.body.when(~possible, likely=False):
                        self.evaluator.report(Reason.OVERFLOW)
                    fits.enter_context(self.body.when(possible))
                words += part
            yield words

    def key_words(self, lane: Lane, scalar: Scalar) -> tuple[list[Expr], Expr | None]:
        """Write a scalar as the words of a key, and the condition under which there can be such a key."""
        scalar, possible = self.as_key(lane, scalar)
        if scalar.null is not None and not lane.nullable:
            there = ~scalar.null
            possible = there if possible is None else possible & there
        return self.writer.words(self.body, lane, scalar), possible

    def as_key(self, lane: Lane, scalar: Scalar) -> tuple[Scalar, Expr | None]:
        """Return a scalar in the kernel type of a key, and the condition under which it fits."""
        if scalar.type.kind is Kind.NULL:
            return Scalar(lane.type, Literal(kernel_type(lane.type), 0), scalar.null), None
        exact = all(each.is_integer or each.kind is Kind.DECIMAL for each in (lane.type, scalar.type))
        if not exact:
            if lane.type.is_float and scalar.type.is_float:
                return scalar, None
            if lane.type.kind is not scalar.type.kind:
                raise NotNativeError(f"a {scalar.type} as a key of type {lane.type}")
            return scalar, None
        scale = lane.type.scale if lane.type.kind is Kind.DECIMAL else 0
        value, bits, possible = scalar.value, scalar.bits, None
        if scalar.scale < scale:
            factor = 10 ** (scale - scalar.scale)
            bits += factor.bit_length()
            if bits > 126:
                raise NotNativeError(f"a {scalar.type} as a key of type {lane.type}")
            value = value.to(I128) * Literal(I128, factor) if bits > 63 else value * factor
        elif scalar.scale > scale:
            factor = 10 ** (scalar.scale - scale)
            if value.type is I128:
                raise NotNativeError(f"a {scalar.type} as a key of type {lane.type}")
            possible = (value % factor).eq(0)
            value = value // factor
        kernel = kernel_type(lane.type)
        if value.type is I128 and kernel is I64:
            value = self.body.let(value, "wide")
            fits = value.eq(value.to(I64).to(I128))
            if scalar.null is not None:
                fits = fits | scalar.null
            possible = fits if possible is None else possible & fits
        part = self.body.let(value.to(kernel), "part")
        if lane.nullable and not lane.has_sign and bits >= bits_of(HUGEINT if lane.is_wide else BIGINT):
            is_number = part >= Literal(kernel, _least(lane))
            is_number = is_number if scalar.null is None else is_number | scalar.null
            possible = is_number if possible is None else possible & is_number
        return Scalar(lane.type, part, scalar.null, bits), possible


def _least(lane: Lane) -> int:
    """Return the least number whose last word is not NULL's, of a lane whose type has none below."""
    return (NULL_WORD + 1) << (64 if lane.is_wide else 0)


def _words_in(bound: Mapping[int, Sequence[Expr]]) -> list[Expr]:
    """Return the words of keys in the order of their places."""
    return [word for place in sorted(bound) for word in bound[place]]
