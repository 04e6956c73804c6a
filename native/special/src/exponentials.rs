//! Exponentials and logarithms that keep their digits and do not overflow.

use std::f64::consts::LN_2;

/// `ln(exp(x) + exp(y))`.
pub fn logaddexp(x: f64, y: f64) -> f64 {
    // Equal infinities have no difference; f64::max leaves NaN out, the difference does not.
    if x == y { x + LN_2 } else { x.max(y) + (-(x - y).abs()).exp().ln_1p() }
}

/// `ln(1 + exp(x))`.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    if x < 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) }
}

/// `ln(sigmoid(x))`.
pub fn log_sigmoid(x: f64) -> f64 {
    -softplus(-x)
}

/// `ln(p / (1 - p))`.
pub fn logit(p: f64) -> f64 {
    // Both differences are exact where they are taken.
    if (0.25..=0.75).contains(&p) { 2.0 * (2.0 * p - 1.0).atanh() } else { (p / (1.0 - p)).ln() }
}
