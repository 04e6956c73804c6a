//! The session's option for sums of products.

use std::fmt;
use std::str::FromStr;

/// How a session computes sums of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contractions {
    /// By DataFusion's joins and aggregates.
    Off,
    /// By the cheapest kernel, in plans of gradients by row.
    #[default]
    On,
    /// By the cheapest kernel, also in the statements that a user writes.
    Everywhere,
    /// By dense matrices where these give the same result, at whatever cost, else by sparse ones.
    Dense,
    /// By sparse matrices, at whatever cost.
    Sparse,
    /// By the fallback plan, as if no sum had a kernel.
    Fallback,
}

impl Contractions {
    const NAMES: [(&'static str, Self); 6] = [
        ("true", Self::On),
        ("false", Self::Off),
        ("everywhere", Self::Everywhere),
        ("dense", Self::Dense),
        ("sparse", Self::Sparse),
        ("fallback", Self::Fallback),
    ];
}

impl FromStr for Contractions {
    type Err = String;

    fn from_str(value: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| value.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            format!("one of {}, not {value}", names.join(", "))
        })
    }
}

impl fmt::Display for Contractions {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, value)| value == self).map_or("", |(name, _)| *name);
        f.write_str(name)
    }
}
