//! The families that the table is listed by.

use super::line::{Description, Line, Refusal};
use super::{arithmetic, choices, described, elementary, refused, rounding, special};

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
pub static FAMILIES: [Family; 11] = [
    family("arithmetic", arithmetic::LINES, described::ARITHMETIC),
    family("exponentials and logarithms", elementary::EXPONENTIALS, &[]),
    family("powers and roots", elementary::POWERS, &[]),
    family("trigonometry", elementary::TRIGONOMETRY, &[]),
    family("hyperbolic functions", elementary::HYPERBOLIC, &[]),
    family("special functions", special::LINES, &[]),
    family("selection", choices::LINES, described::CHOICES),
    family("rounding and constants", rounding::LINES, rounding::DESCRIBED),
    Family { refused: refused::CONVERSIONS, ..family("conversions", choices::METADATA, described::CONVERSIONS) },
    family("conditions", &[], described::CONDITIONS),
    Family { refused: refused::NESTED_AND_TIMES, ..family("lists, maps, structs and times", &[], &[]) },
];

/// All lines that are looked up.
pub fn lines() -> impl Iterator<Item = &'static Line> {
    FAMILIES.iter().flat_map(|family| family.lines)
}
