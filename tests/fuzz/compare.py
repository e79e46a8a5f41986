"""A case in Cumulus beside DuckDB: which views are refused, which differ, what goes wrong."""

from __future__ import annotations

import decimal
import re
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb

import cumulus
from cumulus import m3
from cumulus.catalog.events import UPSERT
from cumulus.catalog.types import EXACT
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.errors import CumulusError, EvaluationError, UnsupportedError
from cumulus.m3.program import Program
from cumulus.views import Finisher, MapViewReader
from fuzz.case import Case
from fuzz.schema import Transaction
from support.oracle import Oracle, same_bag, same_value

COMPILE_SECONDS = 10.0
RUN_SECONDS = 20.0


class TooSlowError(BaseException):
    """Time is up. Not an Exception, so that nothing on the way takes it for its own."""


@dataclass(frozen=True)
class Failure:
    """What went wrong: `kind` is "difference", "columns", "order", "error", "crash" or "timeout"; `view` may be "".

    "oracle" is DuckDB's own failure: it stops a case, and counts for none.
    """

    kind: str
    view: str
    message: str

    def signature(self) -> str:
        """Return what failures of one cause are likely to have in common."""
        lines = self.message.splitlines()
        if self.kind == "error":
            return re.sub(r"\w*\d[\w.:]*|[\w.]*[*\[(].*", "…", f"error: {lines[0]}")[:70]
        if self.kind == "crash":
            places = re.findall(r'cumulus/(\S+)", line \d+, in (\w+)', self.message)
            return f"crash: {lines[-1].split(':')[0]} in {' '.join(places[-1]) if places else 'the tests'}"
        return self.kind


@dataclass
class Comparison:
    """What came out of a case.

    Parameters
    ----------
    invalid, refused
        View → why DuckDB or Cumulus does not take it; for `refused` the feature and the message.
    failed
        Views that do not compile though they are not refused.
    shown, changed
        Views that had rows at a check, and whose rows were not the same at all checks.
    doubted
        Differences in which DuckDB agrees with us as soon as its optimizer is off.
    enforced
        Tables, child and parent, whose references the program relies on.
    """

    invalid: dict[str, str] = field(default_factory=dict)
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    doubted: list[Failure] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    enforced: frozenset[tuple[str, str]] = frozenset()


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooSlowError after some seconds of this process, so that a busy machine makes no failures."""

    def end(*_: object) -> None:
        raise TooSlowError

    def pass_over(unraisable: object) -> None:
        if not isinstance(getattr(unraisable, "exc_value", None), TooSlowError):
            hook(unraisable)

    before, hook = signal.signal(signal.SIGPROF, end), sys.unraisablehook
    sys.unraisablehook = pass_over
    # Again and again: an exception in a weak reference's callback is lost.
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        sys.unraisablehook = hook


class _Maintained:
    """The views of a program, maintained in the mode of a case."""

    def __init__(self, program: Program, case: Case) -> None:
        self.mode, self._refers = case.mode, case.refers
        if self.mode == "batch":
            self.engine = Interpreter(program)
            self.readers = {view.name: MapViewReader(Finisher(program, view), self.engine) for view in program.views}
        else:
            self.warehouse = cumulus.Warehouse(
                program, engine="interpreter" if self.mode == "interpreted" else "auto", keep="auto"
            )

    def apply(self, transaction: Transaction) -> None:
        if self.mode != "batch":
            self._apply_to_warehouse(transaction)
            return
        net: dict[str, Counter[Any]] = {}
        for sign, relation, row in transaction:
            net.setdefault(relation, Counter())[row] += sign
        with decimal.localcontext(EXACT):
            self.engine.begin()
            for relation, changes in net.items():
                self.engine.on_batch(relation, {row: count for row, count in changes.items() if count})
            self.engine.commit()
        errors = self.engine.take_errors()
        if errors:
            raise EvaluationError(f"the batch triggers tell {errors}")

    def _apply_to_warehouse(self, transaction: Transaction) -> None:
        """Apply a transaction as its events ask for: rows by key, changes of a row, or signed rows."""
        warehouse, names = self.warehouse, {name for _, name, _ in transaction}
        signs = [sign for sign, _, _ in transaction]
        if set(signs) == {UPSERT} and len(names) == 1:
            warehouse.upsert(*names, [row for _, _, row in transaction])
        elif UPSERT in signs:
            with warehouse.transaction():
                for sign, name, row in transaction:
                    {1: warehouse.insert, -1: warehouse.delete, UPSERT: warehouse.upsert}[sign](name, [row])
        elif self._refers and self.mode == "event" and signs == [-1, 1] and len(names) == 1:
            warehouse.update(*names, [transaction[0][2]], [transaction[1][2]])
        else:
            # References may hold at the end of a transaction alone.
            is_one = self.mode != "event" or (self._refers and len(transaction) > 1)
            warehouse.apply(transaction, per="call" if is_one else "event")

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        return self.readers[view].rows() if self.mode == "batch" else self.warehouse.view(view).rows()


def compare(case: Case, *, dry: bool = False, seconds: float = COMPILE_SECONDS) -> Comparison:
    """Return what comes out of a case; with `dry` DuckDB runs alone. A view may take some `seconds` to compile."""
    found = Comparison()
    oracle = Oracle(case.schema)
    try:
        names = _accepted(case, oracle, found)
        program = None if dry else _compiled(case, names, found, seconds)
        if program is None:
            if dry:
                _run(case, names, oracle, None, found)
            return found
        names = [view.name for view in program.views]
        found.enforced = frozenset(
            (each.name, key.parent) for each in program.relations for key in each.foreign_keys if key.enforced
        )
        _compare_columns(program, names, oracle, found)
        stopped = _stopped(case, names, oracle, program, found, seconds)
    finally:
        oracle.database.close()
    if stopped is None:
        return found
    # One view must not hide what the others show.
    parts = [part for name in names if len((part := _part(case, name)).views) < len(case.views)]
    for each in (compare(part, seconds=seconds) for part in parts):
        found.failures += each.failures
        found.shown |= each.shown
        found.changed |= each.changed
        found.invalid |= each.invalid
    found.failures = list(dict.fromkeys(found.failures))
    if stopped.kind == "oracle" and not parts:
        found.invalid[names[-1]] = stopped.message
    elif stopped.kind != "oracle" and not found.failures:
        found.failures.append(replace(stopped, view=names[-1]))
    return found


def _stopped(
    case: Case, names: list[str], oracle: Oracle, program: Program, found: Comparison, seconds: float
) -> Failure | None:
    """Run a case; return what stopped it, if something did."""
    try:
        with limited(seconds + len(names) - 1):
            maintained = _Maintained(program, case)
    except TooSlowError:
        return Failure("timeout", "", f"no code for the program after {seconds} s a view")
    except CumulusError as problem:
        return Failure("error", "", f"{type(problem).__name__}: {problem}")
    except Exception:  # noqa: BLE001  # whatever it is, it is what we look for
        return Failure("crash", "", _last_lines())
    try:
        with limited(RUN_SECONDS), warnings.catch_warnings():
            # What a view lacks after an error of evaluation is told by a warning.
            warnings.simplefilter("error")
            _run(case, names, oracle, maintained, found)
    except TooSlowError:
        return Failure("timeout", "", f"not through after {RUN_SECONDS} s")
    except (duckdb.FatalException, duckdb.InternalException) as problem:
        return Failure("oracle", "", f"DuckDB fails: {problem}")
    except (CumulusError, Warning) as problem:
        return Failure("error", "", f"{type(problem).__name__}: {problem}")
    except Exception:  # noqa: BLE001  # whatever it is, it is what we look for
        return Failure("crash", "", _last_lines())
    return None


def _part(case: Case, name: str) -> Case:
    """Return a case of one view and those that it reads."""
    needed = [name]
    for other, select in reversed(case.views):
        if other in needed:
            needed += [each for each, _ in case.views if re.search(rf"\b{each}\b", select)]
    return replace(case, views=tuple(view for view in case.views if view[0] in needed))


def _last_lines() -> str:
    return "\n".join(traceback.format_exc().splitlines()[-14:])


def _accepted(case: Case, oracle: Oracle, found: Comparison) -> list[str]:
    """Return the views that DuckDB takes."""
    names = []
    for name, select in case.views:
        try:
            oracle.database.execute(f"CREATE VIEW {name} AS {select}")
            oracle.rows(f"FROM {name}")
            names.append(name)
        except duckdb.Error as problem:
            found.invalid[name] = str(problem)
    return names


def _compiled(case: Case, names: list[str], found: Comparison, seconds: float) -> Program | None:
    """Return the program of all views that compile, together; None if that fails or nothing is left."""
    names = list(names)
    while names:
        try:
            return _compiled_now(case, names, seconds)
        except UnsupportedError as problem:
            gone = _refused_view(case, names, problem)
            # A feature may quote the text: what stands before its bracket names it.
            found.refused[gone] = ((problem.feature or problem.message).split(" (")[0], str(problem))
        except (Exception, TooSlowError):  # noqa: BLE001  # whatever it is, it is what we look for
            gone, failure = _failing_view(case, names, seconds)
            found.failures.append(failure)
            found.failed.add(gone)
        names.remove(gone)
        _drop_readers(case, names, gone, found)
    return None


def _compiled_now(case: Case, names: list[str], seconds: float) -> Program:
    with limited(seconds + len(names) - 1):
        # Whoever applies batches himself moves no rows around a change of their parent.
        program = compile_sql(case.sql(names), enforced=case.mode != "batch")
    wrong = m3.problems(program)
    assert not wrong, f"the program is not valid: {wrong[0].message}"
    # Text takes longer than all the rest where a program is large.
    if case.mode in ("batch", "interpreted") and sum(len(trigger.statements) for trigger in program.triggers) < 200:
        assert m3.parse(str(program)) == program, "the text of the program is not the program"
    return program


def _drop_readers(case: Case, names: list[str], gone: str, found: Comparison) -> None:
    """Take out the views that read one that is gone."""
    selects = dict(case.views)
    lost = [gone]
    for name in list(names):
        if any(re.search(rf"\b{other}\b", selects[name]) for other in lost):
            names.remove(name)
            lost.append(name)
            found.refused[name] = ("a view over a view that does not compile", selects[name])


def _failing_view(case: Case, names: list[str], seconds: float) -> tuple[str, Failure]:
    """Return a view whose compilation fails, with what it reads or else with the views before it, and how it fails."""
    alone = [(name, _part(case, name), [other for other, _ in _part(case, name).views]) for name in names]
    together = [(names[count - 1], case, names[:count]) for count in range(2, len(names) + 1)]
    for name, part, needed in [*alone, *together]:
        try:
            _compiled_now(part, needed, seconds)
        except UnsupportedError:
            continue
        except TooSlowError:
            return name, Failure("timeout", name, f"not compiled after {seconds} s a view")
        except CumulusError as problem:
            return name, Failure("error", name, f"{type(problem).__name__}: {problem}")
        except Exception:  # noqa: BLE001  # whatever it is, it is what we look for
            return name, Failure("crash", name, _last_lines())
    return names[-1], Failure("timeout", names[-1], "compiled only when tried again")


def _refused_view(case: Case, names: list[str], problem: UnsupportedError) -> str:
    """Return which view a refusal is about: by its place, as every view is one line, or else by trying."""
    place = problem.line - 1 - len(case.tables)
    if 0 <= place < len(names):
        return names[place]
    for count in range(1, len(names)):
        try:
            compile_sql(case.sql(names[:count]))
        except UnsupportedError:
            return names[count - 1]
        except Exception:  # noqa: BLE001  # that is found when this one is gone
            continue
    return names[-1]


def _compare_columns(program: Program, names: list[str], oracle: Oracle, found: Comparison) -> None:
    views = {view.name: view for view in program.views}
    for name in names:
        mine = [(column.name, str(column.type).replace("REAL", "FLOAT")) for column in views[name].columns]
        theirs = [(row[0], row[1]) for row in oracle.rows(f"DESCRIBE {name}")]
        if mine != theirs:
            found.failures.append(Failure("columns", name, f"Cumulus: {mine}\nDuckDB:  {theirs}"))


def _run(case: Case, names: list[str], oracle: Oracle, mine: _Maintained | None, found: Comparison) -> None:
    """Apply the stream to both, and compare where the case says so."""
    first: dict[str, list[tuple[Any, ...]]] = {}
    left = [name for name in names if all(failure.view != name for failure in found.failures)]
    if mine is not None:
        left = _compare_rows(case, left, oracle, mine, found, first, "before the first event")
    for index, (transaction, plain) in enumerate(zip(case.transactions, case.plain, strict=True)):
        for event in plain:
            oracle.apply(*event)
        if mine is not None:
            mine.apply(plain if case.mode == "batch" else transaction)
        if case.checks is None or index in case.checks:
            left = _compare_rows(case, left, oracle, mine, found, first, f"after transaction {index + 1}")


def _compare_rows(
    case: Case,
    names: list[str],
    oracle: Oracle,
    mine: _Maintained | None,
    found: Comparison,
    first: dict[str, list[tuple[Any, ...]]],
    when: str,
) -> list[str]:
    """Compare views; return those that need to be compared again."""
    left = []
    for name in names:
        try:
            theirs = oracle.rows(f"FROM {name}")
        except duckdb.Error as problem:
            found.invalid[name] = str(problem)
            continue
        if theirs:
            found.shown.add(name)
        if theirs != first.setdefault(name, theirs):
            found.changed.add(name)
        if mine is not None:
            ours = mine.rows(name)
            failure = _difference(name, ours, theirs, name in case.ordered, when)
            if failure is not None:
                (found.doubted if _is_doubtful(oracle, name, ours) else found.failures).append(failure)
                continue
        left.append(name)
    return left


def _difference(
    name: str, ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], ordered: bool, when: str
) -> Failure | None:
    if not same_bag(ours, theirs):
        return Failure("difference", name, f"{when}\nCumulus: {_shown(ours)}\nDuckDB:  {_shown(theirs)}")
    if ordered and not all(all(map(same_value, a, b)) for a, b in zip(ours, theirs, strict=True)):
        return Failure("order", name, f"{when}\nCumulus: {ours}\nDuckDB:  {theirs}")
    return None


def _shown(rows: list[tuple[Any, ...]]) -> str:
    return f"{sorted(rows, key=repr)}"


def _is_doubtful(oracle: Oracle, name: str, ours: list[tuple[Any, ...]]) -> bool:
    """Whether DuckDB says what we say as soon as its optimizer is off."""
    oracle.database.execute("PRAGMA disable_optimizer")
    try:
        return same_bag(ours, oracle.rows(f"FROM {name}"))
    except duckdb.Error:
        return False
    finally:
        oracle.database.execute("PRAGMA enable_optimizer")
