"""The pictures of the tour, drawn from the code: `python docs/tour/pictures.py` puts them into the pages.

A page marks a picture by the line `<!-- picture: NAME -->` before a fenced block, and `PICTURES` says what draws it.
`tests/docs/test_tour.py` compares what stands in the pages with what the code gives.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import cumulus
from cumulus import m3
from cumulus.engine.engines import make_engine
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.native.store.memory_layout import MapLayout
from cumulus.engine.native.values.map_access import StoredMap
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.m3.access import Pattern, reads_of
from cumulus.m3.dataflow import to_mermaid
from cumulus.m3.printer import print_statement

HERE = Path(__file__).parent
PACKAGE = Path(cumulus.__file__).parent
SCRIPT = HERE.parents[1] / "examples" / "tour.sql"
MARK = re.compile(r"(<!-- picture: (\w+) -->\n\n```(\w+)\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)


def map_graph() -> str:
    """Return which map is made from which."""
    return to_mermaid(cumulus.compile(SCRIPT))


def memory() -> str:
    """Return how the native engine lays out the maps, and the words that lie there after three events."""
    engine = NativeEngine(cumulus.compile(SCRIPT))
    engine.begin()
    for event in ((1, "customers", (1, "France")), (1, "orders", (10, 1, 5)), (1, "orders", (11, 1, 7))):
        engine.on_event(*event)
    engine.commit()
    return "\n".join(line for layout in _layouts(engine) for line in [*_drawn(engine, layout), ""])


def _layouts(engine: NativeEngine) -> list[MapLayout]:
    return [_stored(engine, each.name).store for each in engine.program.maps]


def _stored(engine: NativeEngine, name: str) -> StoredMap:
    stored: StoredMap = getattr(engine, "code", engine).store(name)
    return stored


def _drawn(engine: NativeEngine, layout: MapLayout) -> Iterator[str]:
    shape, values = layout.shape, engine.program.map(layout.name).values
    named = [("key", name, lane.words) for name, lane in zip(layout.key_names, layout.keys, strict=True)]
    named += [("value", each.name, lane.held.words) for each, lane in zip(values, layout.values, strict=True)]
    cells = [cell for each in named for cell in _words(*each)]
    indexes = [layout.key_names[places[0]] for places in layout.indexes]
    tables = " and on ".join(["whole keys", *indexes])
    yield f"{layout.name}: shape {shape.name}; a record of {shape.record_size} bytes; a hash index on {tables}"
    heads = [*cells, *(f"chain of {name}: next, previous" for name in indexes)]
    yield f"  row of {shape.row_size} bytes | {' | '.join(heads)} |"
    for number, row in enumerate(_stored(engine, layout.name).view.matrix().tolist(), 1):
        words = [str(word) for word in row] + ["0, 0"] * len(indexes)
        told = " | ".join(word.rjust(len(head)) for word, head in zip(words, heads, strict=True))
        yield f"{f'  row {number}'.ljust(len(f'  row of {shape.row_size} bytes'))} | {told} |"


def _words(kind: str, name: str, count: int) -> list[str]:
    return [f"{kind} {name}"] if count == 1 else [f"{kind} {name} ({part + 1} of {count})" for part in range(count)]


@contextmanager
def _followed(taken: Callable[[str], str]) -> Iterator[list[str]]:
    """Note where Python goes in here: what `taken` makes of modules, "" for nothing, each once."""
    found: dict[str, None] = {}
    steps: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            module = Path(frame.f_code.co_filename).relative_to(PACKAGE).with_suffix("").as_posix()
            found[taken(module)] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield steps
    finally:
        sys.setprofile(before)
        steps += [each for each in found if each]


def event() -> str:
    """Return what an order that comes does to the tables of the native engine."""
    program = cumulus.compile(SCRIPT)
    engine = NativeEngine(program)
    trigger = program.trigger(m3.On.INSERT, "orders")
    assert trigger is not None
    lines: dict[str, None] = {f"ON +orders({', '.join(trigger.variables)})": None}
    for target in dict.fromkeys(statement.map for statement in trigger.statements):
        mine = [statement for statement in trigger.statements if statement.map == target]
        for read in (read for statement in mine for read in reads_of(trigger, statement)):
            keys = _stored(engine, read.map).store.key_names
            bound = [name for name, how in zip(keys, read.patterns, strict=True) if how is Pattern.BOUND]
            whole = "one row" if len(bound) == len(keys) else "a chain of rows"
            lines[f"  look up  {read.map} by {', '.join(bound)}: hash → slot → {whole}"] = None
        lines[f"  find     {target} by {', '.join(mine[0].keys)}, or put a new row"] = None
        lines[f"  note     the row of {target} as it is, in the undo log"] = None
        lines.update((f"  add      {print_statement(statement)}", None) for statement in mine)
    return "\n".join(lines)


def _engine_as_one(module: str) -> str:
    return "engine/native" if module.startswith("engine/native/") else module


def insert_route() -> str:
    """Return the modules that an insertion of a row enters, in order, where somebody has subscribed."""
    warehouse = cumulus.Warehouse(SCRIPT)
    warehouse.insert("customers", [(1, "France")])
    warehouse.subscribe("revenue", lambda _: None)
    warehouse.insert("orders", [(10, 1, 5)])
    with _followed(_engine_as_one) as modules:
        warehouse.insert("orders", [(11, 1, 7)])
    return _listed(modules)


def epoch_route() -> str:
    """Return the modules of `epochs`, and the engine, that the second epoch of a run enters, in order."""

    def taken(module: str) -> str:
        return _engine_as_one(module) if module.startswith(("epochs/", "durable/", "engine/native/")) else ""

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, price in enumerate((5, 7), 1):
            _write(folder / f"in/customers/{number}.parquet", cid=[number], nation=["France"])
            _write(folder / f"in/orders/{number}.parquet", oid=[number], cid=[1], price=[price])
        program = cumulus.compile(SCRIPT, rely=False)
        sources = sources_from([str(folder / "in")], program)
        with EmbeddedRun(program, sources, folder / "out", make_engine=_native) as run:
            run.step()
            with _followed(taken) as modules:
                run.step()
    return _listed(modules)


def _native(*parts: Any, **options: Any) -> Any:
    return NativeEngine(*parts, **options)


def _write(path: Path, **columns: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def _listed(modules: list[str]) -> str:
    """Return modules a line for each room."""
    lines: list[list[str]] = []
    for module in modules:
        room, _, name = module.rpartition("/")
        if lines and lines[-1][0] == room:
            lines[-1].append(name)
        else:
            lines.append([room, name])
    width = max(len(line[0]) for line in lines)
    return "\n".join(f"{room.ljust(width)}  {' → '.join(names)}" for room, *names in lines)


def transaction() -> str:
    """Return the states of a transaction of an engine: what calls lead from one to the other."""
    seen: dict[tuple[str, str, str], None] = {}
    for signs, ends in product(((), (1,), (1, -1)), ("commit", "rollback")):
        engine = make_engine("interpreter", cumulus.compile(SCRIPT), None, ())
        state = "none"
        engine.begin()
        seen[state, "begin", state := "open"] = None
        for sign in signs:
            engine.on_event(sign, "customers", (1, "France"))
            after = "written" if engine.touched() else "open"
            seen[state, "on_event", after] = None
            state = after
        getattr(engine, ends)()
        seen[state, ends, "none"] = None
    lines = [f"  {start} --> {end}: {call}" for start, call, end in sorted(seen)]
    return "\n".join(["stateDiagram-v2", "  [*] --> none", *lines])


PICTURES: dict[str, Callable[[], str]] = {
    "map_graph": map_graph,
    "memory": memory,
    "event": event,
    "insert_route": insert_route,
    "transaction": transaction,
    "epoch_route": epoch_route,
}


def pages() -> list[Path]:
    """Return the pages of the tour in order."""
    return sorted(HERE.glob("[0-9]*.md"))


def drawn(page: Path) -> str:
    """Return the text of a page with its pictures as the code draws them."""
    return MARK.sub(lambda found: found[1] + PICTURES[found[2]]().rstrip() + "\n", page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for each in pages():
        each.write_text(drawn(each), encoding="utf-8")
