"""`make fuzz-inputs`: random files and tables of extreme values beside the check of each; exit code 1 if one differs.

    python -m fuzz.inputs [--seed N] [--cases N] [--jobs N] [--one]

A case is a table of a few columns of random SQL types, and rows whose cells are extremes of any type, in a random
Arrow form or as text. It is read as Arrow, Parquet, CSV or JSON, by a run and by a warehouse. Each row that is right
value by value must be taken with these values, and each other must be refused with a reason. Every 100 cases of one
table are the files of an embedded run, of which all rows must be accounted for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus import Warehouse
from cumulus.catalog.arrow import plain_list
from cumulus.catalog.arrow_cells import decoded
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import BIGINT, Kind, SqlType
from cumulus.compiler.pipeline import compile_sql
from cumulus.engine.batches import rows_of
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import read_file, read_table
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import CumulusError, InputError
from support.arrow_extremes import DECLARED, REFUSED, TEXTS, WHOLE, Extremes, columns, shown, taken

ENGINES = {"native": NativeEngine, "interpreter": Interpreter}
CASES = 100
"""Cases of one table."""
FORMS = ("arrow", "parquet", "csv", "json")
NUMBERS = [
    "1.5",
    "59.97",
    "1e400",
    "-0",
    "-0.0",
    "9" * 38,
    "9" * 39,
    "0." + "1" * 39,
    "1e38",
    "7.000",
    "NaN",
    "Infinity",
]
LITERALS = [*NUMBERS, *map(str, WHOLE), "true", "false", "null", "[]", '{"a": [1]}']


@dataclass(frozen=True)
class Rows:
    """Rows of a case: what each cell is as Python's value, and in the form of a file or of Arrow."""

    cells: list[list[Any]]
    """By columns."""
    arrays: list[Any]
    texts: list[list[str]]
    form: str


@cache
def _extremes() -> list[Extremes]:
    return list(columns())


def _mutated(draw: random.Random, text: str) -> str:
    """Return a text with a letter changed, doubled or left out, now and then."""
    if not text or len(text) > 200 or draw.random() < 0.6:
        return text
    at = draw.randrange(len(text))
    letter = draw.choice(["", text[at] * 2, draw.choice("0123456789-+.:eE TZ_,/é\x00"), draw.choice("0123456789")])
    return text[:at] + letter + text[at + 1 :]


def _random_number(draw: random.Random, kind: pa.DataType) -> Any:
    """Return a random value of an Arrow type of numbers."""
    if pa.types.is_integer(kind):
        bits = draw.randint(1, kind.bit_width)
        least = -(1 << (bits - 1)) if pa.types.is_signed_integer(kind) else 0
        return draw.randrange(least, least + (1 << bits))
    if pa.types.is_floating(kind):
        found = draw.choice([draw.uniform(-1, 1) * 10 ** draw.uniform(-40, 38), round(draw.uniform(-1e6, 1e6), 2)])
        return pa.array([found], pa.float64()).cast(kind, safe=False)[0].as_py() if kind != pa.float16() else 0.5
    digits = draw.randint(1, kind.precision)
    return Decimal(draw.randrange(-(10**digits) + 1, 10**digits)).scaleb(-kind.scale)


def _column(draw: random.Random, size: int) -> tuple[list[Any], Any]:
    """Return cells of one Arrow type, and the column."""
    given = draw.choice(_extremes())
    kind = given.array.type
    if draw.random() < 0.3 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        cells = [None if draw.random() < 0.1 else _random_number(draw, kind) for _ in range(size)]
        return cells, pa.array(cells, kind)
    if draw.random() < 0.4 and pa.types.is_string(kind):
        cells = [_mutated(draw, draw.choice(TEXTS)) for _ in range(size)]
        return cells, pa.array(cells, kind)
    places = [draw.randrange(len(given.array)) for _ in range(size)]
    array = pa.chunked_array([given.array.slice(place, 1) for place in places], kind)
    return [given.cells[place] for place in places], _encoded(draw, array)


def _encoded(draw: random.Random, array: Any) -> Any:
    """Return a column in another form, now and then: one chunk, a dictionary, runs."""
    try:
        match draw.randrange(5):
            case 0:
                return array.combine_chunks()
            case 1:
                return array.combine_chunks().dictionary_encode()
            case 2:
                values = pa.concat_arrays(array.chunks)
                ends = pa.array(range(1, len(values) + 1), pa.int32())
                return pa.RunEndEncodedArray.from_arrays(ends, values)
    except (pa.ArrowException, AttributeError):
        pass
    return array


def _rows(draw: random.Random, width: int) -> Rows:
    size, form = draw.choice((1, 2, 2, 3, 3, 5, 5, 8, 70)), draw.choice(FORMS)
    if form in ("arrow", "parquet"):
        made = [_column(draw, size) for _ in range(width)]
        return Rows([cells for cells, _ in made], [array for _, array in made], [], form)
    texts: list[list[str]] = []
    cells: list[list[Any]] = []
    for _ in range(width):
        if form == "csv":
            column = [_mutated(draw, draw.choice(TEXTS)) for _ in range(size)]
            texts.append(['"' + text.replace('"', '""') + '"' for text in column])
            cells.append([*column])
        else:
            pool = draw.choice((LITERALS, NUMBERS, [json.dumps(text) for text in TEXTS]))
            texts.append([draw.choice(pool) for _ in range(size)])
            cells.append([json.loads(text, parse_float=Decimal, parse_int=_whole) for text in texts[-1]])
    return Rows(cells, [], texts, form)


def _whole(text: str) -> Any:
    return int(text) if len(text) < 4000 and text != "-0" else Decimal(text)


def _file(rows: Rows, relation: Relation, folder: Path, number: int) -> Path | None:
    """Return the file that has the rows, None if the format has no such types."""
    names = relation.column_names[1:]
    size = len(rows.cells[0])
    keys = [number * 100 + place for place in range(size)]
    path = folder / f"{number:06}.{'parquet' if rows.form == 'arrow' else rows.form}"
    match rows.form:
        case "csv":
            lines = [",".join(each) for each in zip(map(str, keys), *rows.texts, strict=True)]
            path.write_text("\n".join([",".join(("k", *names)), *lines]) + "\n", newline="")
        case "json":
            pairs = (
                [f'"{name}": {text}' for name, text in zip(names, line, strict=True)]
                for line in zip(*rows.texts, strict=True)
            )
            path.write_text(
                "\n".join(f'{{"k": {key}, {", ".join(each)}}}' for key, each in zip(keys, pairs, strict=True))
            )
        case _:
            try:
                pq.write_table(table_of(rows, relation, number), path)
            except (pa.ArrowException, ValueError, OverflowError, OSError):
                path.unlink(missing_ok=True)
                return None
            if any(map(_is_another, rows.arrays, pq.read_schema(path).types[1:])):
                path.unlink()
                return None
    return path


def _is_another(array: Any, read: pa.DataType) -> bool:
    """Whether a file has another type than a column: Parquet has durations as numbers, and no date of 64 bits."""
    given = decoded(array).type
    now = decoded(pa.nulls(0, read)).type
    return any(test(given) != test(now) for test in (pa.types.is_duration, pa.types.is_date64))


def table_of(rows: Rows, relation: Relation, number: int) -> pa.Table:
    keys = pa.array([number * 100 + place for place in range(len(rows.cells[0]))], pa.int64())
    return pa.table([keys, *rows.arrays], names=list(relation.column_names))


def _wanted(rows: Rows, relation: Relation, number: int, *, by_arrow: bool) -> dict[int, list[Any] | None]:
    """Return key → the values of each row, None if it is to be refused."""
    types = [column.type for column in relation.columns[1:]]
    found: dict[int, list[Any] | None] = {}
    for place, cells in enumerate(zip(*rows.cells, strict=True)):
        values = [taken(cell, each, by_arrow=by_arrow) for cell, each in zip(cells, types, strict=True) if each]
        found[number * 100 + place] = None if REFUSED in values else values
    return found


class DifferenceError(AssertionError):
    """What a host says is not what the values say."""


def _check_run(rows: Rows, relation: Relation, number: int, path: Path | None) -> bool:
    """Compare what a run reads; return whether it takes the file at all."""
    wanted = _wanted(rows, relation, number, by_arrow=True)
    source = FolderSource("r", "")
    try:
        if rows.form == "arrow" or path is None:
            reading = read_table(source, relation, table_of(rows, relation, number), "r/1")
        else:
            reading = read_file(source, relation, str(path), "r/1")
    except InputError as problem:
        # A column of such a type has no cell that fits, but NULL.
        if "says" not in problem.message or not _has_wrong_type(rows, relation):
            raise DifferenceError(f"refused as a whole: {problem}") from None
        return False
    names = relation.column_names
    found = list(zip(*(map(shown, plain_list(reading.rows.column(name))) for name in names[1:]), strict=True))
    keys = reading.rows.column("k").to_pylist()
    taken_in = dict(zip(keys, map(list, found), strict=True))
    right = {key: values for key, values in wanted.items() if values is not None}
    if taken_in != right or len(keys) + len(reading.rejected) != len(wanted):
        raise DifferenceError(f"a run takes {_apart(taken_in, right)}")
    if not all(each.reason.partition(": ")[2] for each in reading.rejected):
        raise DifferenceError("a row is refused without a reason")
    return True


def _has_wrong_type(rows: Rows, relation: Relation) -> bool:
    """Whether no cell of a column but NULL and NaN fits."""
    types = [column.type for column in relation.columns[1:]]
    none = str(shown(None))
    return any(
        {str(taken(cell, each, by_arrow=True)) for cell in cells} <= {str(REFUSED), none}
        for cells, each in zip(rows.cells, types, strict=True)
        if each is not None
    )


def _apart(found: dict[int, Any], wanted: dict[int, Any]) -> str:
    keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    return "; ".join(f"row {key}: {found.get(key)} for {wanted.get(key)}"[:600] for key in keys[:3])


def _check_warehouse(rows: Rows, relation: Relation, number: int, path: Path | None) -> None:
    """Compare what a warehouse takes of a table or a file."""
    wanted = _wanted(rows, relation, number, by_arrow=False)
    data: Any = path if path is not None and rows.form in ("csv", "parquet") else None
    if rows.form == "arrow":
        data = table_of(rows, relation, number)
    if data is None:
        return
    is_right = None not in wanted.values()
    try:
        events = [event.row for event in rows_of(1, relation, data, relation.checked)]
    except CumulusError as problem:
        if is_right:
            raise DifferenceError(f"a warehouse refuses what fits: {problem}") from None
        return
    found = {row[0]: [*map(shown, row[1:])] for row in events}
    if found != wanted:
        raise DifferenceError(f"a warehouse takes {_apart(found, wanted)}")


def _script(relation: Relation) -> str:
    columns = ", ".join(f"{each.name} {each.type}" for each in relation.columns[1:])
    # Parquet has no INTERVAL, and a view of a run is Parquet.
    values = ", ".join(
        f"CAST({each.name} AS VARCHAR) AS {each.name}" if each.type and each.type.kind is Kind.INTERVAL else each.name
        for each in relation.columns[1:]
    )
    return f"CREATE TABLE r (k BIGINT PRIMARY KEY, {columns}); CREATE VIEW v AS SELECT k, {values} FROM r"


def _check_hosts(
    script: str, relation: Relation, given: list[tuple[int, Rows, Path]], folder: Path, engine: str
) -> None:
    """Compare the views and the counts of an embedded run over all files, and a warehouse of the right rows."""
    program = compile_sql(script, rely=False)
    wanted: dict[int, list[Any] | None] = {}
    for number, rows, _ in given:
        wanted |= _wanted(rows, relation, number, by_arrow=True)
    right = {key for key, values in wanted.items() if values is not None}
    sources = sources_from([f"r={folder / 'in'}"], program)
    with EmbeddedRun(program, sources, folder / "out", make_engine=ENGINES[engine], files_per_epoch=8) as run:
        for _ in run.steps():
            pass
    out = folder / "out"
    keys = {row["k"] for row in query(out, "SELECT k FROM v").to_pylist()}
    refused = query(out, "SELECT COUNT(*) AS n FROM quarantine").to_pylist()[0]["n"]
    totals = read_manifest(out, committed_epochs(out)[-1]).totals if committed_epochs(out) else {}
    counted = sum(totals.get(name, 0) for name in ("applied", "repeated", "waiting", "quarantined"))
    if keys != right or refused != len(wanted) - len(right) or counted != len(wanted):
        raise DifferenceError(f"of {len(wanted)} rows {len(right)} fit; a run has {len(keys)}, {refused}, {totals}")
    wh = Warehouse(script, engine=engine)
    for number, rows, path in given:
        if rows.form == "parquet" and None not in _wanted(rows, relation, number, by_arrow=False).values():
            wh.insert("r", path)
            wh.view("v").rows()


def examine(seed: int, cases: int = CASES) -> tuple[int, Counter[str], list[str]]:
    """Return the seed of a table, what its cases were, and what differs."""
    draw = random.Random(seed)
    types: list[SqlType] = [draw.choice(DECLARED) for _ in range(draw.randint(1, 4))]
    named = [Column("k", BIGINT), *(Column(f"x{place}", each) for place, each in enumerate(types))]
    relation = Relation("r", tuple(named), key=("k",))
    seen: Counter[str] = Counter()
    failures: list[str] = []

    def note(what: str) -> None:
        told = traceback.format_exc(limit=-5)
        failures.append(f"seed {seed}, {what}, {', '.join(map(str, types))}\n{told}")

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "in").mkdir()
        files: list[tuple[int, Rows, Path]] = []
        for number in range(1, cases + 1):
            rows = _rows(draw, len(types))
            seen[rows.form] += 1
            try:
                path = _examine_rows(rows, relation, number, folder / "in")
            except Exception:  # noqa: BLE001 - a traceback is what this looks for
                note(f"case {number}, {rows.form}")
                continue
            if path is not None:
                files.append((number, rows, path))
        engine = draw.choice(("native", *["interpreter"] * 7))
        try:
            if files and not failures:
                _check_hosts(_script(relation), relation, files, folder, engine)
                seen["run"] += 1
        except Exception:  # noqa: BLE001 - a traceback is what this looks for
            note(f"a run of {len(files)} files, {engine}")
    return seed, seen, failures


def _examine_rows(rows: Rows, relation: Relation, number: int, folder: Path) -> Path | None:
    """Compare what both hosts take of the rows of a case; return the file of them if a run takes it."""
    path = _file(rows, relation, folder, number)
    is_taken = _check_run(rows, relation, number, path)
    _check_warehouse(rows, relation, number, path)
    if path is not None and (rows.form == "arrow" or not is_taken):
        path.unlink()
        return None
    return path


def _results(seeds: Iterator[int], jobs: int) -> Iterator[tuple[int, Counter[str], list[str]]]:
    if jobs == 1:
        yield from map(examine, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        while True:
            yield from pool.imap(examine, [next(seeds) for _ in range(20 * jobs)])


def main() -> int:
    """Run, report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="fuzz.inputs", description="Extreme values beside the check of each.")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("FUZZ_SEED", "1")))
    parser.add_argument("--cases", type=int, default=int(os.environ.get("FUZZ_CASES", "50000")))
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("FUZZ_JOBS", "2")))
    parser.add_argument("--one", action="store_true", help="replay the table of one seed")
    given = parser.parse_args()
    seeds: Iterator[int] = iter([given.seed]) if given.one else count(given.seed * 1_000_000)
    seen: Counter[str] = Counter()
    failures: list[str] = []
    began = last = time.monotonic()
    for _, more, found in _results(seeds, 1 if given.one else given.jobs):
        seen += more
        failures += found
        for failure in found:
            print(f"\n{failure}", flush=True)
        cases = sum(seen[form] for form in FORMS)
        if time.monotonic() - last > 30:
            last = time.monotonic()
            print(f"{cases} cases, {len(failures)} failures, {cases / (last - began):.0f} a second", flush=True)
        if cases >= given.cases or len(failures) >= 25:
            break
    print(f"{sum(seen[form] for form in FORMS)} cases {dict(seen)}: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
