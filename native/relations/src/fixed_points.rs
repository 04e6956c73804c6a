//! Which recursive queries have the derivative of their limit.

use std::str::FromStr;

/// The recursive queries that converge to a fixed point, each with a tolerance: a step at the end moves by no more than that, and what is
/// left out of a derivative is no more than that part of it.
///
/// ```text
/// 0                       none
/// 1e-9                    all
/// rank: 1e-9, f: 1e-12    those of these names
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FixedPoints {
    all: Option<f64>,
    named: Vec<(String, f64)>,
}

impl FixedPoints {
    /// Returns the tolerance of the recursive query of this name, if its derivative is that of its limit.
    pub fn tolerance(&self, query: &str) -> Option<f64> {
        self.named.iter().find(|(name, _)| name == query).map(|(_, tolerance)| *tolerance).or(self.all)
    }
}

impl FromStr for FixedPoints {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.trim().parse() == Ok(0.0) {
            return Ok(Self::default());
        }
        let mut points = Self::default();
        for part in text.split(',') {
            match part.rsplit_once(':') {
                Some((name, tolerance)) if !name.trim().is_empty() => {
                    points.named.push((name.trim().to_owned(), parsed(tolerance)?));
                }
                None if points.all.is_none() => points.all = Some(parsed(part)?),
                _ => return Err(()),
            }
        }
        Ok(points)
    }
}

fn parsed(text: &str) -> Result<f64, ()> {
    text.trim().parse().ok().filter(|tolerance| *tolerance > 0.0 && *tolerance < 1.0).ok_or(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_those_that_are_named() {
        let tolerances = |text: &str| {
            let points: FixedPoints = text.parse().ok()?;
            Some(["r", "a b"].map(|name| points.tolerance(name)))
        };
        assert_eq!(tolerances("0"), Some([None, None]));
        assert_eq!(tolerances(" 1e-9"), Some([Some(1e-9), Some(1e-9)]));
        assert_eq!(tolerances("r: 1e-9"), Some([Some(1e-9), None]));
        assert_eq!(tolerances("a b:0.5 , 1e-3"), Some([Some(1e-3), Some(0.5)]));
        for wrong in ["", "r", "-1e-9", "1", "NaN", "r: 0", ": 1e-9", "1e-3, 1e-4", "1e-3,"] {
            assert_eq!(tolerances(wrong), None, "{wrong}");
        }
    }
}
