"""The derivatives of a minimum: against closed forms, JAX, and refits that differ a little."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import minimize

import xql_ffi
from support import sessions

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

RNG = np.random.default_rng(5)
Tables = Mapping[str, Mapping[str, Any]]


def host(kind: str, tables: Tables) -> Any:
    """A session of DataFusion or a connection of DuckDB with these tables."""
    if kind == "datafusion":
        return sessions.session(tables)
    connection = pytest.importorskip("duckdb").connect()
    for name, columns in tables.items():
        connection.register("given", pa.table({column: pa.array(list(rows)) for column, rows in columns.items()}))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return connection


# ------------------------------------------------------------------------------------------------- ridge regression

ROWS, WEIGHTS, LAM = 12, 3, 0.7
X, Y = RNG.normal(size=(ROWS, WEIGHTS)), RNG.normal(size=ROWS)
PLACES = np.indices(X.shape)
RIDGE: Tables = {
    "x": {"i": PLACES[0].ravel(), "j": PLACES[1].ravel(), "val": X.ravel()},
    # A row without y counts for nothing.
    "data": {"i": [*range(ROWS), ROWS], "y": [*Y, None]},
    "w": {"j": range(WEIGHTS), "val": [0.0] * WEIGHTS},
    "ridge": {"lam": [LAM]},
}
SQUARES = """
    WITH p AS (SELECT x.i, SUM(x.val * w.val) AS p FROM x JOIN w ON x.j = w.j GROUP BY x.i),
         misfit AS (SELECT SUM(power(p - y, 2)) AS l FROM p JOIN data ON p.i = data.i),
         size AS (SELECT SUM(val * val) AS l FROM w)
    SELECT misfit.l + lam * size.l FROM misfit CROSS JOIN size CROSS JOIN ridge;"""


def ridge(lam: float) -> tuple[Any, Any, Any]:
    """The weights, and their derivatives by lam, by y, and by the cells of x."""
    inverse = np.linalg.inv(X.T @ X + lam * np.eye(WEIGHTS))
    w = inverse @ X.T @ Y
    residuals = Y - X @ w
    by_x = np.einsum("jk,i->jik", inverse, residuals) - np.einsum("jl,il,k->jik", inverse, X, w)
    return w, np.column_stack([-inverse @ w, inverse @ X.T]), by_x.reshape(WEIGHTS, -1)


@pytest.mark.parametrize("made", [256, 0], ids=["by the Hessian", "by conjugate gradients"])
@pytest.mark.parametrize("kind", ["datafusion", "duckdb"])
def test_ridge_regression(kind: str, made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xql_ffi._objective.solver.MADE", made)
    w, by_lam_and_y, by_x = ridge(LAM)
    objective = xql_ffi.objective(host(kind, RIDGE), SQUARES, "w.val")
    solution = objective.solution(w, ["data.y", "ridge.lam", "x.val"])
    expected = np.hstack([by_lam_and_y[:, 1:], by_lam_and_y[:, :1], by_x])
    assert solution.names == [
        *(f"data.y[{i}]" for i in range(ROWS)),
        "ridge.lam",
        *(f"x.val[{place}]" for place in range(X.size)),
    ]
    np.testing.assert_array_equal(solution.start, [*Y, LAM, *X.ravel()])
    np.testing.assert_allclose(solution.jacobian(), expected, rtol=1e-9, atol=1e-12)
    g, t = RNG.normal(size=WEIGHTS), RNG.normal(size=expected.shape[1])
    np.testing.assert_allclose(solution.vjp(g), g @ expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(solution.jvp(t), expected @ t, rtol=1e-9, atol=1e-12)
    assert 0 <= solution.residual < 1e-9
    assert 0 <= solution.distance < 1e-12
    assert repr(solution) == "<xql_ffi.Solution: 3 parameters by 49 cells of data.y, ridge.lam, x.val>"
    np.testing.assert_allclose(objective.solution(w, "ridge.lam").jacobian(), by_lam_and_y[:, :1], rtol=1e-9)


@pytest.mark.parametrize("kind", ["datafusion", "duckdb"])
def test_the_sensitivity_of_what_a_query_computes(kind: str) -> None:
    """What it reads of the cells itself counts, too: the error of the fit in the second row, and the mean of y."""
    w, by, _ = ridge(LAM)
    solution = xql_ffi.objective(host(kind, RIDGE), SQUARES, "w.val").solution(w, ["ridge.lam", "data.y"])
    found = solution.sensitivity("""
        SELECT p - y AS e, m, 1 AS whole
        FROM (SELECT SUM(x.val * w.val) AS p FROM x JOIN w ON x.j = w.j WHERE x.i = 2) AS q
        CROSS JOIN (SELECT y FROM data WHERE i = 2) AS r CROSS JOIN (SELECT AVG(y) AS m FROM data) AS s;""")
    by_lam, by_y = X[2] @ by[:, 0], X[2] @ by[:, 1:] - np.eye(ROWS)[2]
    assert found["ridge"].schema.names == ["lam", "d_e_lam", "d_m_lam"]
    np.testing.assert_allclose(found["ridge"]["d_e_lam"].to_numpy(), by_lam, rtol=1e-9)
    assert found["ridge"]["d_m_lam"].to_pylist() == [0.0]
    assert found["data"].schema.names == ["i", "y", "d_e_y", "d_m_y"]
    assert found["data"].to_pydict()["i"] == [*range(ROWS + 1)]
    np.testing.assert_allclose(found["data"]["d_e_y"].to_pylist()[:-1], by_y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["data"]["d_m_y"].to_pylist()[:-1], 1 / ROWS, rtol=1e-9)
    assert [found["data"][name][-1].as_py() for name in ("d_e_y", "d_m_y")] == [None, None]
    weighted = solution.sensitivity([1.0, 0.0, -2.0])
    assert weighted["data"].schema.names == ["i", "y", "d_y"]
    np.testing.assert_allclose(weighted["ridge"]["d_lam"].to_numpy(), by[0, 0] - 2 * by[2, 0], rtol=1e-9)


@pytest.mark.parametrize("kind", ["datafusion", "duckdb"])
def test_rows_that_replace_a_table(kind: str) -> None:
    """A solution reads those of the moment at which it is made, and keeps them."""
    objective = xql_ffi.objective(host(kind, RIDGE), SQUARES, "w.val")
    solutions = {}
    for lam, wrt in ((0.1, "ridge.lam"), (2.5, "data.y")):
        objective.replace("ridge", {"lam": [lam]})
        solutions[lam] = objective.solution(ridge(lam)[0], wrt)
    assert solutions[0.1].start == [0.1]
    assert solutions[0.1].sensitivity("SELECT MAX(lam) AS l FROM ridge")["ridge"]["d_l_lam"].to_pylist() == [1.0]
    for lam, columns in ((0.1, slice(0, 1)), (2.5, slice(1, None))):
        expected = [1, 2, 3] @ ridge(lam)[1][:, columns]
        np.testing.assert_allclose(solutions[lam].vjp([1.0, 2.0, 3.0]), expected, rtol=1e-9, atol=1e-12)
    # The objective is as it was.
    assert objective.value(ridge(2.5)[0]) == pytest.approx(objective(ridge(2.5)[0])[0])
    with pytest.raises(xql_ffi.MinimumError):
        objective.solution(ridge(0.1)[0], "ridge.lam")


def test_many_parameters() -> None:
    """By conjugate gradients: a smooth curve through points, of which each moves it."""
    n = 260
    y = np.sin(np.arange(n) / 20) + RNG.normal(size=n) / 10
    session = sessions.session(
        {"d": {"i": range(n), "y": y}, "w": {"i": range(n), "val": np.zeros(n)}, "s": {"k": [0.5]}}
    )
    objective = xql_ffi.objective(
        session,
        """WITH m AS (SELECT SUM(power(w.val - d.y, 2)) AS misfit FROM w JOIN d ON w.i = d.i),
               r AS (SELECT SUM(power(b.val - a.val, 2)) AS rough FROM w a JOIN w b ON b.i = a.i + 1)
           SELECT misfit + k * rough FROM m CROSS JOIN r CROSS JOIN s""",
        "w.val",
    )
    steps = np.diff(np.eye(n), axis=0)
    inverse = np.linalg.inv(np.eye(n) + 0.5 * steps.T @ steps)
    w = inverse @ y
    solution = objective.solution(w, ["d.y", "s.k"])
    found = solution.vjp(np.eye(n)[150])
    np.testing.assert_allclose(found[:-1], inverse[150], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(found[-1], -(inverse @ steps.T @ steps @ w)[150], rtol=1e-7)
    assert 0 < solution.residual < 1e-8


# ------------------------------------------------------------------------------------------- against JAX, and refits

FEATURES, LABELS = RNG.normal(size=(20, 2)), RNG.integers(0, 2, 20).astype(float)
LOGISTIC: Tables = {
    "d": {"i": range(20), "u": FEATURES[:, 0], "v": FEATURES[:, 1], "y": LABELS, "weight": np.ones(20)},
    "par": {"a": [0.0], "b": [0.0], "c": [0.0], "log_lam": [0.3]},
    "held": {"i": range(20), "u": FEATURES[::-1, 0], "v": FEATURES[:, 1], "y": 1 - LABELS},
}
TRAINING = """
    SELECT SUM(weight * (ln(1 + exp(z)) - y * z)) + MAX(exp(log_lam) * (a * a + b * b))
    FROM (SELECT weight, y, a, b, log_lam, c + a * u + b * v AS z FROM d CROSS JOIN par) AS q"""


def training(x: Any, cells: Any) -> Any:
    """Of a, b, c by the logarithm of lam, and the columns u, weight and y."""
    log_lam, (u, weight, y) = cells[0], cells[1:].reshape(3, 20)
    z = x[2] + x[0] * u + x[1] * FEATURES[:, 1]
    return jnp.sum(weight * (jnp.log1p(jnp.exp(z)) - y * z)) + jnp.exp(log_lam) * (x[0] ** 2 + x[1] ** 2)


CELLS = np.concatenate([[0.3], FEATURES[:, 0], np.ones(20), LABELS])


@functools.cache
def compiled(loss: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """The gradient, the Hessian, and the derivatives of the gradient by the cells."""
    gradient = jax.grad(loss)
    return jax.jit(gradient), jax.jit(jax.hessian(loss)), jax.jit(jax.jacfwd(gradient, argnums=1))


def least(loss: Callable[..., Any], cells: Any, x: Any) -> Any:
    """The minimum by Newton's method."""
    gradient, hessian, _ = compiled(loss)
    for _ in range(30):
        x = x - np.linalg.solve(hessian(x, cells), gradient(x, cells))
    return np.asarray(x)


def implicit(loss: Callable[..., Any], x: Any, cells: Any) -> Any:
    """The derivatives of the minimum by the cells."""
    _, hessian, mixed = compiled(loss)
    return -np.linalg.solve(hessian(x, cells), mixed(x, cells))


@pytest.mark.parametrize("kind", ["datafusion", "duckdb"])
def test_logistic_regression(kind: str) -> None:
    """Also by a cell of the row that has the parameters, and by several columns of one table."""
    x = least(training, CELLS, np.zeros(3))
    objective = xql_ffi.objective(host(kind, LOGISTIC), TRAINING, ["par.a", "par.b", "par.c"])
    solution = objective.solution(x, ["par.log_lam", "d.u", "d.weight", "d.y"])
    expected = implicit(training, x, CELLS)
    np.testing.assert_allclose(solution.jacobian(), expected, rtol=1e-8, atol=1e-11)
    # The influence of a row is the derivative by its weight: a step up and a step down.
    for row in (0, 19):
        steps = np.zeros((2, len(CELLS)))
        steps[:, 21 + row] = 1e-4, -1e-4
        refits = [least(training, CELLS + step, x) for step in steps]
        np.testing.assert_allclose(expected[:, 21 + row], (refits[0] - refits[1]) / 2e-4, rtol=1e-6)
    # A direction of all cells, against refits.
    t = RNG.normal(size=len(CELLS))
    refits = [least(training, CELLS + step * t, x) for step in (1e-4, -1e-4)]
    np.testing.assert_allclose(solution.jvp(t), (refits[0] - refits[1]) / 2e-4, rtol=1e-6)
    # A table that has derivatives by several of its columns.
    table = solution.sensitivity("SELECT a / b AS ratio FROM par")["d"]
    names = ["d_ratio_u", "d_ratio_weight", "d_ratio_y"]
    assert table.schema.names == ["i", "u", "v", "y", "weight", *names]
    found = np.concatenate([table[name].to_numpy() for name in names])
    np.testing.assert_allclose(
        found, np.array([1 / x[1], -x[0] / x[1] ** 2, 0]) @ expected[:, 1:], rtol=1e-7, atol=1e-11
    )


def test_a_hyperparameter_by_a_validation_loss() -> None:
    """The derivative of the loss on other rows by the logarithm of lam, against refits."""
    objective = xql_ffi.objective(sessions.session(LOGISTIC), TRAINING, ["par.a", "par.b", "par.c"])
    validation = xql_ffi.objective(
        sessions.session(LOGISTIC),
        "SELECT AVG(ln(1 + exp(z)) - y * z) FROM (SELECT y, c + a * u + b * v AS z FROM held CROSS JOIN par) AS q",
        ["par.a", "par.b", "par.c"],
    )

    def refitted(log_lam: float) -> tuple[float, Any]:
        x = least(training, np.concatenate([[log_lam], CELLS[1:]]), np.zeros(3))
        return validation.value(x), x

    _, x = refitted(0.3)
    slope = objective.solution(x, "par.log_lam").vjp(validation(x)[1])
    differences = (refitted(0.3 + 1e-4)[0] - refitted(0.3 - 1e-4)[0]) / 2e-4
    np.testing.assert_allclose(slope, [differences], rtol=1e-6)


# Terms of random losses, in SQL and for JAX alike: of the parameters p, q, a hyperparameter h and the data u, y.
TERMS = (
    ("sin(p * u + h)", lambda p, q, h, u, y: jnp.sin(p * u + h)),
    ("cos(q * y) * h", lambda p, q, h, u, y: jnp.cos(q * y) * h),
    ("exp(-power(p - y * h, 2))", lambda p, q, h, u, y: jnp.exp(-((p - y * h) ** 2))),
    ("p * q * u * y", lambda p, q, h, u, y: p * q * u * y),
    ("tanh(q * u - h * y)", lambda p, q, h, u, y: jnp.tanh(q * u - h * y)),
    ("abs(y) * power(q - h, 2)", lambda p, q, h, u, y: jnp.abs(y) * (q - h) ** 2),
    ("sqrt(1 + power(p * u - q, 2))", lambda p, q, h, u, y: jnp.sqrt(1 + (p * u - q) ** 2)),
    ("u * exp(q * h / 4) * p", lambda p, q, h, u, y: u * jnp.exp(q * h / 4) * p),
)


@pytest.mark.parametrize("seed", range(4))
def test_random_losses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = [TERMS[place] for place in rng.choice(len(TERMS), 4, replace=False)]
    factors, u, y, h = rng.normal(size=4).round(3), rng.normal(size=5), rng.normal(size=5), 0.6

    def loss(x: Any, cells: Any) -> Any:
        p, q, h, u, y = x[0], x[1], cells[0], cells[1:6], cells[6:]
        terms = sum(factor * term(p, q, h, u, y) for factor, (_, term) in zip(factors, chosen, strict=True))
        return jnp.mean(terms + 3 * (p * p + q * q) + p - q)

    terms = " + ".join(f"({factor}) * {sql}" for factor, (sql, _) in zip(factors, chosen, strict=True))
    cells = np.concatenate([[h], u, y])
    x = least(loss, cells, np.zeros(2))
    session = sessions.session({"w": {"p": [0.0], "q": [0.0]}, "hyper": {"h": [h]}, "d": {"u": u, "y": y}})
    objective = xql_ffi.objective(
        session,
        f"SELECT AVG({terms} + 3 * (p * p + q * q) + p - q) FROM d CROSS JOIN w CROSS JOIN hyper",
        ["w.p", "w.q"],
    )
    # Whichever the loss reads.
    wanted = [name for name, letter in (("hyper.h", "h"), ("d.u", "u"), ("d.y", "y")) if letter in _letters(terms)]
    kept = np.concatenate(
        [part for name, part in (("hyper.h", [0]), ("d.u", range(1, 6)), ("d.y", range(6, 11))) if name in wanted]
    ).astype(int)
    found = objective.solution(x, wanted).jacobian()
    np.testing.assert_allclose(found, implicit(loss, x, cells)[:, kept], rtol=1e-7, atol=1e-10)


def _letters(terms: str) -> set[str]:
    return {word for word in terms.replace("(", " ").replace(")", " ").replace(",", " ").split() if len(word) == 1}


# ----------------------------------------------------------------------------------------------------- other models


@pytest.mark.parametrize("kind", ["datafusion", "duckdb"])
def test_cells_beside_parameters(kind: str) -> None:
    """What holds a field at its borders: cells of the column that has the parameters."""
    session = host(kind, {"f": {"i": [0, 1, 2, 3, 4], "val": [1.0, 0.0, None, 0.0, 3.0]}})
    loss = "SELECT SUM(power(b.val - a.val, 2)) FROM f a JOIN f b ON b.i = a.i + 1"
    held = xql_ffi.objective(session, loss, "f.val", where="i = 1 OR i = 3")
    # The NULL cuts the field in two.
    solution = held.solution([1.0, 3.0], "f.val")
    assert solution.names == ["f.val[0]", "f.val[4]"]
    np.testing.assert_allclose(solution.jacobian(), np.eye(2), atol=1e-12)
    table = solution.sensitivity([1.0, 10.0])["f"]
    assert table.to_pydict() == {
        "i": [0, 1, 2, 3, 4],
        "val": [1.0, 0.0, None, 0.0, 3.0],
        "d_val": [1.0, None, None, None, 10.0],
    }
    with pytest.raises(ValueError, match=r"f\.val has no cells that a minimum could depend on"):
        xql_ffi.objective(session, loss, "f.val").solution([0.0] * 4, "f.val")


def test_through_a_recursion() -> None:
    """A rate of decay is fitted to observations of a recursive query."""
    times, rate = np.arange(1, 6), 0.3
    y = 2.0 * (1 - rate) ** times + np.array([0.02, -0.01, 0.015, 0.0, -0.02])
    session = sessions.session({"obs": {"t": times, "y": y}, "par": {"rate": [rate]}, "first": {"x": [2.0]}})
    objective = xql_ffi.objective(
        session,
        """WITH RECURSIVE path AS (
               SELECT CAST(0 AS BIGINT) AS t, x FROM first
               UNION ALL
               SELECT t + 1, x * (1 - rate) FROM path CROSS JOIN par WHERE t < 5)
           SELECT SUM(power(path.x - obs.y, 2)) FROM path JOIN obs ON path.t = obs.t""",
        "par.rate",
    )

    def loss(x: Any, cells: Any) -> Any:
        return jnp.sum((cells[0] * (1 - x[0]) ** times - cells[1:]) ** 2)

    cells = np.concatenate([[2.0], y])
    x = least(loss, cells, np.array([rate]))
    np.testing.assert_allclose(
        objective.solution(x, ["first.x", "obs.y"]).jacobian(), implicit(loss, x, cells), rtol=1e-8
    )


def test_columns_of_float32() -> None:
    """Products with the Hessian are as exact as the cells that they move."""
    session = sessions.session(
        {
            "w": pa.table({"val": pa.array([0.0, 0.0], pa.float32())}).add_column(0, "k", pa.array([0, 1])),
            "d": pa.table({"k": pa.array([0, 1]), "y": pa.array([0.5, 0.25], pa.float32())}),
        }
    )
    loss = "SELECT SUM(power(w.val - d.y, 2) + power(w.val, 2)) FROM w JOIN d ON w.k = d.k"
    solution = xql_ffi.objective(session, loss, "w.val").solution([0.25, 0.125], "d.y")
    np.testing.assert_allclose(solution.jacobian(), np.eye(2) / 2, rtol=1e-6, atol=1e-6)


def test_units_do_not_count() -> None:
    """Parameters of very different size, as an offset in years and a slope by them."""
    years, y = np.arange(1950.0, 1960.0), RNG.normal(size=10)
    session = sessions.session({"d": {"t": years, "y": y}, "par": {"a": [0.0], "b": [0.0]}})
    objective = xql_ffi.objective(
        session, "SELECT SUM(power(a + b * t - y, 2)) FROM d CROSS JOIN par", ["par.a", "par.b"]
    )
    design = np.column_stack([np.ones(10), years])
    expected = np.linalg.pinv(design)
    np.testing.assert_allclose(objective.solution(expected @ y, "d.y").jacobian(), expected, rtol=1e-6)


# -------------------------------------------------------------------------------------------------- what is refused


def plain(loss: str, **columns: Any) -> xql_ffi.Objective:
    """An objective of a and b, with a table of one row beside."""
    session = sessions.session(
        {"par": {"a": [0.0], "b": [0.0]}, "h": {name: [value] for name, value in columns.items()}}
    )
    return xql_ffi.objective(session, loss, ["par.a", "par.b"])


@pytest.mark.parametrize("made", [256, 0], ids=["by the Hessian", "by conjugate gradients"])
@pytest.mark.parametrize(
    ("loss", "x", "says"),
    [
        (
            "power(a - c, 2) + power(b, 2)",
            [1.5, 0.0],
            r"no minimum: .*norm 1, .*moves par\.a by -0\.5, .*at most 0\.001",
        ),
        ("power(a + b - c, 2)", [0.5, 0.5], "do not determine|does not bend upwards"),
        ("power(a - c, 2) - power(b, 2)", [1.0, 0.0], "no curvature upwards along par.b|does not bend upwards"),
        ("power(a - c, 2) + 4 * a * b - 4 * c * b + power(b, 2)", [1.0, 0.0], "bends down|does not bend upwards"),
        ("power(a - c, 2) + power(b, 4)", [1.0, 0.0], "no curvature upwards along par.b|does not bend upwards"),
        ("power(a - c, 2) + b * ln(b)", [1.0, 0.0], "not finite"),
    ],
    ids=["no minimum", "a valley", "a ridge", "a saddle", "flat", "infinite"],
)
def test_a_point_that_is_no_minimum(loss: str, x: Any, says: str, made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xql_ffi._objective.solver.MADE", made)
    objective = plain(f"SELECT {loss} FROM par CROSS JOIN h", c=1.0)
    with pytest.raises(xql_ffi.MinimumError, match=says):
        objective.solution(x, "h.c")


def test_an_optimizer_is_near_enough() -> None:
    objective = plain("SELECT power(a - c, 4) + power(a - c, 2) + exp(b) - b * c FROM par CROSS JOIN h", c=1.5)
    found = minimize(objective, objective.start, jac=True, method="L-BFGS-B")
    solution = objective.solution(found.x, "h.c")
    assert 0 < solution.distance < 1e-3
    np.testing.assert_allclose(solution.jacobian()[:, 0], [1, 1 / 1.5], rtol=1e-3)


@pytest.mark.parametrize(
    ("wrt", "error", "says"),
    [
        ("h.unread", xql_ffi.VariableError, r"the loss does not read h\.unread"),
        ("h.lost", ValueError, r"h has no column 'lost' to differentiate by, only 'c'"),
        ("nowhere.c", ValueError, "no table called 'nowhere'"),
        ("h.whole", xql_ffi.VariableError, r"h\.whole is int64"),
        ("c", ValueError, "named without its table"),
        (["h.c", "h.c"], ValueError, "given more than once"),
        ("par.a", ValueError, r"par\.a has no cells that a minimum could depend on"),
        ("seen.c", ValueError, "seen is a view"),
        ("none.c", ValueError, r"none\.c has no cells"),
    ],
)
def test_what_is_no_cell(wrt: Any, error: type[Exception], says: str) -> None:
    session = sessions.session(
        {
            "par": {"a": [0.0]},
            "h": {"c": [1.0], "unread": [0.0], "whole": [1]},
            "none": pa.record_batch({"c": pa.array([], pa.float64())}),
        }
    )
    session.sql("CREATE VIEW seen AS SELECT c FROM h")
    objective = xql_ffi.objective(session, "SELECT power(a - c * whole, 2) FROM par CROSS JOIN h", "par.a")
    with pytest.raises(error, match=says):
        objective.solution([1.0], wrt)


def test_what_solutions_refuse() -> None:
    objective = plain("SELECT power(a - c, 2) + power(b - d_c, 2) FROM par CROSS JOIN h", c=1.0, d_c=2.0)
    solution = objective.solution([1.0, 2.0], "h.c")
    with pytest.raises(ValueError, match="the cotangent must be a vector of 2 numbers, one for each parameter"):
        solution.vjp([1.0])
    with pytest.raises(ValueError, match="t must be a vector of 1 numbers, one for each cell"):
        solution.jvp([1.0, 2.0])
    with pytest.raises(ValueError, match="the query gives 2 rows: aggregate them"):
        solution.sensitivity("SELECT a AS v FROM par UNION ALL SELECT b FROM par")
    with pytest.raises(ValueError, match="the query gives no number"):
        solution.sensitivity("SELECT 1 AS v FROM par")
    with pytest.raises(ValueError, match="h has a column d_c already"):
        solution.sensitivity([1.0, 0.0])
    np.testing.assert_array_equal(solution.vjp([0.0, 0.0]), [0.0])
    with pytest.raises(ValueError, match="x must be a vector of 2 numbers"):
        objective.solution([1.0], "h.c")


def test_rows_through_a_recursion() -> None:
    """The parameters are the rows that it begins with, and the cell is read outside."""
    session = sessions.session({"f": {"k": [0, 1], "val": [0.5, 1.0]}, "o": {"y": [1.0]}})
    objective = xql_ffi.objective(
        session,
        """WITH RECURSIVE m AS (
               SELECT 0 AS step, k, val FROM f
               UNION ALL
               SELECT step + 1, k, val * 0.5 FROM m WHERE step < 2)
           SELECT SUM(power(val - y, 2)) FROM m CROSS JOIN o WHERE step = 2""",
        "f.val",
    )
    np.testing.assert_allclose(objective.solution([4.0, 4.0], "o.y").jacobian(), [[4.0], [4.0]], rtol=1e-9)
