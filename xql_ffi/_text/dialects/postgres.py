"""PostgreSQL's SQL."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from xql_ffi._text.dialects.first_value import by_array
from xql_ffi._text.dialects.host import Host, Lack, not_finite

POSTGRES = Host(
    name="postgres",
    syntax=Postgres,
    catalog="postgres",
    schema="public",
    same="""
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil coalesce cos cosh cot degrees erf erfc exp factorial floor
    gamma gcd greatest lcm least lgamma ln log10 nullif pi power radians random round sin sinh sqrt tan tanh trunc
    array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp grouping max min stddev
    stddev_pop stddev_samp string_agg sum var_pop var_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy percentile_cont
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    ascii bit_length btrim char_length chr concat concat_ws initcap left length lower lpad ltrim md5 octet_length repeat
    replace reverse right rpad rtrim split_part starts_with strpos substr substring to_hex translate trim upper
    date_part date_trunc now unnest generate_series
    """,
    renamed={"nvl": "coalesce"},
    aliases={"pow": "power", "ceiling": "ceil", "sign": "signum", "variance": "var_samp", "coalesce": "coalesce"},
    written={
        "signum(x)": "CASE WHEN x = CAST('NaN' AS DOUBLE PRECISION) THEN x ELSE sign(x) END",
        "log(x)": "log(x)",
        "log(b, x)": "ln(x) / ln(b)",
        "log2(x)": "ln(x) / ln(CAST(2 AS DOUBLE PRECISION))",
        "isnan(x)": "x = CAST('NaN' AS DOUBLE PRECISION)",
        "iszero(x)": "x = 0",
        "nanvl(x, y)": "CASE WHEN x = CAST('NaN' AS DOUBLE PRECISION) THEN y ELSE x END",
        "nvl2(x, y, z)": "CASE WHEN x IS NOT NULL THEN y ELSE z END",
        "make_array(x)": "ARRAY[x]",
        "make_array(x, y)": "ARRAY[x, y]",
        "make_array(x, y, z)": "ARRAY[x, y, z]",
        "bitwise_not(x)": "~x",
    },
    read={"x ^ y": "power(x, y)", "mod(x, y)": "x % y", "log(b, x)": "log(b, x)"},
    lacks=(
        Lack(
            exp.IgnoreNulls, "PostgreSQL has no IGNORE NULLS: number the runs of values by count(x) OVER (ORDER BY ...)"
        ),
    ),
    first=by_array,
    float_literal="CAST({} AS DOUBLE PRECISION)",
    not_finite=not_finite("DOUBLE PRECISION", "Infinity"),
    materializes=True,
    writes_out=True,
    longest_name=63,
)
