"""DuckDB's SQL."""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB

from xql_ffi._text.dialects.first_value import by_aggregate
from xql_ffi._text.dialects.host import Host, not_finite

DUCKDB = Host(
    name="duckdb",
    syntax=DuckDB,
    catalog="memory",
    schema="main",
    same="""
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil coalesce cos cosh cot degrees exp floor greatest isnan least
    gamma lgamma ln log log10 log2 nullif pi power radians round sin sinh sqrt tan tanh random
    array_agg avg bool_and bool_or bit_and bit_or bit_xor corr count covar_pop covar_samp grouping max median min
    percentile_cont stddev stddev_pop stddev_samp sum var_pop var_samp regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy string_agg
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    ascii chr concat concat_ws ends_with left length levenshtein lower lpad ltrim md5 octet_length repeat replace
    reverse right rpad rtrim split_part starts_with strpos substr substring to_hex translate trim upper
    date_part date_trunc now unnest generate_series range
    """,
    renamed={"nvl": "ifnull", "make_array": "list_value", "percentile_cont": "quantile_cont"},
    aliases={
        "pow": "power",
        "ceiling": "ceil",
        "mean": "avg",
        "variance": "var_samp",
        "list": "array_agg",
        "arbitrary": "first_value",
        "sign": "signum",
    },
    aggregates={"first_value": "first", "last_value": "last"},
    written={
        "signum(x)": "CASE WHEN isnan(x) THEN x ELSE sign(x) END",
        "trunc(x)": "CAST(trunc(x) AS DOUBLE)",
        "trunc(x, y)": "trunc(x, y)",
        "iszero(x)": "x = 0",
        "nanvl(x, y)": "CASE WHEN isnan(x) THEN y ELSE x END",
        "nvl2(x, y, z)": "CASE WHEN x IS NOT NULL THEN y ELSE z END",
        "x ^ y": "xor(x, y)",
        "integer_quotient(x, y)": "x // y",
        "bitwise_not(x)": "~x",
    },
    read={
        "x ** y": "power(x, y)",
        "mod(x, y)": "x % y",
        "fmod(x, y)": "x % y",
        "add(x, y)": "x + y",
        "subtract(x, y)": "x - y",
        "multiply(x, y)": "x * y",
        "trunc(x)": "trunc(x)",
    },
    of_words=frozenset(("alias",)),
    first=by_aggregate,
    reads_aliases=True,
    divides_to_float=True,
    float_literal="{}e0",
    not_finite=not_finite("DOUBLE", "Infinity"),
    materializes=True,
    rereads=True,
    has_unsigned=True,
    treats_nulls_inside=True,
)
