//! Formulas of physics, statistics and finance with the derivative an engineer would write by hand.

/// A formula, what it is differentiated by, and its derivative written by hand.
pub struct Formula {
    pub name: &'static str,
    pub primal: &'static str,
    pub variable: &'static str,
    pub by_hand: &'static str,
    /// Its columns, with the range they are drawn from.
    pub columns: &'static [(&'static str, f64, f64)],
    /// Whether the derivative by hand takes a power that one of the formula can stand for.
    pub saves_a_power: bool,
}

impl Formula {
    const fn saves_a_power(self) -> Self {
        Self { saves_a_power: true, ..self }
    }
}

const fn formula(
    name: &'static str,
    primal: &'static str,
    variable: &'static str,
    by_hand: &'static str,
    columns: &'static [(&'static str, f64, f64)],
) -> Formula {
    Formula { name, primal, variable, by_hand, columns, saves_a_power: false }
}

pub const FORMULAS: &[Formula] = &[
    formula(
        "saturation vapour pressure (Magnus-Tetens)",
        "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65))",
        "t",
        "6.112 * exp(17.67 * (t - 273.15) / (t - 29.65)) * 4302.645 / ((t - 29.65) * (t - 29.65))",
        &[("t", 250.0, 310.0)],
    ),
    formula(
        "potential temperature",
        "t * power(100000 / p, 0.286)",
        "p",
        "-0.286 * t * power(100000 / p, 0.286) / p",
        &[("t", 250.0, 310.0), ("p", 3e4, 1e5)],
    ),
    formula(
        "van der Waals pressure",
        "n * 8.314 * t / (v - n * b) - a * n * n / (v * v)",
        "v",
        "2 * a * n * n / (v * v * v) - n * 8.314 * t / ((v - n * b) * (v - n * b))",
        &[("n", 1.0, 2.0), ("t", 250.0, 310.0), ("v", 1.0, 2.0), ("a", 0.1, 1.0), ("b", 0.01, 0.1)],
    ),
    formula("kinetic energy", "0.5 * m * v * v", "v", "m * v", &[("m", 1.0, 9.0), ("v", 1.0, 9.0)]),
    formula(
        "gravitation",
        "6.674e-11 * m1 * m2 / (r * r)",
        "r",
        "-1.3348e-10 * m1 * m2 / (r * r * r)",
        &[("m1", 1e10, 1e11), ("m2", 1e10, 1e11), ("r", 1.0, 9.0)],
    ),
    formula(
        "pendulum period",
        "2 * 3.141592653589793 * sqrt(l / 9.81)",
        "l",
        "3.141592653589793 / (9.81 * sqrt(l / 9.81))",
        &[("l", 0.1, 9.0)],
    ),
    formula(
        "radiated power",
        "5.67e-8 * a * power(t, 4)",
        "t",
        "22.68e-8 * a * t * t * t",
        &[("a", 0.5, 1.0), ("t", 200.0, 400.0)],
    ),
    formula(
        "thin lens",
        "1 / (1 / f - 1 / o)",
        "f",
        "1 / ((1 / f - 1 / o) * (1 / f - 1 / o) * f * f)",
        &[("f", 0.1, 0.2), ("o", 0.5, 2.0)],
    ),
    formula("Lorentz factor", "1 / sqrt(1 - v * v)", "v", "v / ((1 - v * v) * sqrt(1 - v * v))", &[("v", 0.1, 0.9)]),
    formula(
        "Arrhenius rate",
        "a * exp(-e / (8.314 * t))",
        "t",
        "a * exp(-e / (8.314 * t)) * e / (8.314 * t * t)",
        &[("a", 1.0, 9.0), ("e", 1e3, 1e4), ("t", 250.0, 400.0)],
    ),
    formula(
        "Lennard-Jones potential",
        "4 * e * (power(s, 12) / power(r, 12) - power(s, 6) / power(r, 6))",
        "r",
        "24 * e * (power(s, 6) / power(r, 7) - 2 * power(s, 12) / power(r, 13))",
        &[("e", 0.5, 2.0), ("s", 0.9, 1.1), ("r", 1.0, 2.0)],
    ),
    formula(
        "Michaelis-Menten kinetics",
        "vmax * s / (km + s)",
        "s",
        "vmax * km / ((km + s) * (km + s))",
        &[("vmax", 1.0, 9.0), ("km", 0.5, 2.0), ("s", 0.1, 9.0)],
    ),
    formula(
        "logistic growth",
        "r * n * (1 - n / k)",
        "n",
        "r * (1 - 2 * n / k)",
        &[("r", 0.1, 2.0), ("n", 1.0, 9.0), ("k", 10.0, 20.0)],
    ),
    formula(
        "projectile range",
        "v * v * sin(2 * a) / 9.81",
        "a",
        "v * v * cos(2 * a) * 2 / 9.81",
        &[("v", 1.0, 9.0), ("a", 0.1, 1.4)],
    ),
    formula(
        "damped oscillation",
        "a * exp(-g * t) * cos(w * t)",
        "t",
        "-a * exp(-g * t) * (g * cos(w * t) + w * sin(w * t))",
        &[("a", 1.0, 2.0), ("g", 0.1, 0.5), ("w", 1.0, 3.0), ("t", 0.1, 5.0)],
    ),
    formula(
        "Planck spectrum",
        "a * power(f, 3) / (exp(h * f) - 1)",
        "f",
        "a * f * f * (3 - f * h * exp(h * f) / (exp(h * f) - 1)) / (exp(h * f) - 1)",
        &[("a", 1.0, 2.0), ("h", 0.5, 1.5), ("f", 0.5, 3.0)],
    ),
    formula("sigmoid", "1 / (1 + exp(-x))", "x", "exp(-x) / ((1 + exp(-x)) * (1 + exp(-x)))", &[("x", -4.0, 4.0)]),
    formula("softplus", "ln(1 + exp(x))", "x", "exp(x) / (1 + exp(x))", &[("x", -4.0, 4.0)]),
    formula(
        "squared error",
        "power(w * x + b - y, 2)",
        "w",
        "2 * (w * x + b - y) * x",
        &[("w", -1.0, 1.0), ("x", -2.0, 2.0), ("b", -1.0, 1.0), ("y", -2.0, 2.0)],
    ),
    formula(
        "logistic loss",
        "ln(1 + exp(-y * (w * x + b)))",
        "w",
        "-y * x * exp(-y * (w * x + b)) / (1 + exp(-y * (w * x + b)))",
        &[("w", -1.0, 1.0), ("x", -2.0, 2.0), ("b", -1.0, 1.0), ("y", -1.0, 1.0)],
    ),
    formula(
        "cross entropy",
        "-(y * ln(p) + (1 - y) * ln(1 - p))",
        "p",
        "(1 - y) / (1 - p) - y / p",
        &[("y", 0.1, 0.9), ("p", 0.1, 0.9)],
    ),
    formula(
        "normal density",
        "exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * 2.5066282746310002)",
        "x",
        "-(x - m) / (s * s) * exp(-0.5 * ((x - m) / s) * ((x - m) / s)) / (s * 2.5066282746310002)",
        &[("x", -2.0, 2.0), ("m", -1.0, 1.0), ("s", 0.5, 2.0)],
    ),
    formula(
        "normal log likelihood by the deviation",
        "-ln(s) - 0.5 * (x - m) * (x - m) / (s * s)",
        "s",
        "(x - m) * (x - m) / (s * s * s) - 1 / s",
        &[("x", -2.0, 2.0), ("m", -1.0, 1.0), ("s", 0.5, 2.0)],
    ),
    formula("Poisson log likelihood", "k * ln(l) - l", "l", "k / l - 1", &[("k", 1.0, 9.0), ("l", 0.5, 9.0)]),
    formula(
        "Cauchy loss",
        "0.5 * c * c * ln(1 + (r / c) * (r / c))",
        "r",
        "r / (1 + (r / c) * (r / c))",
        &[("c", 0.5, 2.0), ("r", -3.0, 3.0)],
    ),
    formula(
        "coefficient of variation",
        "sqrt(q / n - (s / n) * (s / n)) / (s / n)",
        "q",
        "1 / (2 * sqrt(q / n - (s / n) * (s / n)) * s)",
        &[("q", 90.0, 99.0), ("n", 9.0, 11.0), ("s", 10.0, 20.0)],
    ),
    formula(
        "discounted payment",
        "c / power(1 + r, 5)",
        "r",
        "-5 * c / power(1 + r, 6)",
        &[("c", 10.0, 20.0), ("r", 0.01, 0.1)],
    ),
    formula(
        "annuity",
        "c * (1 - exp(-r * t)) / r",
        "r",
        "c * (t * exp(-r * t) - (1 - exp(-r * t)) / r) / r",
        &[("c", 10.0, 20.0), ("r", 0.01, 0.1), ("t", 1.0, 9.0)],
    ),
    formula(
        "Black-Scholes d1 by the volatility",
        "(ln(s / k) + (r + 0.5 * v * v) * t) / (v * sqrt(t))",
        "v",
        "sqrt(t) - (ln(s / k) + (r + 0.5 * v * v) * t) / (v * v * sqrt(t))",
        &[("s", 90.0, 110.0), ("k", 90.0, 110.0), ("r", 0.01, 0.05), ("v", 0.1, 0.5), ("t", 0.5, 2.0)],
    ),
    formula(
        "Cobb-Douglas production",
        "a * power(k, 0.3) * power(l, 0.7)",
        "k",
        "0.3 * a * power(k, -0.7) * power(l, 0.7)",
        &[("a", 1.0, 2.0), ("k", 1.0, 5.0), ("l", 1.0, 5.0)],
    )
    .saves_a_power(),
    formula("Kepler's third law", "power(a, 1.5)", "a", "1.5 * sqrt(a)", &[("a", 0.3, 30.0)]),
    formula(
        "orbital frequency",
        "sqrt(g) * power(a, -1.5)",
        "a",
        "-1.5 * sqrt(g) / (a * a * sqrt(a))",
        &[("g", 1.0, 2.0), ("a", 0.3, 30.0)],
    ),
    formula(
        "Exner function",
        "exp(u) * power(p / 3, 0.2857)",
        "p",
        "0.09523333333333334 * exp(u) * power(p / 3, -0.7143)",
        &[("u", -1.0, 1.0), ("p", 0.3, 3.0)],
    )
    .saves_a_power(),
    formula(
        "Manning's formula",
        "sqrt(s) / n * power(r, 0.6666666666666666)",
        "r",
        "0.6666666666666666 * sqrt(s) / n * power(r, -0.3333333333333333)",
        &[("s", 0.001, 0.01), ("n", 0.01, 0.1), ("r", 0.1, 5.0)],
    )
    .saves_a_power(),
    formula(
        "Lennard-Jones potential of a ratio",
        "4 * e * (power(s / r, 12) - power(s / r, 6))",
        "r",
        "24 * e * (s / r * (s / r) * (s / r) * (s / r * (s / r) * (s / r)))
         * (1 - 2 * (s / r * (s / r) * (s / r) * (s / r * (s / r) * (s / r)))) / r",
        &[("e", 0.5, 2.0), ("s", 0.9, 1.1), ("r", 1.0, 2.0)],
    ),
    formula(
        "rectified unit",
        "greatest(w * x + b, 0.0)",
        "w",
        "CASE WHEN w * x + b >= 0.0 THEN x ELSE 0.0 END",
        &[("w", -1.0, 1.0), ("x", -2.0, 2.0), ("b", -1.0, 1.0)],
    ),
    formula(
        "implied forward rate",
        "power((1 + b) * (1 + b) / (1 + a), 1) - 1",
        "b",
        "2 * (1 + b) / (1 + a)",
        &[("a", 0.01, 0.1), ("b", 0.01, 0.1)],
    ),
    formula("azimuth", "atan2(y, x)", "x", "-y / (x * x + y * y)", &[("x", 0.5, 2.0), ("y", -2.0, 2.0)]),
    formula(
        "distance",
        "sqrt(x * x + y * y + z * z)",
        "x",
        "x / sqrt(x * x + y * y + z * z)",
        &[("x", -2.0, 2.0), ("y", -2.0, 2.0), ("z", -2.0, 2.0)],
    ),
];
