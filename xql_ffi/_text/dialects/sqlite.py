"""SQLite's SQL, with its mathematical functions."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite

from xql_ffi._text.dialects.first_value import nowhere
from xql_ffi._text.dialects.host import Host, Lack

SQLITE = Host(
    name="sqlite",
    syntax=SQLite,
    catalog="sqlite",
    schema="main",
    same="""
    abs acos acosh asin asinh atan atan2 atanh ceil coalesce cos cosh degrees exp floor ln log log10 log2 nullif pi
    power radians round sin sinh sqrt tan tanh trunc
    avg count max min sum
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    concat concat_ws length lower ltrim octet_length replace rtrim substr substring trim upper
    """,
    renamed={"nvl": "ifnull", "strpos": "instr"},
    aliases={"pow": "power", "ceiling": "ceil", "sign": "signum"},
    written={
        "signum(x)": "CAST(sign(x) AS REAL)",
        "cbrt(x)": "sign(x) * power(abs(x), 1.0 / 3.0)",
        "cot(x)": "1.0 / tan(x)",
        "isnan(x)": "x <> x",
        "iszero(x)": "x = 0",
        "nanvl(x, y)": "x",
        "nvl2(x, y, z)": "CASE WHEN x IS NOT NULL THEN y ELSE z END",
        "greatest(x, y)": "CASE WHEN x IS NULL THEN y WHEN y IS NULL THEN x ELSE max(x, y) END",
        "least(x, y)": "CASE WHEN x IS NULL THEN y WHEN y IS NULL THEN x ELSE min(x, y) END",
        "x % y": "mod(x, y)",
        "integer_remainder(x, y)": "x % y",
        "bitwise_not(x)": "~x",
        "x ^ y": "(x | y) - (x & y)",
    },
    read={
        "max(x, y)": "CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN greatest(x, y) END",
        "min(x, y)": "CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN least(x, y) END",
        "max(x, y, z)": "CASE WHEN x IS NOT NULL AND y IS NOT NULL AND z IS NOT NULL THEN greatest(x, y, z) END",
        "min(x, y, z)": "CASE WHEN x IS NOT NULL AND y IS NOT NULL AND z IS NOT NULL THEN least(x, y, z) END",
    },
    refused={"random": "SQLite's own is an integer"},
    lacks=(
        Lack(exp.GroupingSets, "SQLite has no grouping sets: write a query for each, and UNION ALL"),
        Lack(exp.Rollup, "SQLite has no ROLLUP: write a query for each level, and UNION ALL"),
        Lack(exp.Cube, "SQLite has no CUBE: write a query for each of its sets, and UNION ALL"),
        Lack(exp.IgnoreNulls, "SQLite has no IGNORE NULLS: number the runs of values by count(x) OVER (ORDER BY ...)"),
    ),
    first=nowhere,
    not_finite={"nan": "CAST(NULL AS REAL)", "inf": "9e999", "-inf": "-9e999"},
    materializes=True,
    has_single=False,
    has_values=False,
)
