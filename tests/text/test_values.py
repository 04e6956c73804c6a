"""Scalars and arrays of NumPy as values of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support import sessions
from xql_ffi._engine import is_engine

T = {"t": {"x": [1.0, 2.0], "k": [1, 2]}}
SCALARS = [np.float64(2.0), np.float32(2.0), np.int64(2), np.int32(2), np.array(2.0), 2.0]


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: f"{type(value).__name__}")
def test_scalars(value: Any) -> None:
    plain, registered = sessions.session(T, differentiates=False), sessions.session(T)
    query = "SELECT grad(x * x * $a, x) AS d FROM t"
    assert xql_ffi.sql(plain, query, param_values={"a": value}).to_pydict() == {"d": [4.0, 8.0]}
    assert xql_ffi.sql(plain, query, a=value).to_pydict() == {"d": [4.0, 8.0]}
    if np.ndim(value) == 0 and not isinstance(value, np.ndarray):
        assert registered.sql(query, param_values={"a": value}).to_pydict() == {"d": [4.0, 8.0]}
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES (1.0::DOUBLE, 1), (2.0, 2)) AS v(x, k)")
    assert xql_ffi.sql(connection, "SELECT grad(x * x, x) FROM t WHERE k = ?", params=[value]).fetchall() == [(4.0,)]
    named = xql_ffi.sql(connection, "SELECT grad(x * x, x) FROM t WHERE k = $a", params={"a": value})
    assert named.fetchall() == [(4.0,)]


def test_types_stay() -> None:
    session = SessionContext()
    for value, kind in (
        (np.float32(2.0), pa.float32()),
        (np.int32(2), pa.int32()),
        (np.array(2, np.int16), pa.int16()),
    ):
        assert xql_ffi.sql(session, "SELECT $a AS a", param_values={"a": value}).schema().field(0).type == kind
    day = xql_ffi.sql(session, "SELECT $a AS a", param_values={"a": np.datetime64("2020-02-01")})
    assert [each.isoformat() for each in day.to_pydict()["a"]] == ["2020-02-01"]


def test_vectors() -> None:
    plain, registered = sessions.session(T, differentiates=False), sessions.session(T)
    query, weights = "SELECT grad(x * x * $a[2], x) AS d FROM t WHERE array_has($a, x)", np.array([1.0, 5.0])
    assert xql_ffi.sql(plain, query, param_values={"a": weights}).to_pydict() == {"d": [10.0]}
    assert xql_ffi.sql(plain, query, a=weights).to_pydict() == {"d": [10.0]}
    assert registered.sql(query, param_values={"a": weights}).to_pydict() == {"d": [10.0]}
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES (1.0::DOUBLE), (2.0)) AS v(x)")
    found = xql_ffi.sql(connection, "SELECT grad(x * x, x) FROM t WHERE list_contains(?, x)", params=[np.array([2.0])])
    assert found.fetchall() == [(4.0,)]


def test_texts_and_dates() -> None:
    session, registered = SessionContext(), sessions.session(T)
    for value in (np.str_("abc"), "abc"):
        found = xql_ffi.sql(session, "SELECT length($a) AS n", param_values={"a": value})
        assert found.to_pydict() == {"n": [3]}
    if not is_engine():
        for value, of in ((np.array(2.0), "$a"), (np.array([[1.0, 2.0]]), "$a[1][2]")):
            found = registered.sql(f"SELECT grad(x * x * {of}, x) AS d FROM t", param_values={"a": value})
            assert found.to_pydict() == {"d": [4.0, 8.0]}
    # By name a value is put into the text, where 2026-01-05 is 2020.
    with pytest.raises(TypeError, match=r"\$a is a date, .* param_values=\{'a'"):
        xql_ffi.sql(session, "SELECT $a AS a", a=np.datetime64("2026-01-05"))
