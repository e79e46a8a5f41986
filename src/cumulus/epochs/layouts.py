"""Which programs run in epochs at all, and which of their keys a layout leaves unchecked."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from cumulus.catalog.schema import ForeignKey, Relation
from cumulus.catalog.types import Kind
from cumulus.epochs.bucket.references import has_spread_children, is_checked
from cumulus.epochs.folder_source import FolderSource
from cumulus.errors import LayoutError, UsageError
from cumulus.explain.layout.co_partitioning import Partitioned
from cumulus.m3.dataflow import cycles
from cumulus.m3.program import Program


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
    circle = circle_text(program)
    if circle:
        raise LayoutError(
            f"the maps feed each other in a circle, so they cannot be done in rounds: {circle}",
            hint="Give the program to `cumulus.Warehouse`, which goes event by event, or run it on a cluster.",
        )
    return require_columns(program)


def circle_text(program: Program) -> str:
    """Return the maps of a circle in which maps feed each other, "" without one."""
    circles = cycles(program)
    return " → ".join([*circles[0], circles[0][0]]) if circles else ""


def require_columns(program: Program) -> Program:
    """Return `program` if its views fit files.

    Raises
    ------
    UsageError
        Naming a column of a view that Parquet has no type for.
    """
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


def counts_on_unchecked(program: Program, partitioned: Partitioned) -> bool:
    """Whether a reference is ENFORCED in a program that nobody checks with `partitioned`."""
    return any(
        key.enforced and not is_checked(partitioned, relation.name, key, program.relation(key.parent))
        for relation in program.relations
        for key in relation.foreign_keys
    )


def unchecked_keys(program: Program, partitioned: Partitioned) -> list[str]:
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


def reference_text(relation: Relation, key: ForeignKey) -> str:
    """Return a reference in words."""
    return f"{relation.name}({', '.join(key.columns)}) references {key.parent}({', '.join(key.parent_columns)})"


def without_references(program: Program, texts: Collection[str]) -> Program:
    """Return a program without some references, each as `reference_text` has it."""

    def rest(relation: Relation) -> Relation:
        keys = tuple(key for key in relation.foreign_keys if reference_text(relation, key) not in texts)
        return replace(relation, foreign_keys=keys)

    return replace(program, relations=tuple(map(rest, program.relations))) if texts else program


def unchecked_primary_keys(program: Program, partitioned: Partitioned) -> list[str]:
    """Return the kept tables whose primary keys cannot be checked with `partitioned`: each bucket has some rows of a
    key.
    """
    kept = dict(program.kept)
    return [
        relation.name
        for relation in program.relations
        if relation.name in kept and relation.key and not {*partitioned.get(relation.name, ())} <= {*relation.key}
    ]


def polled_tables(program: Program, partitioned: Partitioned) -> list[str]:
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
