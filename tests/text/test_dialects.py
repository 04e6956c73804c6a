"""Statements in the languages of other engines, byte for byte, and what is refused by name."""

import pyarrow as pa
import pytest

import xql_ffi

FLOAT = pa.float64()


def column(name: str, kind: pa.DataType = FLOAT) -> pa.Field:
    return pa.field(name, kind, nullable=False)


TABLES = {
    "t": pa.schema([column("x"), column("y"), column("n", pa.int64()), column("grad"), column("f", pa.float32())])
}

QUOTIENT = "SELECT grad(x * (n / 2), x) AS d FROM t"
SUM = "SELECT grad((SELECT SUM(x * x) FROM t), x) AS d FROM t"
LARGEST = "SELECT n, grad(MAX(x * y), x) AS d FROM t GROUP BY n, x"

NEWTON = """
    WITH RECURSIVE newton AS (
        SELECT 0 AS step, 1.0 AS x
        UNION ALL
        SELECT step + 1, x - (x * x - 2) / grad(x * x - 2, x) FROM newton WHERE step < 6)
    SELECT x FROM newton"""
SECOND = "SELECT grad((SELECT (array_agg(y ORDER BY n DESC))[2] FROM t), y) AS d FROM t"

WRITTEN = {
    # A quotient of integers.
    ("bigquery", QUOTIENT): "SELECT CAST(n AS FLOAT64) / 2.0 AS d FROM t",
    ("duckdb", QUOTIENT): "SELECT CAST(n AS DOUBLE) / 2.0 AS d FROM t",
    ("postgres", QUOTIENT): "SELECT CAST(n / 2 AS DOUBLE PRECISION) AS d FROM t",
    ("spark", QUOTIENT): "SELECT CAST(n AS DOUBLE) / 2.0 AS d FROM t",
    ("sqlite", QUOTIENT): "SELECT CAST(n / 2 AS REAL) AS d FROM t",
    ("spark", "SELECT grad(x * (n DIV 2), x) AS d FROM t"): "SELECT CAST(n DIV 2 AS DOUBLE) AS d FROM t",
    ("bigquery", "SELECT grad(x * DIV(n, 2), x) AS d FROM t"): "SELECT CAST(div(n, 2) AS FLOAT64) AS d FROM t",
    # A literal with a point is a decimal.
    ("bigquery", "SELECT grad(x, x) AS d FROM t"): "SELECT 1.0 AS d FROM t",
    ("postgres", "SELECT grad(x, x) AS d FROM t"): "SELECT CAST(1 AS DOUBLE PRECISION) AS d FROM t",
    ("spark", "SELECT grad(x, x) AS d FROM t"): "SELECT 1e0 AS d FROM t",
    # There are no floats of 32 bits.
    ("sqlite", "SELECT grad(f * f, f) AS d FROM t"): "SELECT 2.0 * f AS d FROM t",
    # Logarithms.
    ("bigquery", "SELECT grad(log(x), x) AS d FROM t"): "SELECT 1.0 / x AS d FROM t",
    ("bigquery", "SELECT grad(log(x, y) * grad, grad) AS d FROM t"): "SELECT log(x, y) AS d FROM t",
    ("spark", "SELECT grad(log(x), x) AS d FROM t"): "SELECT 1.0 / x AS d FROM t",
    ("postgres", "SELECT grad(log(x), x) AS d FROM t"): "SELECT 0.4342944819032518 / x AS d FROM t",
    ("sqlite", "SELECT grad(log(x), x) AS d FROM t"): "SELECT 0.4342944819032518 / x AS d FROM t",
    # Powers and bits.
    ("postgres", "SELECT grad(x ^ 2, x) AS d, n # 3 AS b FROM t"): "SELECT 2.0 * x AS d, n # 3 AS b FROM t",
    ("sqlite", "SELECT grad(max(x, y), x) AS d FROM t"): None,
    # Names.
    ("postgres", 'SELECT grad(T.X * "grad", "grad") AS "D" FROM T'): 'SELECT T.X AS "D" FROM T',
    ("polars", "SELECT grad(t.x * grad, grad) AS D FROM t"): "SELECT t.x AS D FROM t",
    ("spark", "SELECT grad(`X` * y, X) AS `the d` FROM T"): "SELECT y AS `the d` FROM T",
    ("bigquery", "SELECT grad(x * y, x), n FROM t"): "SELECT y, n FROM t",
    ("postgres", "SELECT grad(x * y, x), n FROM t"): 'SELECT y AS "grad(t.x * t.y,t.x)", n FROM t',
    # Comments, strings and parentheses.
    (
        "bigquery",
        'SELECT "grad(x, x)" AS s, # grad(x, x)\n 1 - grad /* a */ (x * x + x, /* b */ x) AS d FROM t',
    ): 'SELECT "grad(x, x)" AS s, # grad(x, x)\n 1 - (1.0 + 2.0 * x) AS d FROM t',
    (
        "postgres",
        "SELECT $$grad(x, x)$$ AS s, grad(x * x, x)::real AS d FROM t",
    ): "SELECT $$grad(x, x)$$ AS s, (2.0 * x)::real AS d FROM t",
    (
        "sqlite",
        "INSERT INTO u SELECT grad(x * x, x) FROM t ON CONFLICT DO NOTHING RETURNING *",
    ): "INSERT INTO u SELECT 2.0 * x FROM t ON CONFLICT DO NOTHING RETURNING *",
    (
        "postgres",
        "COPY (SELECT grad(x * x, x) AS d FROM t) TO STDOUT",
    ): "COPY (SELECT 2.0 * x AS d FROM t) TO STDOUT",
    # Parameters that no derivative depends on.
    (
        "postgres",
        "SELECT grad(x * x, x) AS d FROM t WHERE y > $1 AND n = %s",
    ): "SELECT 2.0 * x AS d FROM t WHERE y > $1 AND n = %s",
    (
        "sqlite",
        "SELECT grad(x * x, x) AS d FROM t WHERE y > ? AND n = :n AND x < @x",
    ): "SELECT 2.0 * x AS d FROM t WHERE y > ? AND n = :n AND x < @x",
    # What has no call is not read.
    ("postgres", "SELECT grad FROM ((; -- grad(x)"): "SELECT grad FROM ((; -- grad(x)",
}


@pytest.mark.parametrize(("dialect", "statement"), WRITTEN)
def test_all_else_as_written(dialect: str, statement: str) -> None:
    wanted = WRITTEN[dialect, statement]
    text = xql_ffi.expand_sql(statement, TABLES, dialect=dialect)
    assert text == wanted or wanted is None
    assert xql_ffi.expand_sql(text, TABLES, dialect=dialect) == text


@pytest.mark.parametrize(
    ("dialect", "statement", "part"),
    [
        ("postgres", SUM, 'WITH "rows" AS MATERIALIZED ('),
        ("sqlite", SUM, 'WITH "rows" AS MATERIALIZED ('),
        ("spark", SUM, "WITH `rows` AS ("),
        ("bigquery", SUM, "WITH `rows` AS ("),
        ("bigquery", SUM, "t.x NULLS LAST"),
        ("postgres", LARGEST, "))[1]"),
        ("spark", LARGEST, "max_by("),
        ("bigquery", LARGEST, ")[offset(0)]"),
        # Lists begin with their first element, not with that of number 0.
        ("postgres", SECOND, "))[2] AS nth_value"),
        ("duckdb", SECOND, "))[2] AS nth_value"),
        # Numbers that are decimals stay so.
        ("postgres", "SELECT grad(z, x) AS d, b FROM (SELECT x, x * x AS z, 0.50 AS b FROM t) AS q", "0.50 AS b"),
        ("duckdb", "SELECT grad(z, x) AS d, b FROM (SELECT x, x * x AS z, -0.5 * 2 AS b FROM t) AS q", "-0.5 * "),
        ("duckdb", "SELECT grad(z, x) AS d FROM (SELECT x, x * x AS z, 1e0 AS b FROM t) AS q", "2.0 * t.x AS"),
        # The column of a table function.
        (
            "postgres",
            "SELECT grad(z, x) AS d FROM (SELECT x, x * i AS z FROM generate_series(1, 3) AS g(i) CROSS JOIN t) AS q",
            'generate_series(1, 3) AS generate_series("value")',
        ),
    ],
)
def test_written_anew(dialect: str, statement: str, part: str) -> None:
    text = xql_ffi.expand_sql(statement, TABLES, dialect=dialect)
    assert part in text
    assert xql_ffi.expand_sql(text, TABLES, dialect=dialect) == text


REFUSED = {
    ("sqlite", LARGEST): "sqlite has no first value of a group in an order",
    ("sqlite", "SELECT grad(stddev(x), x) FROM t GROUP BY x"): "sqlite has no function stddev",
    ("sqlite", "SELECT grad(x % y, x) FROM t"): "integer_remainder",
    (
        "sqlite",
        "SELECT grad(SUM(a), x) FROM (SELECT x, y, x * x AS a FROM t) AS q GROUP BY ROLLUP (x, y)",
    ): "SQLite has no ROLLUP",
    ("polars", "SELECT grad(tanh(x), x) FROM t"): "polars has no function tanh",
    (
        "spark",
        """WITH RECURSIVE r AS (SELECT 0 AS k, x AS a, x FROM t UNION ALL SELECT k + 1, a * x, x FROM r WHERE k < 3)
        SELECT grad(a, x) FROM r""",
    ): "no recursive common table expression",
    **dict.fromkeys(
        ((dialect, NEWTON) for dialect in ("duckdb", "polars", "postgres")),
        r"newton.x is Decimal128\(2, 1\), as it is in the first rows of the recursive query newton.* CAST\(... AS",
    ),
    ("duckdb", "SELECT grad(a * a, a) AS d FROM (VALUES (1, -0.25)) AS v(n, a)"): r"Decimal128\(2, 2\)",
    **dict.fromkeys(
        (
            (dialect, f"SELECT grad(x * {mark}, x) AS d FROM t")
            for dialect in ("duckdb", "postgres")
            for mark in ("?", "$1")
        ),
        "what grad differentiates has a parameter.*join a table of one row",
    ),
    ("sqlite", "SELECT grad(x * @x, x) FROM t"): "what grad differentiates has a parameter",
    (
        "duckdb",
        "SELECT grad(z, x) AS d FROM (SELECT x, x * x AS z FROM t) AS q WHERE x > $1",
    ): "written anew, and has a parameter, of unknown type",
    ("duckdb", "SELECT grad(x, x) FROM 'data.parquet'"): 'columns of "data.parquet" in FROM are not known: hand over',
    ("postgres", "SELECT grad(x, x FROM t"): "cannot be read as SQL of postgres",
    ("postgres", 'SELECT grad("X", x) FROM t'): "No field named",
    ("postgres", "UPDATE t SET x = grad((SELECT SUM(x * x) FROM t), x)"): "derivatives that read the row alone",
    ("cobol", "SELECT grad(x, x) FROM t"): "the dialect must be one of",
}


@pytest.mark.parametrize(("dialect", "statement"), REFUSED)
def test_refused(dialect: str, statement: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[dialect, statement]):
        xql_ffi.expand_sql(statement, TABLES, dialect=dialect)


def test_a_dialect_that_sqlglot_alone_knows() -> None:
    with pytest.warns(UserWarning, match="nobody has ever run"):
        text = xql_ffi.expand_sql("SELECT grad(`x` * x, x) AS d FROM t", TABLES, dialect="mysql")
    assert text == "SELECT 2.0 * `x` AS d FROM t"


def test_names_that_are_too_long() -> None:
    """PostgreSQL would cut them off by itself, and take two for one."""
    name = "a_column_of_a_name_that_is_as_long_as_a_name_may_be_in_postgres"
    statement = f"SELECT grad(d, x) AS e FROM (SELECT x, SUM(x * x + n) OVER () AS {name}, x AS d FROM t) AS q"
    text = xql_ffi.expand_sql(statement, TABLES, dialect="postgres")
    assert max(len(word) for word in text.split()) <= 80


def test_views_are_in_the_language_of_the_host() -> None:
    tables = {**TABLES, "v": "SELECT x, x ^ 2 AS a FROM t"}
    text = xql_ffi.expand_sql("SELECT grad(a, x) AS d FROM v", tables, dialect="postgres")
    assert "2.0 * t.x AS d" in text


@pytest.mark.parametrize(
    ("dialect", "wanted"),
    {
        "bigquery": "y * cos(x)",
        "duckdb": "y * cos(x)",
        "polars": "y * cos(x)",
        "postgres": "y * cos(x)",
        "spark": "y * cos(x)",
        "sqlite": "y * cos(x)",
    }.items(),
)
def test_differentiate_sql(dialect: str, wanted: str) -> None:
    columns = pa.schema([column("x"), column("y")])
    assert xql_ffi.differentiate_sql("sin(x) * y", "x", columns, dialect=dialect) == wanted
