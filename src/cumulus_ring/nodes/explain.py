"""What a query would do on the ring, without doing it: its requests, then its plan, in the paper's words.

- ``X1 := request(table, column, row groups)``: goes out before anything runs, and blocks nobody.
- ``pin(X1, X2)``: a scan waits for these columns of one row group, whichever comes first, and for the next;
  ``unpin(X1, X2)``: the engine has let go of a row group.
- ``pack``: an operator that needs all that it reads before it gives anything: of all inputs, or of the one that is
  named.

References
----------
Goncalves and Kersten, "The Data Cyclotron Query Processing Scheme", figures 4 and 13.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cumulus_ring.chunks.catalogue import Catalogue, ChunkedTable
from cumulus_ring.chunks.rendezvous import owner
from cumulus_ring.chunks.zone_maps import may_touch
from cumulus_ring.nodes.planning import PlanOperator, QueryPlan, ScanNeed


@dataclass(frozen=True, slots=True)
class ScanRequests:
    """What a scan would ask the ring for.

    Parameters
    ----------
    row_groups
        Those that are asked for, counted from 1 over the files of the table.
    row_group_count
        All of the table.
    ruled_out
        Predicate → how many row groups it alone rules out; only those that rule any out.
    column_bytes
        Of the row groups that are asked for, for each column of the scan.
    owners
        Node → how many of the row groups it owns.
    chunk_count, chunk_bytes
        What comes: small row groups come with all of their columns.
    """

    row_groups: tuple[int, ...]
    row_group_count: int
    ruled_out: tuple[tuple[str, int], ...]
    column_bytes: tuple[int, ...]
    owners: tuple[tuple[str, int], ...]
    chunk_count: int
    chunk_bytes: int


def scan_requests(plan: QueryPlan, catalogue: Catalogue, members: Collection[str]) -> list[ScanRequests]:
    """Return what each scan of a plan would ask for.

    Parameters
    ----------
    catalogue
        Of the version that the query is about; it has the tables of the plan.
    members
        The nodes of the ring.
    """
    return [_requests(need, catalogue.table(need.occurrence.table.name), members) for need in plan.scans]


def _requests(need: ScanNeed, table: ChunkedTable, members: Collection[str]) -> ScanRequests:
    every = [(file, group) for file in table.files for group in file.row_groups]
    numbers = {(file.digest, group.number): number for number, (file, group) in enumerate(every, 1)}
    asked = table.groups(need.columns, need.predicates)
    places = list(dict.fromkeys((each.file.digest, each.row_group.number) for each in asked))
    owners = Counter(owner(*place, members) for place in places)
    ruled_out = [
        (str(predicate), sum(not may_touch(predicate, group.bounds) for _, group in every))
        for predicate in need.predicates
    ]
    chunks = [chunk for each in asked for chunk in each.chunks]
    return ScanRequests(
        tuple(numbers[place] for place in places),
        len(every),
        tuple(each for each in ruled_out if each[1]),
        tuple(sum(each.row_group.size(column, each.rows) for each in asked) for column in need.columns),
        tuple(sorted(owners.items())),
        len(chunks),
        sum(chunk.size for chunk in chunks),
    )


def explain_text(plan: QueryPlan, requests: Sequence[ScanRequests]) -> str:
    """Return the text of `ring explain`.

    Parameters
    ----------
    requests
        For each scan of the plan, in its order.
    """
    names = _variables(plan)
    lines = ["begin query"]
    for need, asked, variables in zip(plan.scans, requests, names, strict=True):
        lines += _request_lines(need, asked, variables)
    lines += ["  pack  result", *_operator_lines(plan, plan.root, names, 2), "end query"]
    return "\n".join(lines) + "\n"


def explain_json(plan: QueryPlan, requests: Sequence[ScanRequests]) -> dict[str, Any]:
    """Return what `explain_text` says as JSON."""
    names = _variables(plan)
    return {
        "requests": [
            {
                "table": need.occurrence.table.name,
                "alias": need.occurrence.alias,
                "columns": [
                    {"variable": variable, "column": column, "bytes": size}
                    for variable, column, size in zip(variables, need.columns, asked.column_bytes, strict=True)
                ],
                "row_groups": list(asked.row_groups),
                "row_group_count": asked.row_group_count,
                "chunk_count": asked.chunk_count,
                "bytes": asked.chunk_bytes,
                "predicates": [str(each) for each in need.predicates],
                "ruled_out": dict(asked.ruled_out),
                "owners": dict(asked.owners),
            }
            for need, asked, variables in zip(plan.scans, requests, names, strict=True)
        ],
        "plan": {"operator": "RESULT", "pack": "input", "inputs": [_operator_json(plan, plan.root, names)]},
    }


def _variables(plan: QueryPlan) -> list[list[str]]:
    """Return a name for each column of each scan."""
    count = 0
    names = []
    for need in plan.scans:
        names.append([f"X{count + at + 1}" for at in range(len(need.columns))])
        count += len(need.columns)
    return names


def _request_lines(need: ScanNeed, asked: ScanRequests, variables: Sequence[str]) -> Iterator[str]:
    table, alias = need.occurrence.table.name, need.occurrence.alias
    mention = table if alias.lower() == table.lower() else f"{table} {alias}"
    owners = ", ".join(f"{count} of {node}" for node, count in asked.owners)
    told = f"{len(asked.row_groups)} of {asked.row_group_count} row groups"
    if asked.chunk_count:
        chunks = "1 chunk" if asked.chunk_count == 1 else f"{asked.chunk_count} chunks"
        told += f", {chunks} of {_megabytes(asked.chunk_bytes)}"
    yield f"  # {mention}: {told}{': ' if owners else ''}{owners}"
    for predicate, count in asked.ruled_out:
        yield f"  #   {predicate} rules {count} out"
    groups = _ranges(asked.row_groups)
    for variable, column, size_bytes in zip(variables, need.columns, asked.column_bytes, strict=True):
        yield f'  {variable} := request("{table}", "{column}", {groups})  # {_megabytes(size_bytes)}'


def _operator_lines(plan: QueryPlan, operator: PlanOperator, names: Sequence[Sequence[str]], depth: int) -> list[str]:
    pack = PACKS.get(operator.name, "")
    line = "  " * depth + operator.name
    if pack:
        line += "  pack" if pack == "input" else f"  pack {pack}"
    if operator.scan is not None:
        listed = ", ".join(names[operator.scan])
        line += f"  pin({listed}) unpin({listed})  {plan.scans[operator.scan].occurrence.alias}"
    told = "; ".join(_details(plan, operator))
    lines = [f"{line}  {told}".rstrip()]
    for child in operator.children:
        lines += _operator_lines(plan, child, names, depth + 1)
    return lines


def _operator_json(plan: QueryPlan, operator: PlanOperator, names: Sequence[Sequence[str]]) -> dict[str, Any]:
    said: dict[str, Any] = {"operator": operator.name, "details": _details(plan, operator)}
    if operator.name in PACKS:
        said["pack"] = PACKS[operator.name]
    if operator.scan is not None:
        said["pin"] = said["unpin"] = list(names[operator.scan])
        said["alias"] = plan.scans[operator.scan].occurrence.alias
    said["inputs"] = [_operator_json(plan, child, names) for child in operator.children]
    return said


def _details(plan: QueryPlan, operator: PlanOperator) -> list[str]:
    """Return what DuckDB says of an operator, with columns named as the query names them."""
    found = []
    for key, text in operator.details:
        if key in _SHOWN and text:
            for each in plan.occurrences:
                alias = each.alias.replace("\\", r"\\")
                text = re.sub(rf"(?<![\w.]){each.number}\.(?=[^\d\s])", f"{alias}.", text)
            found.append(text if key not in _LABELS else f"{_LABELS[key]} {text}")
    return found


PACKS = {
    **dict.fromkeys(("HASH_JOIN", "NESTED_LOOP_JOIN", "BLOCKWISE_NL_JOIN", "CROSS_PRODUCT"), "right"),
    **dict.fromkeys(("PIECEWISE_MERGE_JOIN", "IE_JOIN", "ASOF_JOIN", "LEFT_DELIM_JOIN", "RIGHT_DELIM_JOIN"), "both"),
    **dict.fromkeys(("CTE", "RECURSIVE_CTE"), "left"),
    **dict.fromkeys(("HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY", "UNGROUPED_AGGREGATE"), "input"),
    **dict.fromkeys(("ORDER_BY", "TOP_N", "WINDOW"), "input"),
}
"""Operator → which of its inputs it needs whole."""
_LABELS = {"Top": "top", "Order By": "order by", "Groups": "by"}
_SHOWN = {"Join Type", "Conditions", "Aggregates", "Expression", *_LABELS}


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers in order, runs of them as ranges.

    Examples
    --------
    >>> _ranges([1, 2, 3, 5, 7, 8])
    '1..3, 5, 7..8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs) or "none"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
