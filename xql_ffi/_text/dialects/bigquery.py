"""BigQuery's SQL."""

from __future__ import annotations

from sqlglot.dialects.bigquery import BigQuery

from xql_ffi._text.dialects.first_value import by_limited_array
from xql_ffi._text.dialects.host import Host, not_finite

BIGQUERY = Host(
    name="bigquery",
    syntax=BigQuery,
    catalog="project",
    schema="dataset",
    same="""
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil coalesce cos cosh cot exp floor ln log10 nullif power round sin
    sinh sqrt tan tanh trunc
    array_agg avg bit_and bit_or bit_xor corr count covar_pop covar_samp max min stddev stddev_pop stddev_samp
    string_agg sum var_pop var_samp
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    ascii chr concat ends_with initcap left length lower lpad ltrim octet_length repeat replace reverse right rpad rtrim
    starts_with strpos substr substring translate trim upper
    """,
    renamed={"nvl": "ifnull", "signum": "sign", "random": "rand", "bool_and": "logical_and", "bool_or": "logical_or"},
    aliases={"pow": "power", "ceiling": "ceil", "variance": "var_samp"},
    written={
        "log(x)": "log10(x)",
        "log(b, x)": "log(x, b)",
        "log2(x)": "log(x, 2)",
        "degrees(x)": "x * 57.29577951308232",
        "radians(x)": "x * 0.017453292519943295",
        "pi()": "acos(-1)",
        "isnan(x)": "is_nan(x)",
        "iszero(x)": "x = 0",
        "nanvl(x, y)": "IF(is_nan(x), y, x)",
        "nvl2(x, y, z)": "CASE WHEN x IS NOT NULL THEN y ELSE z END",
        "greatest(x, y)": "CASE WHEN x IS NULL THEN y WHEN y IS NULL THEN x ELSE greatest(x, y) END",
        "least(x, y)": "CASE WHEN x IS NULL THEN y WHEN y IS NULL THEN x ELSE least(x, y) END",
        "grouping(x)": "grouping(x)",
        "grouping(x, y)": "2 * grouping(x) + grouping(y)",
        "grouping(x, y, z)": "4 * grouping(x) + 2 * grouping(y) + grouping(z)",
        "integer_quotient(x, y)": "div(x, y)",
        "x % y": "mod(x, y)",
    },
    read={
        "log(x)": "ln(x)",
        "greatest(x, y)": "CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN greatest(x, y) END",
        "least(x, y)": "CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN least(x, y) END",
    },
    first=by_limited_array,
    treats_nulls_inside=True,
    has_filter=False,
    divides_to_float=True,
    not_finite=not_finite("FLOAT64", "inf"),
    has_single=False,
    has_values=False,
    names_freely=False,
)
