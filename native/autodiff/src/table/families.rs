//! The families that the table is listed by.

use super::line::{Description, Line, Refusal};
use super::{arithmetic, choices, descriptions, elementary, random, refusals, rounding, special};

/// A family of functions and expressions.
pub struct Family {
    /// Its title in the list of all rules.
    pub name: &'static str,
    /// What the calculus looks up.
    pub lines: &'static [Line],
    /// What is differentiated by how it is built.
    pub described: &'static [Description],
    /// What is not differentiated.
    pub refused: &'static [Refusal],
}

const fn family(name: &'static str, lines: &'static [Line], described: &'static [Description]) -> Family {
    Family { name, lines, described, refused: &[] }
}

/// The table.
pub static FAMILIES: [Family; 12] = [
    family("arithmetic", arithmetic::LINES, descriptions::ARITHMETIC),
    family("exponentials and logarithms", elementary::EXPONENTIALS, &[]),
    family("powers and roots", elementary::POWERS, &[]),
    family("trigonometry", elementary::TRIGONOMETRY, &[]),
    family("hyperbolic functions", elementary::HYPERBOLIC, &[]),
    family("special functions", special::LINES, &[]),
    family("random numbers", random::LINES, &[]),
    family("selection", choices::LINES, descriptions::CHOICES),
    family("rounding and constants", rounding::LINES, rounding::DESCRIBED),
    Family { refused: refusals::CONVERSIONS, ..family("conversions", choices::METADATA, descriptions::CONVERSIONS) },
    family("conditions", &[], descriptions::CONDITIONS),
    Family { refused: refusals::NESTED_AND_TIMES, ..family("lists, maps, structs and times", &[], &[]) },
];

/// Iterates over all lines that are looked up.
pub fn lines() -> impl Iterator<Item = &'static Line> {
    FAMILIES.iter().flat_map(|family| family.lines)
}
