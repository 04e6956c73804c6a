"""Statements run on sessions that nothing is registered with."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from datafusion import SessionConfig, SessionContext
from xarray_sql import XarrayContext

import xql_ffi


def test_the_tables_of_all_catalogs_and_schemas() -> None:
    ctx = SessionContext()
    ctx.sql("CREATE SCHEMA sea")
    ctx.sql('CREATE TABLE sea."Fish" (x DOUBLE) AS VALUES (3.0)')
    found = xql_ffi.sql(ctx, 'SELECT grad(x * x, x) AS d FROM datafusion.sea."Fish"')
    assert found.to_pydict() == {"d": [6.0]}


@pytest.mark.parametrize("given", [{"param_values": {"a": 2.5}}, {"a": 2.5}], ids=str)
def test_parameters_of_the_session(given: dict[str, Any]) -> None:
    ctx = SessionContext()
    ctx.sql("CREATE TABLE t (x DOUBLE) AS VALUES (3.0), (2.0)")
    found = xql_ffi.sql(ctx, "SELECT x, grad(x * x, x) AS d FROM t WHERE x > $a", **given)
    assert found.to_pydict() == {"x": [3.0], "d": [6.0]}


@pytest.mark.parametrize("is_on", [False, True])
def test_views_are_looked_into(is_on: bool) -> None:
    ctx = SessionContext(SessionConfig().with_information_schema(is_on))
    ctx.sql("CREATE TABLE t (x DOUBLE) AS VALUES (3.0)")
    ctx.sql("CREATE VIEW v AS SELECT x, x * x AS y FROM t")
    assert xql_ffi.sql(ctx, "SELECT grad(y * y, x) AS d FROM v").to_pydict() == {"d": [108.0]}
    if is_on:
        assert ctx.sql("SELECT COUNT(*) AS n FROM information_schema.tables WHERE table_name = 'v'").to_pydict()
    else:
        with pytest.raises(Exception, match="information_schema"):
            ctx.sql("SELECT 1 FROM information_schema.tables")


def test_a_statement_that_changes_a_table() -> None:
    ctx = SessionContext()
    ctx.sql("CREATE TABLE w (val DOUBLE) AS VALUES (1.0), (2.0)")
    ctx.sql("CREATE TABLE slopes (d DOUBLE)")
    xql_ffi.sql(ctx, "INSERT INTO slopes SELECT grad((SELECT SUM(val * val) FROM w), val) FROM w").collect()
    assert ctx.sql("SELECT d FROM slopes ORDER BY d").to_pydict() == {"d": [2.0, 4.0]}


def test_an_xarray_session() -> None:
    data = xr.Dataset(
        {"t": (("lat", "lon"), np.arange(6.0).reshape(2, 3))}, coords={"lat": [0.0, 1.0], "lon": [0, 1, 2]}
    )
    ctx = XarrayContext()
    ctx.from_dataset("field", data, chunks={"lat": 1})
    statement = "WITH m AS (SELECT t, t * t AS s FROM field) SELECT SUM(grad(s, t)) AS d FROM m"
    found = xql_ffi.sql(ctx, statement)
    assert type(found) is type(ctx.sql("SELECT 1 AS one"))
    assert found.to_pandas()["d"].tolist() == [30.0]
