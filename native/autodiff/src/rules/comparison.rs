//! Conditions, and what else is computed from a float but is none: constant between jumps.

use super::{Kink, Line, kink, structure};

const JUMP: &str = "0 on either side";
const AT_EQUALITY: &[Kink] = &[kink("x = y", &["0", "0"], JUMP)];

pub const RULES: &[Line] = &[
    structure("x = y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x != y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x < y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x <= y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x > y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x >= y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x IS DISTINCT FROM y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x IS NOT DISTINCT FROM y", &["0", "0"]).kinks(AT_EQUALITY),
    structure("x BETWEEN y AND z", &["0", "0", "0"])
        .kinks(&[kink("x = y", &["0", "0", "0"], JUMP), kink("x = z", &["0", "0", "0"], JUMP)]),
    structure("x IN (y, z)", &["0", "0", "0"])
        .kinks(&[kink("x = y", &["0", "0", "0"], JUMP), kink("x = z", &["0", "0", "0"], JUMP)]),
    structure("x IS NULL", &["0"]),
    structure("isnan(x)", &["0"]),
    structure("iszero(x)", &["0"]).kinks(&[kink("x = 0", &["0"], JUMP)]),
    structure("arrow_typeof(x)", &["0"]),
    structure("arrow_field(x)", &["0"]),
    structure("arrow_metadata(x)", &["0"]),
    structure("union_tag(u)", &["0"]),
    structure("array_any_match([x], v -> v > y)", &["0", "0"]).kinks(AT_EQUALITY),
    structure("array_dims([x])", &["0"]),
    structure("array_has([x], y)", &["0", "0"]).kinks(AT_EQUALITY),
    structure("array_has_all([x], [y])", &["0", "0"]).kinks(AT_EQUALITY),
    structure("array_has_any([x], [y])", &["0", "0"]).kinks(AT_EQUALITY),
    structure("[x] @> [y]", &["0", "0"]).kinks(AT_EQUALITY),
    structure("[x] <@ [y]", &["0", "0"]).kinks(AT_EQUALITY),
    structure("array_length([x])", &["0"]),
    structure("array_ndims([x])", &["0"]),
    structure("array_position([x, y], y)", &["0", "0"]).kinks(AT_EQUALITY),
    structure("array_positions([x, y], y)", &["0", "0"]).kinks(AT_EQUALITY),
    structure("array_to_string([x], ',')", &["0"]),
    structure("cardinality([x])", &["0"]),
    structure("empty([x])", &["0"]),
];
