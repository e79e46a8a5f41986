"""What the code of all triggers of a program shares: its stores, and the ways out of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cumulus.algebra.terms import Term
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGINT, HUGEINT, MAX_PRECISION, Kind, SqlType, decimal
from cumulus.engine.failures import ErrorSites
from cumulus.engine.native.code.typing import Typing
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import (
    Lane,
    NotNativeError,
    Scalar,
    about,
    bits_of,
    from_words,
    lane_of,
    to_words,
)
from cumulus.engine.native.kernel.language import BOOL, I64, I128, PTR, Expr, Function, Local, Signature, i64, select
from cumulus.engine.native.scalars.arithmetic import Fixed
from cumulus.engine.native.scalars.patterns import Piece, match_function
from cumulus.engine.native.scalars.python_functions import Callee, PythonFunction, remember_call
from cumulus.engine.native.store import memory_layout as layout
from cumulus.engine.native.store.memory_layout import ContextLayout, MapLayout, Reason, Status, lanes_of, value_lanes
from cumulus.engine.native.store.text_table import number_of_text, text_at
from cumulus.engine.native.values.codec import BoxOp
from cumulus.m3.program import Program
from cumulus.scalars.user import UserFunction

_MOST_REMEMBERED_WORDS = 3
CONTEXT = Local(PTR, "context")
"""The only parameter that all functions of a program have."""

WriteSums: TypeAlias = Callable[[MapLayout, Body, int], None]
"""Writes the sums of a term: into which store, into which function, and where its failures are told to come from."""

_CALL = Signature("call", (I64, PTR), I64)
_REPORT = Signature("report", (I64, I64, I64), I64)
_BOX = Signature("box", (I64, I64, I64, I64), I64)


class ProgramWriter:
    """The program while its code is written.

    Parameters
    ----------
    program, functions
        What is written, and the user's functions by name.
    context
        Receives stores, literals and words; the same for both times that the code is written.
    """

    def __init__(self, program: Program, functions: Mapping[str, UserFunction], context: ContextLayout) -> None:
        self.program = program
        self.context = context
        self.sites = ErrorSites()
        self.python_functions: list[PythonFunction] = []
        self.functions: list[Function] = []
        """Functions that the triggers call, in the order in which they were written."""
        self.batch: dict[str, tuple[Column, ...]] = {}
        """The relation whose net change the trigger is fired with."""
        self.kept = dict(program.kept)
        self._user = functions
        self._maps = {definition.name: definition for definition in program.maps}
        self.relations = {relation.name: relation.columns for relation in program.relations}
        self.typing = Typing(self._maps, self.relations, functions)
        self._scratches = 0
        self._shared: dict[Term, tuple[MapLayout, Function, int]] = {}
        self._shared_count = 0
        self._trigger = ""
        self._made: dict[Any, Function] = {}
        self._event_texts: dict[Expr, tuple[str, int]] = {}
        """Addresses of texts that are columns of events: relation and column."""
        for number, definition in enumerate(program.maps):
            with about(definition.name):
                context.add(definition.name, layout.store_of(definition, number))
        for relation in program.relations:
            if relation.name in self.kept and relation.key and not relation.key_rely:
                self.store(self.kept[relation.name]).find_by(tuple(sorted(relation.key_positions)))

    def begin(self, trigger: str, batch: Mapping[str, tuple[Column, ...]]) -> None:
        """Say that the code of a trigger begins."""
        self._trigger = trigger
        self._shared, self._shared_count = {}, 0
        self._scratches = 0
        self.batch = dict(batch)

    # --- stores -----------------------------------------------------------------------------------------------------

    def store(self, name: str) -> MapLayout:
        """Return the store of a map."""
        return self.context.stores[name]

    def column(self, name: str, column: str) -> int:
        """Return the number of a value column of a map."""
        return self._maps[name].column_index(column)

    def scratch(
        self, key: Any, names: tuple[str, ...], lanes: tuple[Lane, ...], types: Sequence[SqlType], marks: int = 0
    ) -> MapLayout:
        """Return the store of a map made for a moment; triggers share those of one key and layout."""
        values = value_lanes(types, is_scratch=True)
        store = MapLayout(f"#{key}", len(self.context.stores), names, lanes, values, marks=marks)
        return replace(
            self.context.add(("scratch", key, lanes, tuple(value.held for value in values)), store), key_names=names
        )

    def next_scratch(self) -> int:
        """Return a number that no other scratch store of the trigger has."""
        self._scratches += 1
        return self._scratches

    def batch_store(self, relation: str) -> MapLayout:
        """Return the store of the net change of a relation."""
        columns = self.relations[relation]
        return self.scratch(("batch", relation), tuple(each.name for each in columns), lanes_of(columns), (BIGINT,))

    def ahead(self, store: MapLayout) -> MapLayout:
        """Return the store of what a firing has changed in a map: its values, and a mark."""
        beside = MapLayout(
            f"#ahead {store.name}", len(self.context.stores), store.key_names, store.keys, store.values, marks=1
        )
        return self.context.add(("ahead", store.name), beside)

    def shared(
        self, term: Term, free: tuple[str, ...], lanes: tuple[Lane, ...], kept: SqlType, write: WriteSums
    ) -> tuple[MapLayout, Function, int]:
        """Return the store of a term that is computed when the firing first needs it, what does that, and its site."""
        if term not in self._shared:
            self._shared[term] = self._write_shared(free, lanes, kept, write)
        return self._shared[term]

    def _write_shared(
        self, free: tuple[str, ...], lanes: tuple[Lane, ...], kept: SqlType, write: WriteSums
    ) -> tuple[MapLayout, Function, int]:
        number = self._shared_count  # it may write others
        self._shared_count += 1
        site = self.sites.shared()
        flag = self.context.word(("shared", number))
        store = self.scratch(("shared", number), free, lanes, (kept,))
        with define(f"{self._trigger}_shared_{number}", [("context", PTR)], inline=False) as body:
            body.leave_if(body.load(I64, CONTEXT, flag).ne(0))
            body.store(I64, CONTEXT, flag, 1)
            body.call(store.shape.clear, self.record(store))
            write(store, body, site)
        self.functions.append(body.function)
        return store, body.function, site

    def forget_shared(self, body: Body) -> None:
        """Write that no shared term of the trigger has been computed."""
        for number in range(self._shared_count):
            body.store(I64, CONTEXT, self.context.word(("shared", number)), 0)

    def record(self, store: MapLayout) -> Expr:
        """Return the address of a store's record."""
        return CONTEXT.at(self.context.record(store))

    def function(self, key: Any, make: Callable[[int], Function]) -> Function:
        """Return the function for a key, written when it is first wanted; its number tells it from all before."""
        if key not in self._made:
            self._made[key] = make(len(self._made))
            self.functions.append(self._made[key])
        return self._made[key]

    # --- texts ------------------------------------------------------------------------------------------------------

    def matcher(self, pieces: tuple[Piece, ...]) -> Function:
        """Return the function that matches a pattern; see `cumulus.engine.native.scalars.patterns`."""
        return self.function(("like", pieces), lambda number: match_function(f"like_{number}", pieces))

    def event_text(self, body: Body, relation: str, column: int, lane: Lane, words: Sequence[Expr]) -> Scalar:
        """Write the reading of a text that comes with an event: its address and its length."""
        address = body.let(words[0].to(PTR), "text")
        self._event_texts[address] = (relation, column)
        null = body.let(words[1] < 0, "null") if lane.nullable else None
        return Scalar(lane.type, address, null, length=words[1])

    def bytes_of(self, body: Body, text: Scalar) -> tuple[Expr, Expr]:
        """Write where a text that is not NULL lies; return its address and its length."""
        if text.length is not None:
            return text.value, text.length
        return text_at(body, body.load(PTR, CONTEXT, layout.TEXTS), text.value)

    def numbered(self, body: Body, scalar: Scalar) -> Scalar:
        """Write the finding of a text's or interval's number, if it has none; an event's column will come with one."""
        if scalar.span is not None:
            return replace(scalar, value=self._span_number(body, scalar, scalar.span[:3]), span=None)
        if scalar.length is None:
            return scalar
        if scalar.value in self._event_texts:
            self.context.numbered.add(self._event_texts[scalar.value])
        number = body.let(i64(0), "number")
        with body.when(scalar.is_there):
            texts = body.load(PTR, CONTEXT, layout.TEXTS)
            body.set(number, body.call(number_of_text, texts, scalar.value, scalar.length))
            with body.when(number < 0, likely=False):
                body.store(I64, CONTEXT, layout.STATUS, Status.NO_MEMORY.value)
                body.set(number, 0)
        return replace(scalar, value=number, length=None)

    def _span_number(self, body: Body, scalar: Scalar, words: Sequence[Expr]) -> Expr:
        number = body.let(i64(0), "number")
        with body.when(scalar.is_there):
            parts = [Scalar(BIGINT, word) for word in words]
            found, failed = self.call(body, Callee("span"), parts, scalar.type, [None] * len(parts))
            body.set(number, select(failed, i64(0), found.value))
        return number

    def words(self, body: Body, lane: Lane, scalar: Scalar) -> list[Expr]:
        """Write the words of a value, as `to_words`, of whatever form it is."""
        return to_words(body, lane, self.numbered(body, scalar))

    # --- ways out ---------------------------------------------------------------------------------------------------

    def no_memory(self, body: Body, store: MapLayout) -> None:
        """Emit the abort of the firing for lack of memory."""
        self.emit_abort(body, Status.NO_MEMORY, store)

    def emit_abort(self, body: Body, status: Status, store: MapLayout) -> None:
        """Emit the abort of the firing: a status, and the map that caused it."""
        body.store(I64, CONTEXT, layout.STATUS, status.value)
        body.store(I64, CONTEXT, layout.CULPRIT, store.number)

    def report(self, body: Body, site: int, reason: Reason, row: Expr) -> None:
        """Write that something failed."""
        body.call_at(body.load(PTR, CONTEXT, layout.REPORT), _REPORT, i64(site), i64(reason.value), row)

    def box(self, body: Body, op: BoxOp, left: Expr, right: Expr, more: int = 0) -> Local:
        """Write what makes a box of other ones, or of a number."""
        return body.call_at(body.load(PTR, CONTEXT, layout.BOX), _BOX, i64(op), left, right, i64(more), hint="box")

    def user_function(self, name: str) -> UserFunction | None:
        """Return the user's function of a name, if there is one."""
        return self._user.get(name)

    def literal(self, body: Body, value: Any, sql_type: SqlType) -> Expr:
        """Write the reading of a text or interval that stands in the program."""
        return body.load(I64, CONTEXT, self.context.literal(value, sql_type), "literal")

    def call(
        self,
        body: Body,
        callee: Callee,
        args: Sequence[Scalar],
        result: SqlType,
        fixed: Fixed | None = None,
        *,
        is_rare: bool = False,
    ) -> tuple[Scalar, Expr]:
        """Write a call of a Python function; return its value, and whether it failed.

        Parameters
        ----------
        is_rare
            As in `PythonFunction`.
        fixed
            For each argument its value as text if it is a literal, else None. If given, what the function gave is
            remembered: it depends on its arguments alone.
        """
        lanes = tuple(_argument_lane(arg, is_remembered=fixed is not None) for arg in args)
        if sum(lane.words for lane in lanes) > layout.FRAME_WORDS:
            raise NotNativeError("a function with very many arguments")
        given = lane_of(result, False)
        self.python_functions.append(PythonFunction(callee, lanes, given, is_rare))
        number = len(self.python_functions) - 1
        arg_words = [self._argument_words(body, lane, arg) for lane, arg in zip(lanes, args, strict=True)]

        def call() -> list[Expr]:
            for at, word in enumerate(word for words in arg_words for word in words):
                body.store(I64, CONTEXT, layout.FRAME + 8 * at, word)
            outcome = body.call_at(
                body.load(PTR, CONTEXT, layout.CALL), _CALL, i64(number), CONTEXT.at(layout.FRAME), hint="outcome"
            )
            return [
                outcome,
                *(body.load(I64, CONTEXT, layout.FRAME + 8 * word, "result") for word in range(given.words)),
            ]

        asked = [place for place, text in enumerate(fixed or ()) if text is None]
        keys = [word for place in asked for word in arg_words[place]]
        is_boxed = any(lane.type.kind is Kind.BIGDECIMAL for lane in (*lanes, given))  # a box may be emptied
        if fixed is not None and 0 < len(keys) <= _MOST_REMEMBERED_WORDS and not is_boxed:
            store = self._memo((callee, lanes, tuple(fixed)), [lanes[place] for place in asked], given)
            outcome, *words = remember_call(body, self.record(store), store, keys, call)
        else:
            outcome, *words = call()
        if result.kind is Kind.VARCHAR:  # code may look at what is NULL, or nothing
            words = [body.let(select(outcome.eq(0), words[0], i64(0)), "text")]
        found = from_words(body, given, words)
        return Scalar(result, found.value, outcome.eq(1), bits_of(result)), outcome.eq(2)

    def _argument_words(self, body: Body, lane: Lane, arg: Scalar) -> list[Expr]:
        if not lane.is_text:
            return self.words(body, lane, _in_lane(lane, arg))
        assert arg.length is not None
        length = arg.length if arg.null is None else select(arg.null, i64(-1), arg.length)
        return [arg.value.to(I64), body.let(length, "length")]

    def _memo(self, key: Any, lanes: Sequence[Lane], result: Lane) -> MapLayout:
        """Return the store of what a function gave: an outcome and one more, so that it is never 0, and the value."""
        names = tuple(str(place) for place in range(len(lanes)))
        store = MapLayout(f"#memo {key}", len(self.context.stores), names, tuple(lanes), (), marks=1 + result.words)
        return self.context.add(("memo", key), store)


def _argument_lane(arg: Scalar, *, is_remembered: bool) -> Lane:
    """Return a lane for an argument, wide enough for what it may be; what is remembered needs a number."""
    found = arg.type
    if arg.length is not None and not is_remembered:
        return Lane(found, arg.null is not None, is_text=True)
    if arg.value.type is I128:
        found = decimal(MAX_PRECISION, arg.scale) if found.kind is Kind.DECIMAL else HUGEINT
    if found.kind is Kind.NULL:
        found = HUGEINT
    return lane_of(found, arg.null is not None)


def _in_lane(lane: Lane, arg: Scalar) -> Scalar:
    if lane.is_wide and arg.value.type is not I128:
        value = arg.value.to(I64) if arg.value.type is BOOL else arg.value
        return Scalar(arg.type, value.to(I128), arg.null, arg.bits)
    return arg
