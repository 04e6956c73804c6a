//! The functions by their names.

use crate::{exponentials, gammas, normal, random};

/// How a function is computed.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// Of one number.
    One(fn(f64) -> f64),
    /// Of two numbers.
    Two(fn(f64, f64) -> f64),
    /// Of the random words that a seed and keys have, all of which are whole numbers.
    Random(fn([u64; 4]) -> f64),
}

use Value::{One, Random, Two};

/// A function: its names, of which the first is the one that the calculus knows it by, and its value.
pub type Line = (&'static [&'static str], Value);

/// All functions.
pub const LINES: &[Line] = &[
    (&["log1p"], One(f64::ln_1p)),
    (&["expm1"], One(f64::exp_m1)),
    (&["logaddexp"], Two(exponentials::logaddexp)),
    (&["softplus"], One(exponentials::softplus)),
    (&["sigmoid", "expit"], One(exponentials::sigmoid)),
    (&["log_sigmoid", "log_expit"], One(exponentials::log_sigmoid)),
    (&["logit"], One(exponentials::logit)),
    (&["erf"], One(libm::erf)),
    (&["erfc"], One(libm::erfc)),
    (&["erfcx"], One(normal::erfcx)),
    (&["ierfcx"], Two(normal::ierfcx)),
    (&["erfinv", "erf_inv"], One(normal::erfinv)),
    (&["erfcinv"], One(normal::erfcinv)),
    (&["normal_pdf", "norm_pdf"], One(normal::pdf)),
    (&["normal_cdf", "norm_cdf", "ndtr"], One(normal::cdf)),
    (&["normal_quantile", "norm_ppf", "ndtri"], One(normal::quantile)),
    (&["log_ndtr"], One(normal::log_cdf)),
    (&["gamma", "tgamma"], One(libm::tgamma)),
    (&["lgamma", "gammaln"], One(libm::lgamma)),
    (&["digamma", "psi"], One(gammas::digamma)),
    (&["trigamma"], One(gammas::trigamma)),
    (&["polygamma"], Two(gammas::polygamma)),
    (&["random_uniform"], Random(random::uniform)),
    (&["random_normal"], Random(random::normal)),
];
