"""Which programs run in epochs at all, and in which layout."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cumulus.catalog.types import Kind
from cumulus.epochs.bucket.references import has_spread_children, is_checked
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import LayoutError, UsageError
from cumulus.explain.layout.co_partitioning import Layout, choose_layout
from cumulus.m3.dataflow import cycles
from cumulus.m3.program import Program

LAYOUTS = ("auto", "one-bucket", "one-round")


def require_definitions(program: Program) -> Program:
    """Return `program` if it may run in epochs that apply net changes.

    An epoch applies its tables in an order of its own. That is right for maps that are functions of the base
    tables, so every map needs a definition.

    Raises
    ------
    LayoutError, UsageError
        Naming the map without a definition, or as `require_rounds`.
    """
    require_rounds(program)
    for name in undefined_maps(program):
        raise LayoutError(
            f"map {name} has no definition, so the order of events inside an epoch could change it",
            hint="Give it one (`= term`), or give the program to `cumulus.Warehouse`, which goes event by event.",
        )
    return program


def undefined_maps(program: Program) -> list[str]:
    """Return the maps that are no functions of the base tables: they follow the order of events."""
    kept = {name for _, name in program.kept}
    assigned = {statement.map for _, statement in program.statements() if statement.op == ":="}
    return [
        each.name for each in program.maps if not each.definitions and not each.sql and each.name not in kept | assigned
    ]


def require_rounds(program: Program) -> Program:
    """Return `program` if its maps have depths, and its views fit files.

    Layouts go through the maps by depth, and a cyclic program has no depths; that holds for one bucket as well, so all
    hosts have the same rule.

    Raises
    ------
    LayoutError
        Naming the maps of the cycle.
    UsageError
        Naming a column of a view that Parquet has no type for.

    References
    ----------
    Cumulus architecture, "Pipeline Scheduling", on depths.
    """
    circles = cycles(program)
    if circles:
        path = " → ".join([*circles[0], circles[0][0]])
        raise LayoutError(
            f"the maps feed each other in a circle, so they cannot be done in rounds: {path}",
            hint="Give the program to `cumulus.Warehouse`: it goes event by event and needs no rounds.",
        )
    for view in program.views:
        for column in view.columns:
            if column.type is not None and column.type.kind is Kind.INTERVAL:
                raise UsageError(
                    f"view {view.name}: its column {column.name} is an INTERVAL, which Parquet files cannot hold",
                    hint="Select a number, such as epoch(x), or a text, CAST(x AS VARCHAR).",
                )
    return program


def match_sources_to_tables(
    program: Program, sources: Iterable[FolderSource]
) -> tuple[Program, tuple[FolderSource, ...]]:
    """Return program and sources as they go together: keys that a source gives, static tables whole in the first epoch.

    Raises
    ------
    UsageError
        If a source gives a key that is not the table's, or columns that it does not have; if a column has no type.
    """
    relations = {relation.name: relation for relation in program.relations}
    fitting = []
    for source in sources:
        relation = relations[source.relation]
        untyped = [column.name for column in relation.columns if column.type is None]
        if untyped:
            raise UsageError(
                f"{relation.name}: column {untyped[0]} has no type, so nothing says what the values in files are",
                hint=f"Give it one in the program: RELATION {relation.name}({untyped[0]} BIGINT, …).",
            )
        if source.key and source.key != relation.key:
            unknown = [name for name in source.key if name not in relation.column_names]
            if relation.key or unknown:
                what = f"the primary key is {', '.join(relation.key)}" if relation.key else f"no column {unknown[0]!r}"
                raise UsageError(f"{relation.name}: key={'+'.join(source.key)}, but {what}", hint="Leave out key=.")
            relations[source.relation] = replace(relation, key=source.key)
        fitting.append(replace(source, whole=source.whole or relation.static))
    return replace(program, relations=tuple(relations.values())), tuple(fitting)


def choose_plan(program: Program, layout: str, buckets: int) -> BucketPlan:
    """Return the plan for a new checkpoint.

    Parameters
    ----------
    layout
        One of `LAYOUTS`; after "one-round:", tables and columns to partition by, such as `orders=oid+lineitem=oid`.

    Raises
    ------
    LayoutError
        If "one-round" is asked for and no such layout is right, or none in which somebody checks the references that
        the program counts on; says why.
    """
    name, _, hint = layout.partition(":")
    if name not in LAYOUTS or (hint and name != "one-round"):
        raise UsageError(
            f"unknown layout {layout!r}", hint=f"Layouts: {', '.join(LAYOUTS)}, one-round:TABLE=COLUMN+TABLE=COLUMN."
        )
    layout = name
    if buckets < 1:
        raise UsageError(f"{buckets} buckets", hint="There is at least one.")
    if layout == "one-bucket":
        return BucketPlan(why="one bucket, as asked for")
    if buckets == 1 and layout == "auto":
        return BucketPlan(why="one bucket, as there is one core")
    found = _choose(program, hint)
    if found.one_bucket:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.reasons.items())
        if layout == "one-round":
            raise LayoutError(f"no table can be partitioned: {reasons}", hint="Use --layout one-bucket.")
        return BucketPlan(why=f"one bucket, since no table can be partitioned ({reasons})")
    lost = unchecked_keys(program, found.partitioned)
    split = spread_text(found.partitioned)
    if lost and layout == "auto":
        return BucketPlan(why=f"one bucket: with {split} in several, nobody would check {lost[0]}")
    if counts_on_unchecked(program, found.partitioned):
        raise LayoutError(
            f"with {split} in several buckets nobody would check {lost[0]}, and the program leaves out statements "
            "because it is checked",
            hint="Compile it with enforced=False.",
        )
    return _spread_plan(program, found.partitioned, buckets)


def wanted_plan(program: Program, now: BucketPlan, layout: str, buckets: int) -> BucketPlan:
    """Return the plan that options ask for where a checkpoint has one: its own, the same object, if they fit it.

    Parameters
    ----------
    now
        The plan of the checkpoint.
    layout
        As `choose_plan` takes it. "auto" and nothing are the tables and columns of the checkpoint, and so is
        "one-round" with no columns or with some of them.
    buckets
        0 for as many as there are.

    Raises
    ------
    LayoutError, UsageError
        If no such plan is right.
    """
    name, _, hint = layout.partition(":")
    wishes = _hint(program, hint) if name == "one-round" else {}
    if name in ("", "auto") or (
        name == "one-round"
        and now.partitioned
        and all(now.partitioned.get(table) == column for table, column in wishes.items())
    ):
        if buckets in (0, now.buckets) or (buckets == 1 and not now.partitioned):
            return now
        if not now.partitioned:
            if name == "auto":
                return now
            raise several_buckets_refused(buckets, "auto")
        return _spread_plan(program, now.partitioned, buckets)
    count = buckets or (now.buckets if now.partitioned else os.cpu_count() or 1)
    try:
        found = choose_plan(program, layout, count)
    except LayoutError as problem:
        raise LayoutError(
            problem.message,
            hint="Ask for another --layout, or leave it out: the run then goes on in the buckets that it has.",
        ) from None
    is_same = (found.buckets, dict(found.partitioned)) == (now.buckets, dict(now.partitioned))
    return now if is_same else found


def several_buckets_refused(buckets: int, layout: str) -> UsageError:
    """Return the refusal of several buckets without a layout for them, on the host of one process."""
    return UsageError(
        f"--buckets {buckets} with --layout {layout}: --host embedded runs in one bucket",
        hint="Leave out --buckets, or ask for it: --layout one-round.",
    )


def plan_text(plan: BucketPlan) -> str:
    """Return a plan in a few words.

    Examples
    --------
    >>> plan_text(BucketPlan(2, {"orders": "oid"})), plan_text(BucketPlan())
    ('2 buckets (orders by oid)', '1 bucket')
    """
    spread = f" ({spread_text(plan.partitioned)})" if plan.partitioned else ""
    return f"{plan.buckets} bucket{'s' * (plan.buckets != 1)}{spread}"


def spread_text(partitioned: Mapping[str, str]) -> str:
    """Return which tables are spread by which columns, in words."""
    return ", ".join(f"{name} by {column}" for name, column in partitioned.items())


def _spread_plan(program: Program, partitioned: Mapping[str, str], buckets: int) -> BucketPlan:
    """Return the plan of a number of buckets among which tables are spread, with what the user should know."""
    why = f"{buckets} buckets, {spread_text(partitioned)}"
    polled = polled_tables(program, partitioned)
    if polled:
        which = " or ".join(polled)
        why += f"; a deletion from {which} counts an epoch later, when no bucket has rows that refer to it"
    lost = unchecked_keys(program, partitioned)
    if lost:
        why += f"; not checked: {', '.join(lost)}"
    return BucketPlan(buckets, partitioned, why)


def _choose(program: Program, hint: str) -> Layout:
    """Return the layout that partitions the most: of those with all keys and references checked, if there are any."""
    asked = _hint(program, hint)

    def objection(partitioned: Mapping[str, str]) -> str:
        lost = unchecked_keys(program, partitioned)
        return f"nobody would check {lost[0]}" if lost else ""

    if not objection(asked):
        checked = choose_layout(program, hint=asked, objection=objection)
        if not checked.one_bucket:
            return checked
    return choose_layout(program, hint=asked)


def partitioned_by(program: Program, layout: str) -> Mapping[str, str]:
    """Return the tables that a layout would partition, and by which columns."""
    name, _, hint = layout.partition(":")
    return _choose(program, hint).partitioned if name == "one-round" else {}


def _hint(program: Program, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split("+") if text else ():
        table, _, column = part.partition("=")
        if table not in {relation.name for relation in program.relations}:
            raise UsageError(f"there is no table {table!r}", hint="Write --layout one-round:TABLE=COLUMN+TABLE=COLUMN.")
        found[table] = column
    return found


def counts_on_unchecked(program: Program, partitioned: Mapping[str, str]) -> bool:
    """Whether a reference is ENFORCED in a program that nobody checks with `partitioned`."""
    return any(
        key.enforced and not is_checked(partitioned, relation.name, key, program.relation(key.parent))
        for relation in program.relations
        for key in relation.foreign_keys
    )


def unchecked_keys(program: Program, partitioned: Mapping[str, str]) -> list[str]:
    """Return the keys and references that are checked in one bucket but cannot be with `partitioned`, in words."""
    kept = dict(program.kept)
    unchecked = unchecked_primary_keys(program, partitioned)
    lost = []
    for relation in program.relations:
        if relation.name in unchecked:
            lost.append(f"the primary key of {relation.name}")
        for key in relation.foreign_keys:
            parent = program.relation(key.parent)
            if {relation.name, parent.name} <= kept.keys() and not is_checked(partitioned, relation.name, key, parent):
                lost.append(f"{relation.name}({', '.join(key.columns)}) references {key.parent}")
    return lost


def unchecked_primary_keys(program: Program, partitioned: Mapping[str, str]) -> list[str]:
    """Return the kept tables whose primary keys cannot be checked with `partitioned`: each bucket has some rows of a
    key.
    """
    kept = dict(program.kept)
    return [
        relation.name
        for relation in program.relations
        if relation.name in kept
        and relation.key
        and relation.name in partitioned
        and partitioned[relation.name] not in relation.key
    ]


def polled_tables(program: Program, partitioned: Mapping[str, str]) -> list[str]:
    """Return the tables whose deletions all buckets must agree to: each has all of their rows, and some of the rows
    that refer to them.
    """
    kept = dict(program.kept)
    found = {
        key.parent
        for relation in program.relations
        for key in relation.foreign_keys
        if {relation.name, key.parent} <= kept.keys()
        and not program.relation(key.parent).static
        and has_spread_children(partitioned, relation.name, key, program.relation(key.parent))
    }
    return sorted(found)
