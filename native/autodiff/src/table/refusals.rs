//! Functions that are not differentiated, each with the reason.

use super::line::{Refusal, refusal};

const LIST: &str = "a list has no derivative. Differentiate its elements before they are put into the list";
const ELEMENT: &str = "a list has no derivative. Write the element itself in place of the list";
const SUM: &str = "a list has no derivative. Write the sum over the elements out";
const MAP: &str = "a map has no derivative. Differentiate its values before they are put into the map";
const STRUCT: &str = "a struct has no derivative. Differentiate its fields before they are put into the struct";
/// The time is of any type: a timestamp, a date, an interval.
pub const TIME: &str = "a time is not a number. Do the arithmetic with the number of seconds, before it becomes a time";

/// DataFusion turns floats into decimals by itself, in `coalesce(x, 1.5::DECIMAL)` for one, so the derivative of the
/// conversion is neither 0 nor 1 beyond doubt.
pub const DECIMAL: &str = "decimals are not differentiated. Convert the decimals among its inputs, CAST(... AS DOUBLE)";

/// Strings have all digits of a float.
pub const TEXT: &str = "a string is not a number. Use the number that it was made of";

/// Conversions to what is no float.
pub const CONVERSIONS: &[Refusal] =
    &[refusal("CAST(x AS DECIMAL(20, 10))", DECIMAL), refusal("CAST(CAST(x AS VARCHAR) AS DOUBLE)", TEXT)];

/// What makes lists, maps, structs and times of floats, and what takes them apart.
pub const NESTED_AND_TIMES: &[Refusal] = &[
    refusal("array_any_value([x])", ELEMENT),
    refusal("array_append([x], y)", LIST),
    refusal("array_compact([x])", LIST),
    refusal("array_concat([x], [y])", LIST),
    refusal("array_distance([x], [y])", SUM),
    refusal("array_distinct([x])", LIST),
    refusal("array_element([x], 1)", ELEMENT),
    refusal("array_except([x], [y])", LIST),
    refusal("array_filter([x], v -> v > 0)", LIST),
    refusal("array_intersect([x], [y])", LIST),
    refusal("array_max([x, y])", "a list has no derivative. Write greatest(...) of the elements"),
    refusal("array_min([x, y])", "a list has no derivative. Write least(...) of the elements"),
    refusal("array_normalize([x, y])", LIST),
    refusal("array_pop_back([x, y])", LIST),
    refusal("array_pop_front([x, y])", LIST),
    refusal("array_prepend(x, [y])", LIST),
    refusal("array_remove([x], y)", LIST),
    refusal("array_remove_all([x], y)", LIST),
    refusal("array_remove_n([x], y, 1)", LIST),
    refusal("array_repeat(x, 2)", LIST),
    refusal("array_replace([x], x, y)", LIST),
    refusal("array_replace_all([x], x, y)", LIST),
    refusal("array_replace_n([x], x, y, 1)", LIST),
    refusal("array_resize([x], 2, y)", LIST),
    refusal("array_reverse([x, y])", LIST),
    refusal("array_slice([x, y], 1, 2)", LIST),
    refusal("array_sort([x, y])", LIST),
    refusal("array_transform([x], v -> 2 * v)", LIST),
    refusal("array_union([x], [y])", LIST),
    refusal("arrays_zip([x], [y])", LIST),
    refusal("cosine_distance([x], [y])", SUM),
    refusal("date_part('epoch', to_timestamp(x))", TIME),
    refusal("flatten([[x], [y]])", LIST),
    refusal("get_field(struct(x), 'c0')", "a struct has no derivative. Write the field itself in place of the struct"),
    refusal("inner_product([x], [y])", SUM),
    refusal("make_array(x, y)", LIST),
    refusal("map([y], [x])", MAP),
    refusal("map_entries(map([y], [x]))", MAP),
    refusal("map_extract(map([y], [x]), y)", "a map has no derivative. Write the value itself in place of the map"),
    refusal("map_keys(map([x], [y]))", MAP),
    refusal("map_values(map([y], [x]))", MAP),
    refusal("named_struct('a', x)", STRUCT),
    refusal("struct(x)", STRUCT),
    refusal("to_date(x)", TIME),
    refusal("to_time(x)", TIME),
    refusal("to_timestamp(x)", TIME),
    refusal("to_timestamp_micros(x)", TIME),
    refusal("to_timestamp_millis(x)", TIME),
    refusal("to_timestamp_nanos(x)", TIME),
    refusal("to_timestamp_seconds(x)", TIME),
    refusal("union_extract(u, 'a')", "a union has no derivative. Differentiate what it is made of"),
];
