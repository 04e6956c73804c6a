"""What a plan that runs in the library knows of the rows that the host reads: the smaller side of a join is held."""

import re

import pytest
from datafusion import SessionConfig, SessionContext

import xql_ffi

MANY, FEW = 5_000, 3
PRODUCT = "WITH loss AS (SELECT SUM(l.x * r.x) AS v FROM {left} AS l CROSS JOIN {right} AS r)"


def physical(statement: str) -> str:
    """The physical plan of a statement, with what is known of rows."""
    ctx = SessionContext(SessionConfig({"datafusion.explain.show_statistics": "true"}).with_target_partitions(2))
    for name, rows in (("many", MANY), ("few", FEW)):
        ctx.sql(f"CREATE TABLE {name} AS SELECT CAST(value AS DOUBLE) AS x FROM generate_series(1, {rows})").collect()
    return str(xql_ffi.register(ctx).sql(f"EXPLAIN {statement}").to_pydict()["plan"][1])


def held(plan: str) -> list[str]:
    """The line below each join without keys: what it holds."""
    return re.findall(r"CrossJoinExec.*\n *(.*)", plan)


@pytest.mark.parametrize(("left", "right"), [("many", "few"), ("few", "many")])
def test_the_smaller_side_is_held(left: str, right: str) -> None:
    plan = physical(f"{PRODUCT.format(left=left, right=right)} SELECT x, grad((SELECT v FROM loss), x) AS g FROM many")
    joins = held(plan)
    assert joins
    for line in joins:
        rows = re.search(r"Rows=\w+\((\d+)\)", line)
        assert rows is not None, line
        assert int(rows.group(1)) <= FEW, plan


def test_rows_of_the_host_are_known_exactly() -> None:
    plan = physical(f"{PRODUCT.format(left='many', right='few')} SELECT x, grad((SELECT v FROM loss), x) AS g FROM many")
    [shared] = {line for line in re.findall(r"SharedExec.*computes.*", plan) if f"Rows=Exact({MANY})" in line}
    assert shared
