"""What comes after a fit: Hessians, covariances, derived quantities and profiles of objectives.

They are compared with closed forms, and with the numbers of statsmodels 0.15, R and uncertainties 3.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import minimize
from sklearn import datasets

import xql_ffi
from support import sessions

RNG = np.random.default_rng(11)
N = 24
X, COUNTS = RNG.normal(size=N), RNG.poisson(2.0, N).astype(float)
TABLES: dict[str, Any] = {
    "d": {"i": range(N), "g": [f"g{i % 5}" for i in range(N)], "x": X, "n": COUNTS},
    "par": {"a": [0.1], "b": [0.2]},
    "grid": {"label": ["low", "high"], "z": [-1.0, 2.0]},
}
ROW = "exp(a + b * x) - n * (a + b * x)"
LOSS = f"SELECT SUM({ROW}) FROM par CROSS JOIN d"
WRT = ["par.a", "par.b"]
DESIGN = np.column_stack([np.ones(N), X])


def effect_and_slope(x: Any) -> tuple[float, Any]:
    """The mean of the derivatives of the expected counts by x, and its derivatives by the parameters."""
    means = np.exp(DESIGN @ x)
    return float(np.mean(x[1] * means)), np.array([np.mean(x[1] * means), np.mean(means + x[1] * means * X)])


class Poisson(NamedTuple):
    """A Poisson regression, its estimates, and what is known of them."""

    objective: xql_ffi.Objective
    x: Any
    covariance: Any
    scores: Any


def poisson(session: Any) -> Poisson:
    objective = xql_ffi.objective(session, LOSS, WRT)
    newton = {"hessp": objective.hvp, "method": "trust-ncg", "options": {"gtol": 1e-9}}
    x = minimize(objective, objective.start, jac=True, **newton).x
    expected = np.exp(DESIGN @ x)
    information = DESIGN.T @ (expected[:, None] * DESIGN)
    return Poisson(objective, x, np.linalg.inv(information), (expected - COUNTS)[:, None] * DESIGN)


@pytest.fixture(scope="module")
def model() -> Poisson:
    return poisson(sessions.session(TABLES))


# ------------------------------------------------------------------------------------------------------- hessian


def test_the_hessian() -> None:
    """Of b * b * SUM(k * val ** 3), by rows and by a column of one row; NULL is no parameter."""
    session = sessions.session({"w": {"k": [1.0, 2.0, 3.0], "val": [0.5, 2.0, None]}, "p": {"b": [1.5]}})
    loss = "WITH s AS (SELECT SUM(k * val * val * val) AS s FROM w) SELECT s * b * b FROM s CROSS JOIN p"
    objective = xql_ffi.objective(session, loss, ["w.val", "p.b"])
    assert objective.names == ["w.val[0]", "w.val[1]", "p.b"]
    k, v, b = np.array([1.0, 2.0]), np.array([0.3, -0.7]), 1.25
    found = objective.hessian([*v, b])
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, found.T)
    mixed = 6 * b * k * v**2
    expected = np.block([[np.diag(6 * b * b * k * v), mixed[:, None]], [mixed, 2 * k @ v**3]])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert objective.named(found)["p.b"]["w.val[1]"] == found[2, 1]
    assert objective.named([*v, b])["w.val[1]"] == -0.7
    with pytest.raises(ValueError, match=r"must have the shape \(3, 3\)"):
        objective.named(found[:2])


# ---------------------------------------------------------------------------------------------------- covariance


def test_covariance_and_sandwich(model: Poisson) -> None:
    bread, of = model.covariance, model.objective.covariance
    np.testing.assert_allclose(of(model.x), bread, rtol=1e-9)
    found = of(model.x, scores=f"SELECT i, {ROW} FROM par CROSS JOIN d")
    np.testing.assert_allclose(found, bread @ model.scores.T @ model.scores @ bread, rtol=1e-9)
    sums = np.array([model.scores[np.arange(N) % 5 == number].sum(axis=0) for number in range(5)])
    found = of(model.x, scores=f"SELECT g, {ROW} AS l FROM d CROSS JOIN par;")
    np.testing.assert_allclose(found, bread @ sums.T @ sums @ bread, rtol=1e-9)


def logit(eta: str) -> str:
    return f"ln(1 + exp({eta})) - y * ({eta})"


def counts(eta: str) -> str:
    return f"exp({eta}) - y * ({eta})"


def squares(eta: str) -> str:
    return f"power(y - ({eta}), 2) / (2 * 3227.093425869215)"


class DataSet(NamedTuple):
    """A regression on a data set of scikit-learn, and the errors that statsmodels has: plain, HC0 and by 9 clusters."""

    y: Any
    x: Any
    row: Any
    estimates: list[float]
    plain: list[float]
    robust: list[float]
    clustered: list[float]


def data_sets() -> dict[str, DataSet]:
    cancer, wine, iris = datasets.load_breast_cancer(), datasets.load_wine(), datasets.load_iris()
    diabetes, fitness = datasets.load_diabetes(), datasets.load_linnerud()
    return {
        "breast cancer, logit": DataSet(
            cancer.target,
            cancer.data[:, [0, 1]],
            logit,
            [19.8494166, -1.05710183, -0.218141006],
            [1.77394544, 0.101480632, 0.037066019],
            [1.71689486, 0.0990321028, 0.0358804468],
            [1.50794014, 0.0747166717, 0.0308123106],
        ),
        "wine, logit": DataSet(
            wine.target == 1,
            wine.data[:, [0, 10]],
            logit,
            [51.4544453, -4.69391097, 9.02261952],
            [8.64766807, 0.759086283, 1.99546574],
            [7.2851802, 0.655619976, 2.02712452],
            [5.99158881, 0.500574192, 2.1792656],
        ),
        "diabetes, squares": DataSet(
            diabetes.target,
            diabetes.data[:, [2, 8]],
            squares,
            [152.133484, 675.071352, 614.949877],
            [2.7020578, 63.4752763, 63.4752763],
            [2.69287231, 65.0182056, 62.5805035],
            [1.53398841, 25.2309995, 53.6379133],
        ),
        "iris, Poisson": DataSet(
            np.round(10 * iris.data[:, 3]),
            iris.data[:, [0, 1]],
            counts,
            [0.47284804, 0.604692104, -0.55057634],
            [0.247460849, 0.0284958027, 0.0610417095],
            [0.321884234, 0.0459114055, 0.0819239879],
            [0.285756335, 0.0325110149, 0.0608717863],
        ),
        "linnerud, Poisson": DataSet(
            fitness.data[:, 0],
            fitness.target[:, [0, 1]],
            counts,
            [7.04580285, 0.00656390001, -0.170627612],
            [1.07313735, 0.00563057576, 0.0460504769],
            [1.17155544, 0.00862996268, 0.0551150818],
            [1.29256382, 0.00940127804, 0.067518788],
        ),
    }


@pytest.mark.parametrize("name", data_sets())
def test_as_statsmodels_has_it(name: str) -> None:
    """With the mean as the loss, and the number of rows as the scale."""
    data = data_sets()[name]
    rows = len(data.y)
    columns = {
        "i": range(rows),
        "g": np.arange(rows) % 9,
        "y": data.y.astype(float),
        "x": data.x[:, 0],
        "z": data.x[:, 1],
    }
    a, b, c = data.estimates
    session = sessions.session({"d": columns, "par": {"a": [a], "b": [b], "c": [c]}})
    row = f"{data.row('a + b * x + c * z')} AS l FROM par CROSS JOIN d"
    objective = xql_ffi.objective(session, f"SELECT AVG(l) FROM (SELECT {row}) AS q", ["par.a", "par.b", "par.c"])
    # statsmodels has nine digits.
    x = objective.start - np.linalg.solve(objective.hessian(objective.start), objective(objective.start)[1])
    np.testing.assert_allclose(x, data.estimates, rtol=1e-7)
    for known, scores in ((data.plain, None), (data.robust, f"SELECT i, {row}"), (data.clustered, f"SELECT g, {row}")):
        found = objective.covariance(x, scale=rows, scores=scores)
        np.testing.assert_allclose(np.sqrt(np.diag(found)), known, rtol=1e-7)


LONGLEY = """
    60323 83.0 234289 2356 1590 107608 1947; 61122 88.5 259426 2325 1456 108632 1948
    60171 88.2 258054 3682 1616 109773 1949; 61187 89.5 284599 3351 1650 110929 1950
    63221 96.2 328975 2099 3099 112075 1951; 63639 98.1 346999 1932 3594 113270 1952
    64989 99.0 365385 1870 3547 115094 1953; 63761 100.0 363112 3578 3350 116219 1954
    66019 101.2 397469 2904 3048 117388 1955; 67857 104.6 419180 2822 2857 118734 1956
    68169 108.4 442769 2936 2798 120445 1957; 66513 110.8 444546 4681 2637 121950 1958
    68655 112.6 482704 3813 2552 123366 1959; 69564 114.2 502601 3931 2514 125368 1960
    69331 115.7 518173 4806 2572 127852 1961; 70551 116.9 554894 4007 2827 130081 1962"""


def test_units_do_not_count() -> None:
    """NIST's certified values of Longley's data, whose columns are nearly dependent and of very different size."""
    numbers = np.array([row.split() for row in LONGLEY.replace("\n", ";").split(";") if row.strip()], dtype=float)
    names = [f"b{place}" for place in range(1, 7)]
    columns = dict(zip(["y", *(f"x{place}" for place in range(1, 7))], numbers.T, strict=True))
    estimates = [-3482258.63459582, 15.0618722713733, -0.0358191792925910, -2.02022980381683]
    estimates += [-1.03322686717359, -0.0511041056535807, 1829.15146461355]
    parameters = {name: [value] for name, value in zip(["b0", *names], estimates, strict=True)}
    session = sessions.session({"d": columns, "par": parameters})
    eta = " + ".join(["b0", *(f"b{place} * x{place}" for place in range(1, 7))])
    objective = xql_ffi.objective(
        session, f"SELECT AVG(power(y - ({eta}), 2)) FROM par CROSS JOIN d", [f"par.{name}" for name in parameters]
    )
    found = objective.covariance(objective.start, scale=16 / (2 * 304.854073561965**2))
    certified = [890420.383607373, 84.9149257747669, 0.0334910077722432, 0.488399681651699]
    certified += [0.214274163161675, 0.226073200069370, 455.478499142212]
    np.testing.assert_allclose(np.sqrt(np.diag(found)), certified, rtol=1e-5)


def test_a_point_that_is_no_minimum(model: Poisson) -> None:
    near = model.x + 0.005 * np.sqrt(np.diag(model.covariance)) * [1, 0]
    np.testing.assert_allclose(model.objective.covariance(near), model.covariance, rtol=0.01)
    far = model.x + 0.3 * np.sqrt(np.diag(model.covariance)) * [0, 1]
    with pytest.raises(xql_ffi.CovarianceError, match=r"0\.\d+ standard errors away .*most along par\.b: minimize on"):
        model.objective.covariance(far)
    # As far away in its units: of a mean the distance is smaller by the root of the scale.
    with pytest.raises(xql_ffi.CovarianceError, match="standard errors away"):
        model.objective.covariance(near, scale=100.0)


@pytest.mark.parametrize(
    ("loss", "x", "says"),
    [
        (
            "SELECT SUM(exp(a + b + 0 * x) - n * (a + b)) FROM par CROSS JOIN d",
            "flat",
            r"do not determine .* par\.a by 1, par\.b by -1\. ",
        ),
        ("SELECT power(a, 2) + power(b, 4) FROM par", [0.0, 0.0], r"no curvature upwards along par\.b at this point"),
        ("SELECT power(a, 2) + abs(b) FROM par", [0.0, 1.0], r"along par\.b .* slope there is 1, by par\.b"),
        (
            "SELECT a * a + 4 * a * b + b * b FROM par",
            [0.0, 0.0],
            r"no minimum: the loss bends down .*par\.a by 1, par\.b by -1",
        ),
        ("SELECT a * a + ln(b) FROM par", [0.0, 0.0], r"derivatives by par\.b are not finite"),
    ],
    ids=["collinear", "quartic", "straight", "saddle", "infinite"],
)
def test_no_covariance(loss: str, x: Any, says: str) -> None:
    objective = xql_ffi.objective(sessions.session(TABLES), loss, WRT)
    if x == "flat":
        x = [np.log(COUNTS.mean()) / 2] * 2
    with pytest.raises(xql_ffi.CovarianceError, match=says):
        objective.covariance(x)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"scale": 0.0}, "scale must be a positive number; it is 0.0"),
        ({"scores": f"SELECT {ROW} FROM par CROSS JOIN d"}, "write a query of the loss of each row as its last column"),
        ({"scores": "SELECT i, g FROM par CROSS JOIN d"}, "the last column, a float|as its last column, a float"),
        ({"scores": f"SELECT i, 2 * ({ROW}) FROM par CROSS JOIN d"}, "losses of scores add up to .* the loss times"),
        ({"scores": f"SELECT nullif(i, 3), {ROW} FROM par CROSS JOIN d"}, "of scores has NULL"),
    ],
    ids=["scale", "no key", "no loss", "another sum", "NULL"],
)
def test_what_covariance_refuses(model: Poisson, asked: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        model.objective.covariance(model.x, **asked)


def duckdb(tables: Any) -> Any:
    """A connection with these tables."""
    connection = pytest.importorskip("duckdb").connect()
    for name, columns in tables.items():
        connection.register("given", pa.table({column: pa.array(list(rows)) for column, rows in columns.items()}))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return connection


# --------------------------------------------------------------------------------------------------------- delta


def test_one_number(model: Poisson) -> None:
    found = model.objective.delta(model.x, "SELECT exp(a + 2 * b) AS mean FROM par")
    assert found.value == pytest.approx(np.exp(model.x @ [1, 2]))
    slope = found.value * np.array([1, 2])
    assert found.error == pytest.approx(float(np.sqrt(slope @ model.covariance @ slope)))
    given = model.objective.delta(model.x, "SELECT b FROM par;", covariance=[[4.0, 0.0], [0.0, 9.0]])
    assert (given.value, given.error) == (model.x[1], 3.0)
    # It does not depend on the parameters.
    assert model.objective.delta(model.x, "SELECT AVG(x) AS x FROM d").error == 0.0


def test_columns_and_rows(model: Poisson) -> None:
    """By hvp: there are more numbers than parameters."""
    query = "SELECT label, a + b * z AS eta, z, exp(a + b * z) AS mean FROM par CROSS JOIN grid"
    found = model.objective.delta(model.x, query)
    assert found.rows.schema.names == ["label", "eta", "eta_error", "z", "z_error", "mean", "mean_error"]
    table = found.rows.to_pydict()
    assert table["label"] == ["high", "low"]
    design = np.array([[1, 2.0], [1, -1.0]])
    means = np.exp(design @ model.x)
    slopes = np.concatenate([design, np.zeros((2, 2)), means[:, None] * design])
    covariance = slopes @ model.covariance @ slopes.T
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(table["mean"], means)
    np.testing.assert_allclose(table["mean_error"], np.sqrt(np.diag(covariance))[4:], rtol=1e-9)
    assert table["z_error"] == [0.0, 0.0]
    with pytest.raises(ValueError, match="the query gives 6 numbers: read them in rows"):
        found.value  # noqa: B018


def test_a_marginal_effect(model: Poisson) -> None:
    found = model.objective.delta(model.x, "SELECT AVG(grad(exp(a + b * x), x)) AS effect FROM par CROSS JOIN d")
    effect, slope = effect_and_slope(model.x)
    assert found.value == pytest.approx(effect)
    assert found.error == pytest.approx(float(np.sqrt(slope @ model.covariance @ slope)))


# Spector and Mazzeo (1980): the average of earlier grades, the score of a test, a new method, and who passed best.
GPA = """2.66 2.89 3.28 2.92 4 2.86 2.76 2.87 3.03 3.92 2.63 3.32 3.57 3.26 3.53 2.74 2.75 2.83 3.12 3.16 2.06 3.62 2.89
    3.51 3.54 2.83 3.39 2.67 3.65 4 3.1 2.39"""
SCORE = "20 22 24 12 21 17 17 21 25 29 20 23 23 25 26 19 25 19 23 25 22 28 14 26 24 27 17 24 21 23 21 19"
BEST = (5, 10, 14, 20, 22, 25, 26, 27, 29, 30, 32)
COURSE = {
    "gpa": np.array(GPA.split(), dtype=float),
    "score": np.array(SCORE.split(), dtype=float),
    "new": [0.0] * 18 + [1.0] * 14,
    "best": [float(place in BEST) for place in range(1, 33)],
}


def test_marginal_effects_as_statsmodels_has_them() -> None:
    """The numbers are those of statsmodels 0.15: get_margeff() plain, at="mean", method="eyex", and dummy=True."""
    start = {"g": [2.826112594889], "t": [0.095157661318], "n": [2.378687655093], "c": [-13.021346858116]}
    session = sessions.session({"course": COURSE, "logit": start})
    eta = "(c + g * gpa + t * score + n * new)"
    objective = xql_ffi.objective(
        session,
        f"SELECT SUM(ln(1 + exp({eta})) - best * {eta}) FROM logit CROSS JOIN course",
        [f"logit.{name}" for name in start],
    )
    p, mean = f"1 / (1 + exp(-{eta}))", f"1 / (1 + exp(-{eta.replace('gpa', 'm.gpa')}))"
    mean = mean.replace("score", "m.score").replace("new", "m.new")
    found = objective.delta(
        objective.start,
        f"""SELECT AVG(grad({p}, gpa)) AS gpa, AVG(grad({p}, score)) AS score, AVG(gpa * grad(ln({p}), gpa)) AS elastic,
                   AVG({p.replace("new", "1.0")} - {p.replace("new", "0.0")}) AS new FROM logit CROSS JOIN course""",
    )
    table = {name: column[0] for name, column in found.rows.to_pydict().items()}
    known = {
        "gpa": (0.362580831601, 0.109441152679),
        "score": (0.012208410959, 0.01779416067),
        "elastic": (5.474709992412, 2.446819979739),
        "new": (0.357515163622, 0.142003390689),
    }
    for name, (effect, error) in known.items():
        assert (table[name], table[f"{name}_error"]) == pytest.approx((effect, error), rel=1e-8), name
    means = "(SELECT AVG(gpa) AS gpa, AVG(score) AS score, AVG(new) AS new FROM course) AS m"
    at_means = objective.delta(objective.start, f"SELECT grad({mean}, m.gpa) AS effect FROM logit CROSS JOIN {means}")
    assert (at_means.value, at_means.error) == pytest.approx((0.533858822089, 0.237037968457), rel=1e-8)


@pytest.mark.parametrize("kind", ["datafusion", "duckdb"])
def test_parameters_that_a_query_does_not_read(kind: str) -> None:
    """The derivatives by these are 0, and those by the others are not."""
    tables = {"w": {"k": [1, 2], "val": [0.5, 1.0]}, "p": {"b": [1.5]}, "q": {"c": [2.0]}}
    session = sessions.session(tables) if kind == "datafusion" else duckdb(tables)
    loss = "SELECT s + power(b - c, 2) FROM (SELECT SUM(val * val) AS s FROM w) AS s CROSS JOIN p CROSS JOIN q"
    objective = xql_ffi.objective(session, loss, ["w.val", "p.b", "q.c"])
    queries: dict[str, Any] = {
        "SELECT b * b AS v FROM p": [0, 0, 3, 0],
        "SELECT b * c AS v FROM p CROSS JOIN q": [0, 0, 2, 1.5],
        "SELECT SUM(k * val) * MIN(c) AS v FROM w CROSS JOIN q": [2, 4, 0, 2.5],
        "SELECT b AS u, c AS v, b * c AS w, b / c AS x, b - c AS y FROM p CROSS JOIN q": [
            [0, 0, 1, 0],
            [0, 0, 0, 1],
            [0, 0, 2, 1.5],
            [0, 0, 0.5, -0.375],
            [0, 0, 1, -1],
        ],
    }
    for query, slopes in queries.items():
        found = objective.delta(objective.start, query, covariance=np.diag([1.0, 2.0, 3.0, 4.0]))
        expected = np.atleast_2d(slopes) @ np.diag([1.0, 2.0, 3.0, 4.0]) @ np.atleast_2d(slopes).T
        np.testing.assert_allclose(found.covariance, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["datafusion", "duckdb"])
def test_rows_that_replace_a_table(kind: str) -> None:
    """Scores and derived quantities read those that the loss reads."""
    tables = {"d": {"i": [1, 2], "y": [5.0, 5.0]}, "par": {"m": [2.0], "unused": [0.0]}}
    session = sessions.session(tables) if kind == "datafusion" else duckdb(tables)
    row = "power(y - m, 2) / 2 AS l FROM par CROSS JOIN d"
    objective = xql_ffi.objective(session, f"SELECT SUM(l) FROM (SELECT {row}) AS q", "par.m")
    objective.replace("d", {"i": [1, 2, 3], "y": [1.0, 2.0, 3.0]})
    # The mean of three numbers, and the squares of their distances from it: one by one, and by clusters with sums of 0.
    assert objective.covariance([2.0]) == pytest.approx(1 / 3)
    assert objective.covariance([2.0], scores=f"SELECT i, {row}") == pytest.approx(2 / 9)
    assert objective.covariance([2.0], scores=f"SELECT i = 2, {row}") == pytest.approx(0)
    assert objective.delta([2.0], "SELECT MAX(y) * m AS v FROM par CROSS JOIN d GROUP BY m").value == 6.0


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT label FROM grid", "gives no number: it has 2 rows, and 0 columns of floats"),
        ("SELECT a FROM par WHERE a > 1000", "gives no number: it has 0 rows"),
        ("SELECT a AS e FROM par CROSS JOIN grid", "two rows of the query are equal"),
        ("SELECT CASE WHEN a > 1000 THEN b END AS e FROM par", "gives NULL in the column 'e'"),
    ],
)
def test_what_delta_refuses(model: Poisson, query: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        model.objective.delta(model.x, query)


def test_a_covariance_of_another_shape(model: Poisson) -> None:
    with pytest.raises(ValueError, match=r"must have the shape \(2, 2\); it has \(2,\)"):
        model.objective.delta(model.x, "SELECT a FROM par", covariance=[1.0, 2.0])


# ----------------------------------------------------------------------------------------------------- propagate

# GUM (JCGM 100:2008), H.2: a voltage, a current and a phase, measured together.
ELEMENT = {"u": [4.9990], "i": [19.661e-3], "phase": [1.04446]}
ERRORS = np.array([0.0032, 0.0095e-3, 0.00075])
CORRELATIONS = np.array([[1, -0.36, 0.86], [-0.36, 1, -0.65], [0.86, -0.65, 1]])
IMPEDANCE = "SELECT u / i * cos(phase) AS r, u / i * sin(phase) AS x, u / i AS z FROM element"
# As uncertainties has it, of the rounded inputs.
FOUND = {"r": 127.73216992810208, "x": 219.8465119126384, "z": 254.2597019480189}
SPREAD = [0.06997872798837174, 0.29571682684612355, 0.23660297183529758]
TOGETHER = [[1, -0.59148461, -0.49062391], [-0.59148461, 1, 0.99279747], [-0.49062391, 0.99279747, 1]]


def test_propagation_of_correlated_errors() -> None:
    session = sessions.session({"element": ELEMENT})
    covariance = np.outer(ERRORS, ERRORS) * CORRELATIONS
    found = xql_ffi.propagate(session, IMPEDANCE, ["element.u", "element.i", "element.phase"], covariance)
    table = found.rows.to_pydict()
    for name, spread in zip(FOUND, SPREAD, strict=True):
        assert table[name] == [pytest.approx(FOUND[name], rel=1e-12)]
        assert table[f"{name}_error"] == [pytest.approx(spread, rel=1e-9)]
    np.testing.assert_allclose(found.covariance / np.outer(SPREAD, SPREAD), TOGETHER, atol=1e-8)


@pytest.mark.parametrize(
    ("covariance", "said"),
    [
        ([[1.0, -2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "a correlation beyond -1 and 1"),
        (-np.eye(3), r"the variance -1\.0 on its diagonal"),
        ([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "is not symmetric"),
        (np.full((3, 3), np.nan), "a number that is not finite"),
        (np.eye(2), "the shape"),
        # Each pair may be so, all three together may not.
        (np.full((3, 3), -0.9) + 1.9 * np.eye(3), "a number has the variance -"),
    ],
)
def test_a_matrix_that_is_no_covariance(covariance: np.ndarray, said: str) -> None:
    session = sessions.session({"w": {"k": [1, 2, 3], "val": [1.0, 2.0, 3.0]}})
    with pytest.raises(ValueError, match=said):
        xql_ffi.propagate(session, "SELECT SUM(val) AS s FROM w", "w.val", covariance)


def test_a_variance_that_cancels() -> None:
    session = sessions.session({"w": {"k": [1, 2], "val": [1.0, 2.0]}})
    query = "SELECT 1e6 * SUM(val) FILTER (WHERE k = 1) - 1e6 / 3 * 3 * SUM(val) FILTER (WHERE k = 2) AS d FROM w"
    found = xql_ffi.propagate(session, query, "w.val", np.full((2, 2), 0.1))
    assert found.error == pytest.approx(0.0, abs=1e-3)


def test_propagation_by_rows() -> None:
    """In reverse, and of some rows: there are fewer numbers than inputs."""
    session = sessions.session({"w": {"k": [1, 2, 3], "val": [1.0, 2.0, 3.0]}})
    query = "SELECT SUM(k * val * val) AS total FROM w"
    found = xql_ffi.propagate(session, query, "w.val", np.diag([0.5, 0.25]), where="k <> 2")
    slopes = np.array([2.0, 18.0])
    assert found.value == 36.0
    assert found.error == pytest.approx(np.sqrt(slopes**2 @ [0.5, 0.25]))
    with pytest.raises(TypeError, match="propagate takes a session"):
        xql_ffi.propagate({}, query, "w.val", np.eye(3))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- profile


def test_the_profile_of_a_normal_sample() -> None:
    """That of the mean is n / 2 * ln(mean of the squares around it), which is no parabola."""
    session = sessions.session({"d": {"y": COUNTS}, "par": {"m": [COUNTS.mean()], "s": [np.log(COUNTS.std())]}})
    loss = "SELECT AVG(s + power((y - m) / exp(s), 2) / 2) FROM par CROSS JOIN d"
    objective = xql_ffi.objective(session, loss, ["par.m", "par.s"])
    grid = COUNTS.mean() + np.array([0.0, 0.5, 1.0, 3.0])
    found = objective.profile(objective.start, "par.m", grid, scale=N)
    expected = N / 2 * (1 + np.log([np.mean((COUNTS - m) ** 2) for m in grid]))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    with pytest.raises(ValueError, match=r"there is no parameter 'm', only par\.m, par\.s"):
        objective.profile(objective.start, "m", grid)
