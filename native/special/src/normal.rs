//! The error function and the normal distribution.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `1 / sqrt(2 * pi)`
const PEAK: f64 = 0.398_942_280_401_432_7;
/// `1 / sqrt(pi)`
const HALF_SLOPE: f64 = FRAC_2_SQRT_PI / 2.0;

/// What `1 / sqrt(2)` has beside its float.
const REST_OF_SCALE: f64 = -4.833_646_656_726_457e-17;

/// `exp(factor * x * x)`, where the square has a rounding error that counts: it is computed in two parts, the first of which is exact.
fn exp_of_square(x: f64, factor: f64) -> f64 {
    if x.abs() > 40.0 {
        // Neither part is to be infinite where the other one is 0.
        return (factor * x * x).exp();
    }
    let high = f64::from_bits(x.to_bits() & !0x7ff_ffff);
    (factor * high * high).exp() * (factor * (x - high) * (x + high)).exp()
}

/// `exp(x * x) * erfc(x)`.
pub fn erfcx(x: f64) -> f64 {
    if x < 25.0 {
        return exp_of_square(x, 1.0) * libm::erfc(x);
    }
    // Its asymptotic series, DLMF 7.12.1: the eighth term is less than 1e-16 of the first.
    let step = -0.5 / (x * x);
    let series = (1..=7).rev().fold(1.0, |sum, term| 1.0 + f64::from(2 * term - 1) * step * sum);
    HALF_SLOPE / x * series
}

/// `exp(x * x)` times the integral of `erfc` from `x` to infinity, taken `n` times (DLMF 7.18): the `n`-th derivative of `erfcx` is
/// `(-2)^n * n!` times it. NaN if `n` is not a whole number from 0 on.
pub fn ierfcx(n: f64, x: f64) -> f64 {
    if x.is_nan() || n < 0.0 || n.fract() != 0.0 || !n.is_finite() {
        return f64::NAN;
    }
    // Beyond, it is 0 or infinite.
    let n = n.min(1e6) as u32;
    if n == 0 {
        erfcx(x)
    } else if x < 0.0 {
        growing(n, x)
    } else if x < 0.25 {
        exp_of_square(x, 1.0) * near_0(n, x)
    } else {
        shrinking(n, x)
    }
}

/// By its recurrence, DLMF 7.18.7, in which nothing cancels for a negative `x`.
fn growing(n: u32, x: f64) -> f64 {
    let steps = (1..=n).map(f64::from);
    steps.fold((FRAC_2_SQRT_PI, erfcx(x)), |(before, last), k| (last, (before - 2.0 * x * last) / (2.0 * k))).1
}

/// By the same recurrence from far above down, in which the quotients of neighbours converge for a positive `x`.
fn shrinking(n: u32, x: f64) -> f64 {
    if x == f64::INFINITY {
        return 0.0;
    }
    let far = ((2.0 * f64::from(n)).sqrt() + 20.0 / x).powi(2) / 2.0;
    let start = (far as u32).max(n) + 30;
    let (mut quotient, mut product) = (0.0, 1.0);
    for k in (1..=start).rev() {
        quotient = 1.0 / (2.0 * x + 2.0 * f64::from(k + 1) * quotient);
        if k <= n {
            product *= quotient;
        }
    }
    erfcx(x) * product
}

/// The integrals of `erfc` without the factor, by their series at 0, DLMF 7.18.6.
fn near_0(n: u32, x: f64) -> f64 {
    let n = f64::from(n);
    let mut sum = 0.0;
    let mut power = (-n * std::f64::consts::LN_2).exp();
    for k in 0..40 {
        let k = f64::from(k);
        // The reciprocal of the gamma function is 0 at its poles.
        let half = 1.0 + (n - k) / 2.0;
        if half > 0.0 || half.fract() != 0.0 {
            sum += power / libm::tgamma(half);
        }
        power *= -2.0 * x / (k + 1.0);
    }
    sum
}

/// `exp(-x * x / 2) / sqrt(2 * pi)`.
pub fn pdf(x: f64) -> f64 {
    PEAK * exp_of_square(x, -0.5)
}

/// The distribution function of the normal distribution.
pub fn cdf(x: f64) -> f64 {
    let scaled = -x * FRAC_1_SQRT_2;
    let value = 0.5 * libm::erfc(scaled);
    if !(1.0..30.0).contains(&scaled) {
        return value;
    }
    // What the float leaves of the scaled number, which counts in the tail.
    let rest = (-x).mul_add(FRAC_1_SQRT_2, -scaled) - x * REST_OF_SCALE;
    value - rest * HALF_SLOPE * exp_of_square(scaled, -1.0)
}

/// Its logarithm.
pub fn log_cdf(x: f64) -> f64 {
    if x < -1.0 { (0.5 * erfcx(-x * FRAC_1_SQRT_2)).ln() - 0.5 * x * x } else { (-cdf(-x)).ln_1p() }
}

/// The inverse of the distribution function.
pub fn quantile(p: f64) -> f64 {
    inverse(p - 0.5, p.min(1.0 - p))
}

/// The inverse of `erf`.
pub fn erfinv(x: f64) -> f64 {
    inverse(0.5 * x, 0.5 * (1.0 - x.abs())) * FRAC_1_SQRT_2
}

/// The inverse of `erfc`.
pub fn erfcinv(x: f64) -> f64 {
    inverse(0.5 * (1.0 - x), 0.5 * x.min(2.0 - x)) * FRAC_1_SQRT_2
}

/// The number below which a normal variable is with probability `0.5 + from_half`, by Wichura's rational functions: Algorithm AS 241,
/// Applied Statistics 37 (1988). `tail` is the probability beyond it, on its side of 0.
fn inverse(from_half: f64, tail: f64) -> f64 {
    if from_half.abs() <= 0.425 {
        let r = 0.180_625 - from_half * from_half;
        return from_half * quotient(&CENTRE, r);
    }
    let far = if tail > 0.0 {
        let r = (-tail.ln()).sqrt();
        if r <= 5.0 { quotient(&TAIL, r - 1.6) } else { quotient(&FAR_TAIL, r - 5.0) }
    } else if tail == 0.0 {
        f64::INFINITY
    } else {
        f64::NAN
    };
    far.copysign(from_half)
}

/// The coefficients of a rational function, from the constant ones up.
type Rational = ([f64; 8], [f64; 8]);

fn quotient((above, below): &Rational, x: f64) -> f64 {
    let polynomial = |coefficients: &[f64; 8]| coefficients.iter().rev().fold(0.0, |sum, next| sum * x + next);
    polynomial(above) / polynomial(below)
}

#[rustfmt::skip]
const CENTRE: Rational = (
    [
        3.387_132_872_796_366_5, 1.331_416_678_917_843_8e2, 1.971_590_950_306_551_3e3, 1.373_169_376_550_946e4,
        4.592_195_393_154_987e4, 6.726_577_092_700_87e4, 3.343_057_558_358_813e4, 2.509_080_928_730_122_7e3,
    ],
    [
        1.0, 4.231_333_070_160_091e1, 6.871_870_074_920_579e2, 5.394_196_021_424_751e3,
        2.121_379_430_158_659_7e4, 3.930_789_580_009_271e4, 2.872_908_573_572_194_3e4, 5.226_495_278_852_854e3,
    ],
);
#[rustfmt::skip]
const TAIL: Rational = (
    [
        1.423_437_110_749_683_5, 4.630_337_846_156_546, 5.769_497_221_460_691, 3.647_848_324_763_204_5,
        1.270_458_252_452_368_4, 2.417_807_251_774_506e-1, 2.272_384_498_926_918_4e-2, 7.745_450_142_783_414e-4,
    ],
    [
        1.0, 2.053_191_626_637_759, 1.676_384_830_183_803_8, 6.897_673_349_851e-1,
        1.481_039_764_274_800_8e-1, 1.519_866_656_361_645_7e-2, 5.475_938_084_995_345e-4, 1.050_750_071_644_416_9e-9,
    ],
);
#[rustfmt::skip]
const FAR_TAIL: Rational = (
    [
        6.657_904_643_501_103, 5.463_784_911_164_114, 1.784_826_539_917_291_3, 2.965_605_718_285_048_7e-1,
        2.653_218_952_657_612_4e-2, 1.242_660_947_388_078_4e-3, 2.711_555_568_743_487_6e-5, 2.010_334_399_292_288_1e-7,
    ],
    [
        1.0, 5.998_322_065_558_879e-1, 1.369_298_809_227_358e-1, 1.487_536_129_085_061_5e-2,
        7.868_691_311_456_133e-4, 1.846_318_317_510_054_8e-5, 1.421_511_758_316_446e-7, 2.044_263_103_389_939_8e-15,
    ],
);
