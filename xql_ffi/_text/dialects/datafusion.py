"""DataFusion's SQL for sqlglot, as the native library reads and writes it."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, generator, parser
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy


def words(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


class XqlDataFusion(Dialect):
    """DataFusion's SQL. Functions keep their names: what they are called elsewhere is in the tables of the hosts."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.LOWERCASE
    NULL_ORDERING = "nulls_are_large"
    TYPED_DIVISION = True
    LOG_BASE_FIRST = True
    INDEX_OFFSET = 1

    class Parser(parser.Parser):
        """Reads functions as calls of names."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}

    class Generator(generator.Generator):
        """Writes what DataFusion calls otherwise than sqlglot does by default."""

        TYPE_MAPPING: ClassVar = {
            **generator.Generator.TYPE_MAPPING,
            exp.DataType.Type.TEXT: "VARCHAR",
            exp.DataType.Type.UTINYINT: "TINYINT UNSIGNED",
            exp.DataType.Type.USMALLINT: "SMALLINT UNSIGNED",
            exp.DataType.Type.UINT: "INT UNSIGNED",
            exp.DataType.Type.UBIGINT: "BIGINT UNSIGNED",
            exp.DataType.Type.INT128: "DECIMAL(38, 0)",
            exp.DataType.Type.UINT128: "DECIMAL(38, 0)",
            exp.DataType.Type.DATETIME: "TIMESTAMP",
            exp.DataType.Type.TIMESTAMPNTZ: "TIMESTAMP",
            exp.DataType.Type.TIMESTAMPTZ: "TIMESTAMP WITH TIME ZONE",
        }
        TRANSFORMS: ClassVar = {
            **generator.Generator.TRANSFORMS,
            exp.Pow: lambda self, node: self.func("power", node.this, node.expression),
            exp.Array: lambda self, node: self.func("make_array", *node.expressions),
            exp.Parameter: lambda self, node: f"${node.name}",
            exp.Placeholder: lambda self, node: f"${node.name}",
            exp.Ceil: lambda self, node: self.func("ceil", node.this),
            exp.Floor: lambda self, node: self.func("floor", node.this),
        }


# The aggregates among the functions of DataFusion 54.
AGGREGATES = words(
    """
    approx_distinct approx_median approx_percentile_cont approx_percentile_cont_with_weight array_agg avg bit_and bit_or
    bit_xor bool_and bool_or corr count covar covar_pop covar_samp first_value grouping last_value max mean median min
    nth_value percentile_cont quantile_cont regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy stddev stddev_pop stddev_samp string_agg sum var var_pop var_population var_samp var_sample
    """
)

# The functions of DataFusion 54. Those of a host that are called the same without being the same get another name.
FUNCTIONS = words(
    """
    abs acos acosh approx_distinct approx_median approx_percentile_cont approx_percentile_cont_with_weight
    array_agg array_any_match array_any_value array_append array_cat array_compact array_concat array_contains
    array_dims array_distance array_distinct array_element array_empty array_except array_extract array_filter
    array_has array_has_all array_has_any array_indexof array_intersect array_join array_length array_max
    array_min array_ndims array_normalize array_pop_back array_pop_front array_position array_positions
    array_prepend array_push_back array_push_front array_remove array_remove_all array_remove_n array_repeat
    array_replace array_replace_all array_replace_n array_resize array_reverse array_slice array_sort
    array_to_string array_transform array_union arrays_overlap arrays_zip arrow_cast arrow_field arrow_metadata
    arrow_try_cast arrow_typeof ascii asin asinh atan atan2 atanh avg bit_and bit_length bit_or bit_xor bool_and
    bool_or btrim cardinality cast_to_type cbrt ceil char_length character_length chr coalesce concat concat_ws
    contains corr cos cosh cosine_distance cot count covar covar_pop covar_samp cume_dist current_date
    current_time current_timestamp date_bin date_format date_part date_trunc datepart datetrunc decode degrees
    dense_rank digest dot_product element_at empty encode ends_with exp factorial find_in_set first_value
    flatten floor from_unixtime gcd generate_series get_field grad greatest grouping ifnull initcap
    inner_product instr isnan iszero jvp lag last_value lcm lead least left length levenshtein ln log log10 log2
    lower lpad ltrim make_array make_date make_list make_time map map_entries map_extract map_keys map_values
    max md5 mean median min named_struct nanvl now nth_value ntile nullif nvl nvl2 octet_length overlay
    percent_rank percentile_cont pi position pow power quantile_cont radians rand random range rank regexp_count
    regexp_instr regexp_like regexp_match regexp_replace regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right round row row_number rpad rtrim sha224
    sha256 sha384 sha512 signum sin sinh split_part sqrt starts_with stddev stddev_pop stddev_samp stop_gradient
    string_agg string_to_array string_to_list strpos struct substr substr_index substring substring_index sum
    tan tanh to_char to_date to_hex to_local_time to_time to_timestamp to_timestamp_micros to_timestamp_millis
    to_timestamp_nanos to_timestamp_seconds to_unixtime today translate trim trunc try_cast_to_type
    union_extract union_tag unnest upper uuid var var_pop var_population var_samp var_sample version vjp
    with_metadata
    """
)
