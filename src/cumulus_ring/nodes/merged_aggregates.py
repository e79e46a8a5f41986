"""Aggregates that can be computed in parts: what each part computes, and how parts become one value.

The variance of parts is merged as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
sample variances": count, mean and sum of squared deviations of two parts give those of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duckdb.sqltypes import DuckDBPyType

from cumulus.views.duckdb_sql.trees import Tree, everything, function_name


@dataclass(frozen=True, slots=True)
class MergedAggregate:
    """One aggregate of a query.

    Parameters
    ----------
    parts
        What each node computes, as parse trees.
    merged
        From the names of the columns of the parts and their types to the SQL of the whole value; empty if parts of
        these types do not merge.
    is_set
        Whether the part is the set of all distinct values.
    """

    parts: tuple[Tree, ...]
    merged: Callable[[Sequence[str], Sequence[DuckDBPyType]], str]
    is_set: bool = False


def merged_aggregate(call: Tree) -> MergedAggregate | None:
    """Return how an aggregate is computed in parts; None if it is not."""
    name, given = function_name(call), [each["expression"] for each in call["arguments"]]
    if call.get("export_state") or len(given) > 1:
        return None
    if not given:
        return MergedAggregate((call,), _count) if name in ("count", "count_star") else None
    if name == "count":
        return _distinct_count(call) if call["distinct"] else MergedAggregate((call,), _count)
    if name in _EXTREMES:
        has_collation = any(each.get("class") == "COLLATE" for each in everything(given))
        return None if has_collation else MergedAggregate((call,), _again(name))
    if call["distinct"]:
        return None
    if name == "sum":
        return MergedAggregate((call,), _again("sum"))
    if name in ("avg", "mean"):
        return MergedAggregate((_called(call, "sum"), _called(call, "count")), _mean)
    if name in _VARIANCES:
        parts = tuple(_called(call, part) for part in ("count", "avg", "var_pop"))
        return MergedAggregate(parts, lambda names, kinds: _VARIANCES[name].format(_pairwise(names)))
    return None


_EXTREMES = ("min", "max", "bool_and", "bool_or")


def _called(call: Tree, name: str) -> Tree:
    return {**call, "function_name": name, "qualified_name": {"path": [name]}}


def _distinct_count(call: Tree) -> MergedAggregate:
    """Return the number of distinct values as the size of the union of sets; NULL counts as no value."""
    (argument,) = call["arguments"]
    if any(each.get("class") == "COLLATE" for each in everything(argument)):
        return MergedAggregate((call,), lambda names, kinds: "")
    is_value = {"class": "OPERATOR", "type": "OPERATOR_IS_NOT_NULL", "alias": "", "children": [argument["expression"]]}
    wanted: Tree = is_value
    if call["filter"] is not None:
        wanted = {**is_value, "class": "CONJUNCTION", "type": "CONJUNCTION_AND", "children": [call["filter"], is_value]}
    sets = {**_called(call, "list"), "filter": wanted}

    def merged(names: Sequence[str], kinds: Sequence[DuckDBPyType]) -> str:
        return f"COALESCE(CAST(list_unique(flatten(list({names[0]}))) AS BIGINT), 0)"

    return MergedAggregate((sets,), merged, is_set=True)


def _count(names: Sequence[str], kinds: Sequence[DuckDBPyType]) -> str:
    return f"COALESCE(CAST(sum({names[0]}) AS BIGINT), 0)"


def _again(name: str) -> Callable[[Sequence[str], Sequence[DuckDBPyType]], str]:
    return lambda names, kinds: f"{name}({names[0]})"


def _mean(names: Sequence[str], kinds: Sequence[DuckDBPyType]) -> str:
    """Divide the sum, as DOUBLE, by the count: that is what DuckDB's own mean of decimals and integers is."""
    total, count = names
    return f"CAST(sum({total}) AS DOUBLE) / sum({count})" if kinds[0].id in ("decimal", "hugeint", "double") else ""


_VARIANCES = {
    "var_pop": "list_extract(list_transform([{0}], lambda v: v.s / v.n), 1)",
    "var_samp": "list_extract(list_transform([{0}], lambda v: CASE WHEN v.n > 1 THEN v.s / (v.n - 1) END), 1)",
}
_VARIANCES["variance"] = _VARIANCES["var_samp"]
for _name, _of in (("stddev_pop", "var_pop"), ("stddev_samp", "var_samp"), ("stddev", "var_samp")):
    _VARIANCES[_name] = f"sqrt({_VARIANCES[_of]})"


def _pairwise(names: Sequence[str]) -> str:
    count, mean, variance = names
    part = f"struct_pack(n := CAST({count} AS DOUBLE), m := {mean}, s := {variance} * {count})"
    both = (
        "struct_pack(n := p.n + q.n, m := p.m + (q.m - p.m) * (q.n / (p.n + q.n)), "
        "s := p.s + q.s + (q.m - p.m) * (q.m - p.m) * (p.n * q.n / (p.n + q.n)))"
    )
    return f"list_reduce(list({part}) FILTER ({count} > 0), lambda p, q: {both})"
