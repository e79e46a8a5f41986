"""Cuts at values: columns and single values of any types that can meet are in the same parts, exactly."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from cumulus.cluster.placement.regions import AxisCut
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.compiler import compile_sql
from cumulus.errors import UsageError

NUMBERS = {
    "BOOLEAN": pa.array([True, False, None]),
    "TINYINT": pa.array([-128, 0, 1, 127, None], pa.int8()),
    "INTEGER": pa.array([-(2**31), 0, 1, 2, 7, 2**31 - 1, None], pa.int32()),
    "BIGINT": pa.array([-(2**63), 0, 1, 2**53, 2**53 + 1, 2**63 - 1, None]),
    "DOUBLE": pa.array([float("nan"), -0.0, 0.0, 0.1, 2.0**53, 1e300, float("inf"), -float("inf"), None]),
    "DECIMAL(9,2)": pa.array([Decimal("0.10"), Decimal("1.00"), Decimal("-9999999.99"), None], pa.decimal128(9, 2)),
    "HUGEINT": pa.array([Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(2**53 + 1), None], pa.decimal128(38, 0)),
    "DECIMAL(38,2)": pa.array([Decimal("0.11"), Decimal("9" * 36 + ".99"), None], pa.decimal128(38, 2)),
}
BOUNDS = (
    *(True, 0, 1, 2**53, 2**63 - 1, -(2**63), 2**64, 10**38 - 1, 0.0, 0.1, 0.5, 2.0**53, 1e300),
    *(Decimal("0.1"), Decimal("1.5"), Decimal(2**53 + 1), Decimal("9" * 36 + ".99"), float("inf"), -float("inf")),
)


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_column_is_cut_as_its_values_are(kind: str, bound: object) -> None:
    """A column of one type may join one of another, at whose values it is cut; no number is rounded to the other's."""
    values, cut = NUMBERS[kind], AxisCut(2, bounds=(bound,))
    assert cut.parts_of(values).tolist() == [cut.part_of(value) for value in values.to_pylist()]
    encoded = values.dictionary_encode()
    if pa.types.is_dictionary(encoded.type):
        assert cut.parts_of(encoded).tolist() == cut.parts_of(values).tolist()


def test_numbers_that_doubles_do_not_have() -> None:
    at = AxisCut(2, bounds=(2.0**53,)).part_of(2**53 - 1), AxisCut(2, bounds=(2**53 + 1,)).part_of(2.0**53)
    assert at == (0, 0)
    assert AxisCut(2, bounds=(Decimal("0.1"),)).part_of(0.1) == 1, "0.1 as a DOUBLE is a little more"


def test_nothing_is_above_nan() -> None:
    program = compile_sql("CREATE TABLE r (x DOUBLE); CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM r GROUP BY x;")
    with pytest.raises(UsageError, match="nothing is above NaN") as told:
        plan_cluster(program, 2, 1, cuts=["r.x@nan"])
    assert told.value.hint
