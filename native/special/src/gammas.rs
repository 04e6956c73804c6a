//! The derivatives of the logarithm of the gamma function.

use std::f64::consts::PI;

/// The first derivative.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return -1.0 / x;
    }
    if x < 0.0 {
        // NaN at the poles, and at -Infinity. The reflection DLMF 5.5.4, of what is left of x beside a whole number.
        let rest = x - x.round();
        return if rest == 0.0 { f64::NAN } else { digamma(1.0 - x) - PI / (PI * rest).tan() };
    }
    let from_root = (x - ROOT) - REST_OF_ROOT;
    if from_root.abs() < 0.5 {
        return AT_ROOT.iter().rev().fold(0.0, |sum, next| (sum + next) * from_root);
    }
    let (mut far, mut before) = (x, 0.0);
    while far < 12.0 {
        before += 1.0 / far;
        far += 1.0;
    }
    if far == f64::INFINITY {
        return far;
    }
    let square = 1.0 / (far * far);
    let series = ASYMPTOTIC.iter().rev().fold(0.0, |sum, next| (sum + next) * square);
    far.ln() - 0.5 / far - series - before
}

/// The second derivative.
pub fn trigamma(x: f64) -> f64 {
    polygamma(1.0, x)
}

/// The derivative of `digamma` of this order. NaN if that is not a whole number from 0 on.
pub fn polygamma(order: f64, x: f64) -> f64 {
    if order == 0.0 {
        return digamma(x);
    }
    if x.is_nan() || order < 0.0 || order.fract() != 0.0 || order.is_infinite() || x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    let is_odd = order % 2.0 == 1.0;
    let sign = if is_odd { 1.0 } else { -1.0 };
    // DLMF 5.15.1: the sum over all k from 0 on of (x + k)^-s.
    let s = order + 1.0;
    if x >= first_of_rest(s) && x.is_finite() {
        // The sum alone may be too small for a float.
        let root = x.powf((1.0 - s) / 2.0);
        return sign * (libm::tgamma(s) * root) * (root * rest_of_zeta(s, x));
    }
    let sum = if x > 0.0 {
        hurwitz_zeta(s, x)
    } else {
        let rest = x - x.floor();
        if rest == 0.0 {
            return if is_odd { f64::INFINITY } else { f64::NAN };
        }
        // Over all whole k, without those below 0.
        hurwitz_zeta(s, rest) + sign * (hurwitz_zeta(s, 1.0 - rest) - hurwitz_zeta(s, 1.0 - x))
    };
    sign * libm::tgamma(s) * sum
}

/// The sum over all k from 0 on of `(q + k)^-s`, for `s` from 2 on and `q > 0`: the first ones as they are, the others by the formula of
/// Euler and Maclaurin, DLMF 25.11.5 with an infinite N.
fn hurwitz_zeta(s: f64, q: f64) -> f64 {
    let (mut far, mut sum) = (q, 0.0);
    if q == f64::INFINITY {
        return 0.0;
    }
    while far < first_of_rest(s) {
        let term = far.powf(-s);
        sum += term;
        if term <= 1e-18 * sum {
            return sum;
        }
        far += 1.0;
    }
    sum + far.powf(1.0 - s) * rest_of_zeta(s, far)
}

/// Where the formula for the rest of the sum is as good as a float.
fn first_of_rest(s: f64) -> f64 {
    16.0 + s
}

/// The sum over all k from 0 on of `(far + k)^-s`, over `far^(1 - s)`.
fn rest_of_zeta(s: f64, far: f64) -> f64 {
    let mut term = s / far / far;
    let mut rest = 0.0;
    for (place, coefficient) in (1..).zip(BERNOULLI) {
        rest += coefficient * term;
        let next = 2.0 * f64::from(place) + s;
        term *= (next - 1.0) / far * (next / far);
    }
    1.0 / (s - 1.0) + 0.5 / far + rest
}

/// Where `digamma` is 0, and what the float leaves of it.
const ROOT: f64 = 1.461_632_144_968_362_2;
const REST_OF_ROOT: f64 = 9.549_995_429_965_697e-17;

/// The coefficients of its Taylor series there, from the first derivative on.
#[rustfmt::skip]
const AT_ROOT: [f64; 36] = [
    0.967_672_245_447_621_2, -0.442_763_168_983_592_1, 0.258_499_760_955_651, -0.163_942_705_442_406_52,
    0.107_824_050_691_262_37, -0.072_199_561_256_454_71, 0.048_804_288_164_143_11, -0.033_161_126_474_847_36,
    0.022_597_648_232_218_104, -0.015_424_765_904_948_96, 0.010_538_791_616_612_175, -0.007_204_534_386_356_869,
    0.004_926_781_395_729_853, -0.003_369_801_655_439_328, 0.002_305_126_326_734_928, -0.001_576_936_771_430_197_2,
    0.001_078_825_201_916_296_7, -0.000_738_070_938_996_005_2, 0.000_504_953_265_834_602, -0.000_345_468_025_106_307_7,
    0.000_236_356_015_640_270_53, -0.000_161_706_220_919_748_03, 0.000_110_633_727_687_474_1, -7.569_179_582_195_066e-05,
    5.178_575_795_222_081e-05, -3.543_007_094_765_960_4e-05, 2.424_006_611_860_132e-05, -1.658_424_227_185_413_5e-05,
    1.134_638_458_466_385e-05, -7.762_817_668_462_094e-06, 5.311_060_920_889_863_6e-06, -3.633_650_789_801_045_6e-06,
    2.486_022_733_129_538e-06, -1.700_853_885_433_260_7e-06, 1.163_667_536_354_884_3e-06, -7.961_425_431_241_97e-07,
];

/// The Bernoulli numbers of orders 2, 4, ... divided by the factorials of their orders.
#[rustfmt::skip]
const BERNOULLI: [f64; 12] = [
    0.083_333_333_333_333_33, -0.001_388_888_888_888_889, 3.306_878_306_878_307e-05, -8.267_195_767_195_768e-07,
    2.087_675_698_786_81e-08, -5.284_190_138_687_493e-10, 1.338_253_653_068_467_9e-11, -3.389_680_296_322_582_7e-13,
    8.586_062_056_277_845e-15, -2.174_868_698_558_062e-16, 5.509_002_828_360_229_5e-18, -1.395_446_468_581_252_2e-19,
];

/// Those divided by their orders.
#[rustfmt::skip]
const ASYMPTOTIC: [f64; 8] = [
    0.083_333_333_333_333_33, -0.008_333_333_333_333_333, 0.003_968_253_968_253_968, -0.004_166_666_666_666_667,
    0.007_575_757_575_757_576, -0.021_092_796_092_796_094, 0.083_333_333_333_333_33, -0.443_259_803_921_568_6,
];
