//! Derivatives by finite differences of what a query gives, and their comparison.

use datafusion::error::Result;

/// The step. The error of the difference, and what rounding makes of it, are some 1e-12 of a function of everyday size.
const H: f64 = 1e-4;

/// The derivatives of values by what moves them, at 0: differences of order 4; none where a value is NULL.
pub async fn differences(moved_by: impl AsyncFn(f64) -> Result<Vec<Option<f64>>>) -> Result<Vec<Option<f64>>> {
    let [above, below] = [moved_by(H).await?, moved_by(-H).await?];
    let [further_above, further_below] = [moved_by(2.0 * H).await?, moved_by(-2.0 * H).await?];
    let counts = [&below, &further_above, &further_below].map(Vec::len);
    assert_eq!(counts, [above.len(); 3], "a step changes the number of rows");
    let near = above.iter().zip(below).map(|(a, b)| Some(a.as_ref()? - b?));
    let far = further_above.iter().zip(further_below).map(|(a, b)| Some(a.as_ref()? - b?));
    Ok(near.zip(far).map(|(near, far)| Some((8.0 * near? - far?) / (12.0 * H))).collect())
}

/// The first place where values are not those expected, up to a tolerance that is relative where they are large.
pub fn first_that_differs(actual: &[Option<f64>], expected: &[Option<f64>], tolerance: f64) -> Option<String> {
    if actual.len() != expected.len() {
        return Some(format!("{} values instead of {}", actual.len(), expected.len()));
    }
    let same = |(actual, expected): (&Option<f64>, &Option<f64>)| match (actual, expected) {
        (Some(actual), Some(expected)) => (actual - expected).abs() <= tolerance * (1.0 + expected.abs()),
        (actual, expected) => actual.is_none() && expected.is_none(),
    };
    let place = actual.iter().zip(expected).position(|pair| !same(pair))?;
    Some(format!("value {place} is {:?} instead of {:?}", actual[place], expected[place]))
}

/// Asserts that values are those expected, up to rounding.
#[track_caller]
pub fn assert_close(actual: &[Option<f64>], expected: &[f64]) {
    let expected: Vec<_> = expected.iter().copied().map(Some).collect();
    if let Some(difference) = first_that_differs(actual, &expected, 1e-9) {
        panic!("{difference}: {actual:?} {expected:?}");
    }
}
