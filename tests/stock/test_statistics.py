"""What a plan that runs in the library knows of the rows that the host reads: the smaller side of a join is held."""

import re

import pytest
from datafusion import SessionConfig, SessionContext

import xql_ffi

MANY, FEW = 5_000, 3
GRADIENT = """
    WITH loss AS (SELECT SUM(l.x * r.x) AS v FROM {} AS l CROSS JOIN {} AS r)
    SELECT x, grad((SELECT v FROM loss), x) AS g FROM many"""


def physical(statement: str) -> str:
    """The physical plan of a statement, with what is known of rows."""
    ctx = SessionContext(SessionConfig({"datafusion.explain.show_statistics": "true"}).with_target_partitions(2))
    for name, rows in (("many", MANY), ("few", FEW)):
        ctx.sql(f"CREATE TABLE {name} AS SELECT CAST(value AS DOUBLE) AS x FROM generate_series(1, {rows})").collect()
    return str(xql_ffi.register(ctx).sql(f"EXPLAIN {statement}").to_pydict()["plan"][1])


def held(plan: str) -> list[str]:
    """What each join without keys holds: the first relation below it."""
    return re.findall(r"CrossJoinExec(?:.|\n)*?((?:SharedScanExec|DataSourceExec).*)", plan)


@pytest.mark.parametrize("sides", [("many", "few"), ("few", "many")])
def test_the_smaller_side_is_held(sides: tuple[str, str]) -> None:
    plan = physical(GRADIENT.format(*sides))
    assert len(held(plan)) >= 3, plan
    assert not any("∂rows" in relation or f"({MANY})" in relation for relation in held(plan)), plan


def test_rows_of_the_host_are_known_exactly() -> None:
    [reader] = re.findall(
        r"SharedScanExec: reads ∂rows, columns=\[∂x, ∂row\].*", physical(GRADIENT.format("many", "few"))
    )
    assert f"Rows=Exact({MANY})" in reader
