//! Whether sums of products are computed as arrays.

use std::fmt;
use std::str::FromStr;

/// What a session says about sums of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contractions {
    /// DataFusion joins and groups.
    Off,
    /// Whichever way costs least for the rows that there are.
    #[default]
    On,
    /// The same, for the sums that a statement has of itself, too.
    Everywhere,
    /// By dense arrays where these have the meaning of the rows, whatever it costs, and else by runs.
    Dense,
    /// By sorted runs, whatever it costs.
    Sparse,
    /// By the join and the groups that stand behind every sum, as if it could not be computed otherwise.
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
