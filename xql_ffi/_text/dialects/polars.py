"""The SQL of Polars."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.dialect import NormalizationStrategy
from sqlglot.dialects.duckdb import DuckDB

from xql_ffi._text.dialects.first_value import nowhere
from xql_ffi._text.dialects.host import Host, Lack, not_finite


class XqlPolars(DuckDB):
    """Polars' SQL for sqlglot, which does not know it. As far as it goes it is written as DuckDB's."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE
    NULL_ORDERING = "nulls_are_large"


def _takes_another(key: exp.Expr) -> bool:
    """Returns whether a key of ORDER BY is a table's column, and SELECT gives its name to something else."""
    column, select = key.this, key.find_ancestor(exp.Select)
    if not (isinstance(column, exp.Column) and column.table and select is not None):
        return False
    named = [item for item in select.selects if isinstance(item, exp.Alias) and item.alias == column.name]
    return key.find_ancestor(exp.Window, exp.Select) is select and any(item.this != column for item in named)


POLARS = Host(
    name="polars",
    syntax=XqlPolars,
    catalog="polars",
    schema="polars",
    same="""
    abs acos asin atan atan2 cbrt ceil coalesce cos cot degrees exp floor greatest least ln log1p log10 log2 nullif pi
    power radians round sin sqrt tan trunc
    avg corr count covar_pop covar_samp max median min stddev sum
    row_number rank dense_rank lag lead first_value last_value
    concat concat_ws initcap left length lower ltrim octet_length replace reverse right rtrim starts_with strpos substr
    trim upper date_part
    """,
    renamed={"nvl": "ifnull", "signum": "sign", "var_samp": "variance", "stddev_samp": "stddev"},
    aliases={"pow": "power", "ceiling": "ceil", "mean": "avg", "stddev": "stddev"},
    written={
        "log(x)": "log10(x)",
        "log(b, x)": "log(x, b)",
        "isnan(x)": "x = CAST('NaN' AS DOUBLE)",
        "iszero(x)": "x = 0",
        "nanvl(x, y)": "CASE WHEN x = CAST('NaN' AS DOUBLE) THEN y ELSE x END",
        "nvl2(x, y, z)": "CASE WHEN x IS NOT NULL THEN y ELSE z END",
        "x ^ y": "xor(x, y)",
        "integer_quotient(x, y)": "x // y",
    },
    read={"mod(x, y)": "x % y"},
    refused=dict.fromkeys(("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), "write it with exp or ln"),
    lacks=(
        Lack(
            exp.WindowSpec,
            "Polars has no RANGE frame in windows: order them by a column without ties, and write ROWS",
            lambda node: node.args.get("kind") != "ROWS",
        ),
        Lack(
            exp.Distinct,
            "Polars orders DISTINCT ON by columns of SELECT alone: number the rows, and take the first",
            lambda node: bool(node.args.get("on")),
        ),
        Lack(
            exp.Paren,
            "Polars has no join in parentheses, which this derivative needs",
            lambda node: isinstance(node.this, exp.Table),
        ),
        Lack(
            exp.Subquery,
            "Polars has no join in parentheses, which this derivative needs",
            lambda node: isinstance(node.this, (exp.Table, exp.Subquery)),
        ),
        Lack(
            exp.Ordered,
            "Polars orders by the column of SELECT that has the name, not by that of the table: name it otherwise",
            _takes_another,
        ),
        Lack(exp.IgnoreNulls, "Polars has no IGNORE NULLS in SQL: fill the values in before the query"),
    ),
    first=nowhere,
    divides_to_float=True,
    float_literal="{}e0",
    not_finite=not_finite("DOUBLE", "inf"),
    has_values=False,
)
