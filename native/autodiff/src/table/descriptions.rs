//! Expressions whose derivative follows from how they are built. They are shown beside the lines that are looked up.

use super::line::{Description, Kink, described, kink};

const JUMP: &str = "0 on either side";
const AT_EQUALITY: &[Kink] = &[kink("x = y", &["0", "0"], JUMP)];
const OF_THE_BRANCH: &str = "those of the branch taken";

/// The unary plus, of which the planner leaves nothing.
pub const ARITHMETIC: &[Description] = &[described("+x", &["1"])];

/// `CASE` is differentiated branch by branch. coalesce, nvl and nvl2 are `CASE` by the time a derivative is taken, because
/// DataFusion simplifies arguments first.
pub const CHOICES: &[Description] = &[
    described(
        "CASE WHEN a < b THEN x ELSE y END",
        &["0", "0", "CASE WHEN a < b THEN 1 ELSE 0 END", "CASE WHEN a < b THEN 0 ELSE 1 END"],
    )
    .kinks(&[kink("a = b", &["0", "0", "0", "1"], OF_THE_BRANCH)]),
    described(
        "CASE a WHEN b THEN x ELSE y END",
        &["0", "0", "CASE a WHEN b THEN 1 ELSE 0 END", "CASE a WHEN b THEN 0 ELSE 1 END"],
    )
    .kinks(&[kink("a = b", &["0", "0", "1", "0"], OF_THE_BRANCH)]),
    described("coalesce(x1, ..., xn)", &["CASE WHEN x1 IS NULL AND ... AND xi IS NOT NULL THEN 1 ELSE 0 END"])
        .variadic()
        .replaced("coalesce", "CASE"),
    described("nvl(x, y)", &["CASE WHEN x IS NOT NULL THEN 1 ELSE 0 END", "CASE WHEN x IS NOT NULL THEN 0 ELSE 1 END"])
        .replaced("nvl", "CASE"),
    described(
        "nvl2(x, y, z)",
        &["0", "CASE WHEN x IS NOT NULL THEN 1 ELSE 0 END", "CASE WHEN x IS NOT NULL THEN 0 ELSE 1 END"],
    )
    .replaced("nvl2", "CASE"),
];

/// Between floats conversions are the identity; to whole numbers and booleans they are constant between jumps.
pub const CONVERSIONS: &[Description] = &[
    described("CAST(x AS DOUBLE)", &["1"]),
    described("TRY_CAST(x AS DOUBLE)", &["1"]),
    described("arrow_cast(x, 'Float64')", &["1"]).replaced("arrow_cast", "CAST"),
    described("arrow_try_cast(x, 'Float64')", &["1"]).replaced("arrow_try_cast", "TRY_CAST"),
    described("cast_to_type(x, y)", &["1", "0"]).replaced("cast_to_type", "CAST"),
    described("try_cast_to_type(x, y)", &["1", "0"]).replaced("try_cast_to_type", "TRY_CAST"),
    described("CAST(x AS BIGINT)", &["0"]).kinks(&[kink("x = k", &["0"], JUMP)]),
    described("TRY_CAST(x AS BIGINT)", &["0"]).kinks(&[kink("x = k", &["0"], JUMP)]),
    described("CAST(x AS BOOLEAN)", &["0"]).kinks(&[kink("x = 0", &["0"], JUMP)]),
];

/// Conditions, and what else is computed from a float but is none: constant between jumps.
pub const CONDITIONS: &[Description] = &[
    described("x = y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x != y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x < y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x <= y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x > y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x >= y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x IS DISTINCT FROM y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x IS NOT DISTINCT FROM y", &["0", "0"]).kinks(AT_EQUALITY),
    described("x BETWEEN y AND z", &["0", "0", "0"])
        .kinks(&[kink("x = y", &["0", "0", "0"], JUMP), kink("x = z", &["0", "0", "0"], JUMP)]),
    described("x IN (y, z)", &["0", "0", "0"])
        .kinks(&[kink("x = y", &["0", "0", "0"], JUMP), kink("x = z", &["0", "0", "0"], JUMP)]),
    described("x IS NULL", &["0"]),
    described("isnan(x)", &["0"]),
    described("iszero(x)", &["0"]).kinks(&[kink("x = 0", &["0"], JUMP)]),
    described("arrow_typeof(x)", &["0"]),
    described("arrow_field(x)", &["0"]),
    described("arrow_metadata(x)", &["0"]),
    described("union_tag(u)", &["0"]),
    described("array_any_match([x], v -> v > y)", &["0", "0"]).kinks(AT_EQUALITY),
    described("array_dims([x])", &["0"]),
    described("array_has([x], y)", &["0", "0"]).kinks(AT_EQUALITY),
    described("array_has_all([x], [y])", &["0", "0"]).kinks(AT_EQUALITY),
    described("array_has_any([x], [y])", &["0", "0"]).kinks(AT_EQUALITY),
    described("[x] @> [y]", &["0", "0"]).kinks(AT_EQUALITY),
    described("[x] <@ [y]", &["0", "0"]).kinks(AT_EQUALITY),
    described("array_length([x])", &["0"]),
    described("array_ndims([x])", &["0"]),
    described("array_position([x, y], y)", &["0", "0"]).kinks(AT_EQUALITY),
    described("array_positions([x, y], y)", &["0", "0"]).kinks(AT_EQUALITY),
    described("array_to_string([x], ',')", &["0"]),
    described("cardinality([x])", &["0"]),
    described("empty([x])", &["0"]),
];
