"""A statement may call its columns and relations as derivatives call what they add to a plan."""

import pytest
from datafusion import SessionContext

import xql_ffi
from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.sessions import session

TABLES = {
    "t": {"x": [0.5, -1.5, 2.0], "y": [2.0, 3.0, -0.25]},
    "∂t": {"∂x": [0.5, -1.5, 2.0], "∂y": [2.0, 3.0, -0.25]},
}
# `{x}` and so on stand for the names of a statement. No column is called otherwise.
STATEMENTS = {
    "a window": "SELECT grad(SUM({x} * {x}) OVER (), {x}) AS {q} FROM {t}",
    "a window in which all rows move": "SELECT jvp(SUM({x} * {x}) OVER (), {x}, 1.0) AS {q} FROM {t}",
    "a window by keys": "SELECT grad(AVG({x} * {x}) OVER (PARTITION BY {y}), {x}) AS {q} FROM {t}",
    "windows on windows": """SELECT grad(MAX({q}) OVER (), {x}) AS {z}
        FROM (SELECT {x}, SUM({x} * {y}) OVER () AS {q} FROM {t}) AS {s}""",
    "an aggregate": "SELECT grad(AVG({x} * {y}), {x}) AS {q} FROM {t} GROUP BY {x}",
    "a group below": """WITH {s} AS (SELECT {x}, AVG({x} * {x} * {y}) AS {q} FROM {t} GROUP BY {x})
        SELECT grad({q} * {q}, {x}) AS {z} FROM {s}""",
    "a derived table": "SELECT grad({q} * {q}, {x}) AS {z} FROM (SELECT {x}, {x} * {y} AS {q} FROM {t}) AS {s}",
    "a CTE": "WITH {s} AS (SELECT {x}, {x} * {y} AS {q} FROM {t}) SELECT jvp({q} * {q}, {x}, 2.0) AS {z} FROM {s}",
    "a join": """WITH {s} AS (SELECT {x} AS {z}, {x} * {y} AS {q} FROM {t})
        SELECT grad({q} * {x}, {z}) AS {z} FROM {s} JOIN {t} ON {x} = {z}""",
    "a union": """WITH {s} AS (SELECT {x}, {x} * {y} AS {q} FROM {t} UNION ALL SELECT {y}, {y} * 2 FROM {t})
        SELECT grad({q} * {q}, {x}) AS {z} FROM {s}""",
    "equal rows": """WITH {s} AS (SELECT DISTINCT {x}, {x} * {y} AS {q} FROM {t})
        SELECT grad({q} * {q}, {x}) AS {z} FROM {s}""",
    "a recursion": """WITH RECURSIVE {s} AS (SELECT 0 AS {z}, {x}, {y} FROM {t}
        UNION ALL SELECT {z} + 1, {x}, {y} * {x} FROM {s} WHERE {z} < 3)
        SELECT grad({y} * {y}, {x}) AS {q} FROM {s} WHERE {z} = 3""",
    "by row": "SELECT grad((SELECT SUM({x} * {x} * {y}) FROM {t}), {x}) AS {q} FROM {t}",
    "by row through groups": """WITH {s} AS (SELECT {y}, SUM({x} * {x}) AS {q} FROM {t} GROUP BY {y})
        SELECT grad((SELECT SUM({q} * {y}) FROM {s}), {x}) AS {z} FROM {t}""",
    "by row beside a column": """WITH {s} AS (SELECT {x}, {x} * {y} AS {q} FROM {t})
        SELECT grad((SELECT SUM({x} * {x}) FROM {t}) * {q}, {x}) AS {z} FROM {s}""",
    "a second derivative": """WITH {s} AS (SELECT {x}, {x} * {x} * {x} AS {q} FROM {t})
        SELECT grad(grad({q} * {y}, {x}), {x}) AS {z}
        FROM {s} JOIN (SELECT {x} AS {r}, {y} FROM {t}) AS {u} ON {r} = {x}""",
}
HERE = [
    "a window",
    "an aggregate",
    "a group below",
    "a CTE",
    "a join",
    "a recursion",
    "by row",
    "by row through groups",
]
PLAIN = {name: name for name in ("t", "x", "y", "q", "z", "s", "r", "u")}
MARKED = {name: f'"∂{name}"' for name in PLAIN}
# As tangents, and what they are computed from, are called.
TANGENTS = MARKED | {"q": '"∂q/∂x"', "z": '"∂∂q/∂x/∂x"', "s": '"∂rows"', "r": '"∂row"', "u": '"∂groups"'}


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    return session(TABLES)


@pytest.mark.parametrize("called", [MARKED, TANGENTS], ids=["with the sign", "as tangents"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_names_make_no_difference(ctx: SessionContext, name: str, called: dict[str, str]) -> None:
    expected = rows_of(query(ctx, STATEMENTS[name].format_map(PLAIN)))
    found = query(ctx, STATEMENTS[name].format_map(called))
    assert any(value for row in expected for value in row), "0 everywhere shows nothing"
    assert_same_rows(sorted(rows_of(found)), sorted(expected))


@pytest.mark.parametrize("name", HERE)
def test_names_make_no_difference_as_text(name: str) -> None:
    plain = session(TABLES, differentiates=False)
    expected = rows_of(xql_ffi.sql(plain, STATEMENTS[name].format_map(PLAIN)).to_arrow_table())
    found = rows_of(xql_ffi.sql(plain, STATEMENTS[name].format_map(MARKED)).to_arrow_table())
    assert any(value for row in expected for value in row), "0 everywhere shows nothing"
    assert_same_rows(sorted(found), sorted(expected))


def test_the_value_itself(ctx: SessionContext) -> None:
    """By hand."""
    found = query(ctx, STATEMENTS["a window"].format_map(MARKED))
    assert_same_rows(rows_of(found), [(1.0,), (-3.0,), (4.0,)])
