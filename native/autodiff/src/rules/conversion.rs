//! Conversions of type.
//!
//! Between floats they are the identity; to whole numbers and booleans they are constant between jumps. Strings have all digits
//! of a float, so no number can be made of them again.

use super::{Line, kink, refusal, structure};

const JUMP: &str = "0 on either side";

/// DataFusion turns floats into decimals by itself, in `coalesce(x, 1.5::DECIMAL)` for one, so the derivative of the
/// conversion is neither 0 nor 1 beyond doubt.
pub const DECIMAL: &str = "decimals are not differentiated. Convert the decimals among its inputs, CAST(... AS DOUBLE)";

const TEXT: &str = "a string is no number. Use the number that it was made of";

pub const RULES: &[Line] = &[
    structure("CAST(x AS DOUBLE)", &["1"]),
    structure("TRY_CAST(x AS DOUBLE)", &["1"]),
    structure("arrow_cast(x, 'Float64')", &["1"]),
    structure("arrow_try_cast(x, 'Float64')", &["1"]),
    structure("cast_to_type(x, y)", &["1", "0"]),
    structure("try_cast_to_type(x, y)", &["1", "0"]),
    structure("CAST(x AS BIGINT)", &["0"]).kinks(&[kink("x = k", &["0"], JUMP)]),
    structure("TRY_CAST(x AS BIGINT)", &["0"]).kinks(&[kink("x = k", &["0"], JUMP)]),
    structure("CAST(x AS BOOLEAN)", &["0"]).kinks(&[kink("x = 0", &["0"], JUMP)]),
    refusal("CAST(x AS DECIMAL(20, 10))", DECIMAL),
    refusal("CAST(CAST(x AS VARCHAR) AS DOUBLE)", TEXT),
    structure("with_metadata(x, 'unit', 'm')", &["1"]),
];
