"""A CUBE keeps all its levels in one map, and shares what they join with (the cube of the Cumulus introduction)."""

from __future__ import annotations

import pytest

from cumulus.compiler import compile_sql


def cube(own: int, joined: int) -> str:
    """A cube over `own` columns of one table and `joined` of another."""
    names = [f"d{place}" for place in range(own + joined)]
    dimensions = ", ".join(names)
    first = ", ".join(f"{name} INT" for name in names[:own])
    second = ", ".join(f"{name} INT" for name in names[own:])
    return (
        f"CREATE TABLE c (k INT NOT NULL, {first}); CREATE TABLE f (k INT NOT NULL, {second}, x INT NOT NULL);"
        f"CREATE VIEW v AS SELECT {dimensions}, SUM(x) AS s FROM c JOIN f USING (k) GROUP BY CUBE ({dimensions});"
    )


@pytest.mark.parametrize(("own", "joined"), [(1, 1), (2, 3), pytest.param(4, 4, marks=pytest.mark.slow)])
def test_the_levels_of_a_cube_share_their_maps(own: int, joined: int) -> None:
    """Each table has a map for every subset of its own dimensions, not one for every level of the cube."""
    program = compile_sql(cube(own, joined), keep="none", batches=False)
    assert len(program.maps) == 1 + 2**own + 2**joined
    levels = 2 ** (own + joined)
    for trigger in program.triggers:
        own_levels = [statement for statement in trigger.statements if statement.map == "v"]
        # The count of rows, by which a group is there, and the sum with its own count, once for each level.
        assert len(own_levels) == 3 * levels
