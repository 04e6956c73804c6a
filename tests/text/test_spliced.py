"""What takes the place of a call, and that all else stays as it is written."""

import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi

FLOAT = pa.float64()
TABLES = {
    "t": pa.schema(
        [
            pa.field("x", FLOAT, nullable=False),
            pa.field("y", FLOAT, nullable=False),
            pa.field("n", pa.int64(), nullable=False),
            pa.field("s", pa.string()),
            pa.field("X", FLOAT, nullable=False),
            pa.field("the grad", FLOAT, nullable=False),
            pa.field("grad", FLOAT, nullable=False),
        ]
    ),
    "u": pa.schema([pa.field("x", FLOAT, nullable=False), pa.field("n", pa.int64(), nullable=False)]),
    "lake.sea.fish": pa.schema([pa.field("x", FLOAT, nullable=False)]),
    '"T"': pa.schema([pa.field("x", FLOAT, nullable=False)]),
}

WRITTEN = {
    "a call": ("SELECT grad(x * x, x) AS d FROM t", "SELECT 2.0 * x AS d FROM t"),
    "layout and comments": (
        "-- grad(x, x)\nselect  GRAD ( x*x /* of */ , -- by\n\tx )\tas d /* grad(x, x) */\nfrom t;\n",
        "-- grad(x, x)\nselect  2.0 * x\tas d /* grad(x, x) */\nfrom t;\n",
    ),
    "a string": (
        "SELECT 'grad(x * x, x)' AS s, grad(x * x, x) AS d FROM t",
        "SELECT 'grad(x * x, x)' AS s, 2.0 * x AS d FROM t",
    ),
    "two calls in an expression": (
        "SELECT grad(x * x, x) + 3 * grad(x * y, y) AS d FROM t",
        "SELECT 2.0 * x + 3 * x AS d FROM t",
    ),
    "parentheses on the right": (
        "SELECT 1 - grad(x * x + x, x) AS d FROM t",
        "SELECT 1 - (1.0 + 2.0 * x) AS d FROM t",
    ),
    "parentheses beside a product": ("SELECT grad(x * x, x) / 2 AS d FROM t", "SELECT 2.0 * x / 2 AS d FROM t"),
    "parentheses in a product": ("SELECT 3 / grad(x * x, x) AS d FROM t", "SELECT 3 / (2.0 * x) AS d FROM t"),
    "parentheses after a sign": ("SELECT -grad(x * x, x) AS d FROM t", "SELECT -(2.0 * x) AS d FROM t"),
    "parentheses before a conversion": (
        "SELECT grad(x * x, x)::REAL AS d FROM t",
        "SELECT (2.0 * x)::REAL AS d FROM t",
    ),
    "a column called grad": (
        'SELECT "grad", t.grad + grad AS g, grad(grad * grad, grad) AS d FROM t',
        'SELECT "grad", t.grad + grad AS g, 2.0 * grad AS d FROM t',
    ),
    "names in quotes": (
        'SELECT grad("the grad" * "X" * x, "X") AS "D" FROM t',
        'SELECT x * "the grad" AS "D" FROM t',
    ),
    "names as they are written": (
        "SELECT grad(T.X * T.X, x) AS d FROM t",
        "SELECT 2.0 * T.X AS d FROM t",
    ),
    "two tables": (
        "SELECT grad(u.x * v.x, u.x) AS d FROM t AS u, u AS v",
        "SELECT v.x AS d FROM t AS u, u AS v",
    ),
    "tables of other schemas": (
        "SELECT grad(fish.x * fish.x, x) AS d FROM lake.sea.fish",
        "SELECT 2.0 * fish.x AS d FROM lake.sea.fish",
    ),
    "tables in quotes": ('SELECT grad(x * x, "T".x) AS d FROM "T"', None),
    "the name of the column": ("SELECT grad(x * x, x) FROM t", 'SELECT 2.0 * x AS "grad(t.x * t.x,t.x)" FROM t'),
    "the name behind a wildcard": (
        "SELECT *, grad(x * x, x) FROM u",
        'SELECT *, 2.0 * x AS "grad(u.x * u.x,u.x)" FROM u',
    ),
    "stop_gradient": (
        "SELECT stop_gradient(x) * 2 AS s, grad(x, x) AS d FROM t",
        "SELECT (x) * 2 AS s, 1.0 AS d FROM t",
    ),
    "insert": ("INSERT INTO u (x) SELECT grad(x * x, x) FROM t", "INSERT INTO u (x) SELECT 2.0 * x FROM t"),
    "update": ("UPDATE u SET x = x - grad(x * x, x) WHERE n = 1", "UPDATE u SET x = x - 2.0 * x WHERE n = 1"),
    "delete": ("DELETE FROM u WHERE grad(x * x, x) > 0", "DELETE FROM u WHERE 2.0 * x > 0"),
    "a view": ("CREATE VIEW v AS SELECT grad(x * x, x) AS d FROM t", "CREATE VIEW v AS SELECT 2.0 * x AS d FROM t"),
    "explain": ("EXPLAIN ANALYZE SELECT grad(x * x, x) AS d FROM t", "EXPLAIN ANALYZE SELECT 2.0 * x AS d FROM t"),
    "a script": (
        "SET a.b = 'grad;';\nSELECT grad(x * x, x) AS d FROM t; -- next\nSELECT 1 ; SELECT grad(y, y) AS d FROM t;;",
        "SET a.b = 'grad;';\nSELECT 2.0 * x AS d FROM t; -- next\nSELECT 1 ; SELECT 1.0 AS d FROM t;;",
    ),
    "letters of several bytes": (
        "SELECT 'ü∂€' AS s, /* 𝛁 */ grad(x * x, x) AS d, 'ß' FROM t",
        "SELECT 'ü∂€' AS s, /* 𝛁 */ 2.0 * x AS d, 'ß' FROM t",
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_all_else_as_written(name: str) -> None:
    statement, wanted = WRITTEN[name]
    text = xql_ffi.expand_sql(statement, TABLES)
    assert text == wanted or wanted is None
    assert xql_ffi.expand_sql(text, TABLES) == text


@pytest.mark.parametrize("name", ["()", "f()"])
def test_a_table_called_like_a_call(name: str) -> None:
    ctx = SessionContext()
    ctx.sql(f'CREATE TABLE "{name}" (x DOUBLE, y DOUBLE) AS VALUES (3.0, 2.0)').collect()
    text = xql_ffi.expand_sql(f'SELECT grad(v, y) AS d FROM (SELECT y, x * y AS v FROM "{name}") AS q', ctx)
    assert ctx.sql(text).to_pydict() == {"d": [3.0]}


def test_a_lateral_query_behind_another() -> None:
    """A product of joins is written without parentheses, which DataFusion needs where they hold a LATERAL."""
    plain = SessionContext()
    plain.from_pydict({"k": [1, 2], "w": [1.5, 2.5]}, name="d")
    plain.from_pydict({"x": [3.0]}, name="p")
    constant = """(SELECT SUM(a.w * b.w * c.w) FROM d AS a
        CROSS JOIN LATERAL (SELECT w FROM d AS i WHERE i.k >= a.k) AS b
        CROSS JOIN (d AS e LEFT JOIN LATERAL (SELECT w FROM d AS j WHERE j.k >= e.k) AS c ON TRUE))"""
    text = xql_ffi.expand_sql(f"SELECT grad(x * {constant}, x) AS d FROM p", plain)
    pairs = 1.5 * 1.5 + 1.5 * 2.5 + 2.5 * 2.5
    assert plain.sql(text).to_pydict() == {"d": [pairs * (1.5 + 2.5 + 2.5)]}


@pytest.mark.parametrize("lateral", ["CROSS JOIN LATERAL", "LEFT JOIN LATERAL"])
def test_what_a_lateral_query_alone_reads(lateral: str) -> None:
    """`k` of the first relation is in no column of the result, and stays."""
    plain = SessionContext()
    plain.from_pydict({"k": [1, 2], "w": [1.5, 2.5]}, name="d")
    end = "ON TRUE" if lateral.startswith("LEFT") else ""
    text = xql_ffi.expand_sql(
        f"""SELECT grad(v, w) AS g FROM (SELECT a.w, a.w * a.w * b.w AS v FROM d AS a
            {lateral} (SELECT w FROM d AS i WHERE i.k >= a.k) AS b {end}) AS q ORDER BY g""",
        plain,
    )
    assert plain.sql(text).to_pydict() == {"g": sorted([2 * 1.5 * 1.5, 2 * 1.5 * 2.5, 2 * 2.5 * 2.5])}


def test_a_script_knows_what_it_makes() -> None:
    made = "CREATE TABLE m AS SELECT x, grad(x * x, x) AS v FROM t;"
    view = "CREATE VIEW p AS SELECT v, v * x AS w FROM m;"
    text = xql_ffi.expand_sql(f"{made}\n{view}\nSELECT grad(w, v) AS d FROM p", TABLES)
    assert text.startswith(f"CREATE TABLE m AS SELECT x, 2.0 * x AS v FROM t;\n{view}")
    assert text.endswith("SELECT m.x AS d\nFROM m")
    text = xql_ffi.expand_sql("CREATE TABLE m (a DOUBLE, n INT);\nSELECT grad(a * n, a) AS d FROM m", {})
    assert text.endswith("SELECT CASE WHEN a IS NOT NULL THEN CAST(n AS DOUBLE) END AS d FROM m")
    with pytest.raises(ValueError, match="no table called m"):
        xql_ffi.expand_sql("SELECT grad(a, a) FROM m; CREATE TABLE m (a DOUBLE)", {})


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "  -- nothing but a comment",
        "SELECT no such statement ((",
        "SELECT 'unfinished",
        "SELECT graduate, upgrade FROM nowhere",
        "SELECT grad FROM nowhere WHERE x ~ 'grad(x, x)' -- grad(",
        'SELECT "GRAD"(x, x), s.grad(x) FROM nowhere',
        "CREATE TABLE grad (x DOUBLE);\r\nINSERT INTO grad (x) VALUES (1);\r\n",
    ],
)
def test_a_statement_without_a_call_stays_as_it_is(statement: str) -> None:
    assert xql_ffi.expand_sql(statement, TABLES) == statement


DERIVATIVES = {
    ("sin(x) * y", "x"): "y * cos(x)",
    ("x * x -- square", "x"): "2.0 * x",
    ("CASE WHEN x > 0 THEN x ELSE -x END", "x"): "CASE WHEN x > 0.0 THEN 1.0 ELSE -1.0 END",
    ("grad(x * x * x, x)", "x"): "6.0 * x",
}


@pytest.mark.parametrize(("expression", "wrt"), DERIVATIVES)
def test_differentiate_sql(expression: str, wrt: str) -> None:
    columns = pa.schema([pa.field(name, FLOAT, nullable=False) for name in ("x", "y")])
    assert xql_ffi.differentiate_sql(expression, wrt, columns) == DERIVATIVES[expression, wrt]


def test_columns_by_names_and_types() -> None:
    assert xql_ffi.differentiate_sql("x * x", "x", ["x"]) == "2.0 * x"
    assert xql_ffi.differentiate_sql('"X" * n', '"X"', {"X": FLOAT, "n": pa.int64()}).startswith("CASE WHEN ")
    softplus = xql_ffi.rule("tanh(x)", "1.5")
    assert xql_ffi.differentiate_sql("tanh(x)", "x", ["x"], rules=[softplus]) != "1.0 - tanh(x) * tanh(x)"
