"""Expressions that hosts read otherwise than DataFusion, to stand beside derivatives that see through relations."""

import pyarrow as pa

COLUMNS = {
    "id": pa.array([1, 2, 3, 4], pa.int64()),
    "n": pa.array([7, -7, 2, None], pa.int32()),
    "x": pa.array([0.5, -1.5, 2.5, 3.0], pa.float64()),
    "d": pa.array([1.15, 2.25, None, -0.35], pa.float64()),
    "s": pa.array(["a", "bc", None, "it's"], pa.string()),
}

# What all hosts have.
COMMON = (
    *("1", "-1", "1.5", "0.1", "1e3", "'a'", "'it''s'", "NULL", "2.50", ".5"),
    *(
        "0.1 + 0.2",
        "0.1 + 0.2 = 0.3",
        "1.0 / 3",
        "1 / 2",
        "7 / 2 * 2",
        "-7 % 3",
        "n / 2",
        "n % 3",
        "~5",
        "~n",
        "2 * ~id + 1",
        "1.10 * 2",
        "n + 0.5",
    ),
    *("CAST(2.5 AS INT)", "CAST(3.5 AS INT)", "CAST(-2.5 AS INT)", "CAST(x AS INT)", "CAST(2.675 AS FLOAT)"),
    *(
        "CAST(1 AS BIGINT) / 2",
        "CAST(n AS DOUBLE PRECISION) / 2",
        "round(2.675, 2)",
        "round(2.5)",
        "round(x)",
        "abs(-1.5)",
    ),
    *(
        "CASE WHEN id > 2 THEN 1 ELSE 2.5 END",
        "CASE WHEN id > 2 THEN n ELSE x END",
        "coalesce(n, 0.5)",
        "nullif(1, 1.0)",
    ),
    *("x > 1 AND n IS NOT NULL", "NOT x > 1", "x BETWEEN 0.1 + 0.2 AND 3", "n IN (1, 2)", "s LIKE 'b%'", "s || 'x'"),
    *(
        "upper(s)",
        "length(s)",
        "x - 1 - 1",
        "(x - 1) - (1 - x)",
        "1 - (x -- a comment\n - 1)",
        "2 /* two */ * x",
        "x * (1 + 2)",
    ),
    *("sum(n) OVER (ORDER BY id)", "0.1 + sum(n) OVER (PARTITION BY id)", "lag(x, 1, 0.5) OVER (ORDER BY id)"),
    *("(SELECT max(x) + 0.1 FROM t)", "0.1 + (SELECT 0.2)", "x IN (SELECT x + 0.0 FROM t)", "EXISTS (SELECT 1)"),
)

OWN = {
    "duckdb": (
        *(
            "d + 0.2",
            "typeof(1.5)",
            "typeof(d + 0.2)",
            "typeof(1)",
            "fmod(-7.5, 2)",
            "x::INT",
            "x // 2",
            "1_000",
            "2 ** 3",
        ),
        *(
            "typeof(0.1 + sum(n) OVER ())",
            "[1, 2.5]",
            "{'a': 1, 'b': x}",
            "list_transform([1, 2], v -> v + 1)",
            "s[1:1]",
        ),
        *(
            "date '2020-01-31' + interval 1 month",
            "date_trunc('month', date '2020-01-31')",
            "extract(year FROM date '2020-01-31')",
        ),
        *(
            "CAST(n AS DECIMAL(10, 2)) / 3",
            "CAST(n AS TINYINT) + 1",
            "hash(n) IS NULL",
            "printf('%.2f', x)",
            "s ILIKE 'B%'",
        ),
        *(
            "n::VARCHAR || 'a'",
            "if(x > 1, 1, 2.5)",
            "round(n, -1)",
            "'a' < s",
            "TRY_CAST(s AS INT)",
            "x IS DISTINCT FROM 0.5",
        ),
        *(
            *("list_sum([x, 1.5])", "list_sum([1, 2.5])", "length([0.5])", "list_sort([n, 1])"),
            "sum(n) FILTER (WHERE x > 0.1 + 0.2) OVER ()",
            "count(*) OVER ()",
            "greatest(1, 2.5)",
            "sign(-2.5)",
            "even(x)",
        ),
    ),
    "sqlite": (
        "typeof(1.5)",
        "typeof(1)",
        "x || ''",
        "n || 1.50",
        "iif(x > 1, 1, 2.5)",
        "7 / 2.0",
        "printf('%.2f', x)",
        "1 = 1.0",
    ),
    "polars": ("x // 2", "x::INT", "s || n", "CAST(x AS FLOAT)"),
    "datafusion": (
        *(
            "concat(x, 'a')",
            "concat_ws('-', x, s, 'b')",
            "concat('a', n)",
            "nvl2(n, 'a', 'b')",
            "nvl2(s, s, 'b')",
            "k",
            "l",
            "v",
        ),
        *(
            "concat(k, l, v)",
            "arrow_typeof(concat(x, 'a'))",
            "arrow_typeof(k)",
            "max(k) OVER ()",
            "coalesce(k, 'z')",
            "k = 'p'",
        ),
        *(
            "CASE WHEN n = 7 THEN k ELSE 'b' END",
            "upper(k)",
            "'grad(x, x)'",
            "concat(s, 'grad(x, x)')",
            "lpad(s, 3, 'x')",
        ),
        *("CAST(x AS VARCHAR)", "arrow_cast(s, 'LargeUtf8')", "k IN ('p', 'z')", "length(v)", "nullif(k, 'p')"),
    ),
}
