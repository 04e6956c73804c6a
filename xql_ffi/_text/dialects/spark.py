"""Spark's SQL, as Sail has it as well."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from xql_ffi._text.dialects.first_value import by_extreme
from xql_ffi._text.dialects.host import Host, Lack, not_finite

SPARK = Host(
    name="spark",
    syntax=Spark,
    catalog="spark_catalog",
    schema="default",
    same="""
    abs acos acosh asin asinh atan atan2 atanh cbrt coalesce cos cosh cot degrees exp expm1 factorial greatest isnan
    least ln log1p log10 log2 nanvl nullif nvl nvl2 pi power radians random round sin sinh sqrt tan tanh
    avg bit_and bit_or bit_xor bool_and bool_or corr count covar_pop covar_samp max median min stddev stddev_pop
    stddev_samp sum var_pop var_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
    ascii char_length chr concat concat_ws initcap left length levenshtein lower lpad ltrim md5 repeat replace reverse
    right rpad rtrim split_part substr substring translate trim upper
    date_part date_trunc named_struct
    """,
    renamed={"signum": "sign", "make_array": "array", "array_agg": "collect_list"},
    aliases={
        "pow": "power",
        "ifnull": "nvl",
        "mean": "avg",
        "std": "stddev",
        "stddev": "stddev",
        "variance": "var_samp",
        "signum": "signum",
        "rand": "random",
        "character_length": "char_length",
    },
    written={
        "log(x)": "log10(x)",
        "log(b, x)": "log(b, x)",
        "ceil(x)": "CAST(ceil(x) AS DOUBLE)",
        "floor(x)": "CAST(floor(x) AS DOUBLE)",
        "iszero(x)": "x = 0",
        "x << y": "shiftleft(x, y)",
        "x >> y": "shiftright(x, y)",
        "grouping(x)": "grouping(x)",
        "grouping(x, y)": "2 * grouping(x) + grouping(y)",
        "grouping(x, y, z)": "4 * grouping(x) + 2 * grouping(y) + grouping(z)",
        "integer_quotient(x, y)": "x DIV y",
        "bitwise_not(x)": "~x",
    },
    read={
        "log(x)": "ln(x)",
        "log(b, x)": "log(b, x)",
        "ceil(x)": "ceil(x)",
        "ceiling(x)": "ceil(x)",
        "floor(x)": "floor(x)",
        "mod(x, y)": "x % y",
        "negative(x)": "-x",
        "grouping_id(x, y)": "grouping(x, y)",
        "grouping_id(x, y, z)": "grouping(x, y, z)",
        "max_by(x, y)": "first_value(x ORDER BY y DESC NULLS LAST)",
        "min_by(x, y)": "first_value(x ORDER BY y)",
    },
    refused={"trunc": "Spark's own is of dates", "unnest": "explode is no expression"},
    lacks=(
        Lack(
            exp.With,
            "Sail has no recursive common table expression: repeat one step in a loop",
            lambda node: bool(node.args.get("recursive")),
        ),
    ),
    first=by_extreme,
    reads_aliases=True,
    divides_to_float=True,
    float_literal="{}e0",
    not_finite=not_finite("DOUBLE", "Infinity"),
)
