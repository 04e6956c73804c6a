"""Random expressions against derivatives in 50 digits, at the points of the suite and next to edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from conformance.cases import Call, Case, grad, jvp, second, third, value
from conformance.exact import Exact, OutsideError
from conformance.exact_verdict import ExactJudge
from conformance.expressions import build, column
from conformance.generation import generated
from conformance.paths import Session
from conformance.points import NEAR_EDGES, ORDINARY, points
from conformance.test_verdict import ALL, CASES, Wrong
from support.seed import SEED

# One of so many expressions of the suite is judged in this way as well.
SHARE = 25
CHUNK = 20
X, Y = column("x"), column("y")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sample" in metafunc.fixturenames:
        number = metafunc.config.getoption("conformance") // SHARE
        metafunc.parametrize("sample", [range(start, min(start + CHUNK, number)) for start in range(0, number, CHUNK)])


def test_session(sample: range) -> None:
    seed = SEED + 7_000_000 + sample.start
    cases = generated(len(sample), seed)
    found = []
    for at in (points(seed), points(seed, NEAR_EDGES)):
        judge = ExactJudge(Session(), at)
        found += [d.describe(judge.path, at) for d in judge.disagreements(cases)]
        print("\n".join(f"{kind}: {count}" for kind, count in sorted(judge.counts.items())))
        assert judge.counts["compared"] > 5 * len(sample)
        assert judge.counts["right up to rounding in the derivative"] < 0.05 * judge.counts["compared"]
    assert not found, f"{len(found)} calls disagree (XQL_FFI_TEST_SEED={SEED}):\n\n" + "\n\n".join(found)


AT = points(3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.calls[1].sql)
def test_what_is_wrong_is_noticed(case: Case) -> None:
    """A relative error of 1e-10."""
    assert not ExactJudge(Session(), AT).disagreements([case])
    found = ExactJudge(Wrong(lambda v: v * (1 + 1e-10), ALL), AT).disagreements([case])
    assert [disagreement.call.sql for disagreement in found] == [case.calls[1].sql]


SINE = build("sin({0})", build("{0} * {1}", X, Y))


@pytest.mark.parametrize(
    ("call", "derivative"),
    [
        (value(SINE), lambda x, y: math.sin(x * y)),
        (grad(SINE, "x"), lambda x, y: y * math.cos(x * y)),
        (second(SINE, "x", "y"), lambda x, y: math.cos(x * y) - x * y * math.sin(x * y)),
        (third(SINE, "x", "x", "x"), lambda x, y: -(y**3) * math.cos(x * y)),
        (jvp(SINE, {"x": Y, "y": X}), lambda x, y: (y * y + x * x) * math.cos(x * y)),
    ],
    ids=lambda given: getattr(given, "sql", ""),
)
def test_derivatives(call: Call, derivative: Callable[[float, float], float]) -> None:
    """Of a function whose derivatives are known."""
    for point in range(ORDINARY):
        x, y = AT.numbers["x"][point], AT.numbers["y"][point]
        assert math.isclose(float(Exact(call, AT, point).value()), derivative(x, y), rel_tol=1e-13)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_pole_of_the_derivative(order: int) -> None:
    """The root is even or odd around 0, and so are the differences."""
    root = build("cos({0})", build("cbrt({0})", X)) if order != 2 else build("cbrt({0})", X)
    call = {1: grad(root, "x"), 2: second(root, "x", "x"), 3: third(root, "x", "x", "x")}[order]
    at = points(0)
    at.numbers["x"][:] = 0.0
    with pytest.raises(OutsideError):
        Exact(call, at, 0).spread()
    at.numbers["x"][:] = 1.0
    assert Exact(call, at, 0).spread() < 1e-14


def test_rounding() -> None:
    """The derivative of 1 / (1 - cos(x)) loses digits near 0, that of 1 - cos(x) does not."""
    at = points(0)
    at.numbers["x"][:] = 1e-5
    difference = build("1 - {0}", build("cos({0})", X))
    lost = Exact(grad(build("1 / {0}", difference), "x"), at, 0)
    kept = Exact(grad(difference, "x"), at, 0)
    assert kept.spread() < 1e-14 * float(kept.value())
    assert 1e-8 < lost.spread() / abs(float(lost.value())) < 1e-3


@pytest.mark.parametrize(
    ("call", "at"),
    [
        (grad(build("abs({0})", X), "x"), 0.0),
        (grad(build("floor({0})", X), "x"), 1.0),
        (grad(build("greatest({0}, {1})", X, 1.0), "x"), 1.0),
        (grad(build("sqrt({0})", X), "x"), 0.0),
        (grad(build("{0} % 2", X), "x"), 4.0),
        (value(build("ln({0})", X)), 0.0),
    ],
    ids=lambda given: getattr(given, "sql", str(given)),
)
def test_where_there_is_no_derivative(call: Call, at: float) -> None:
    table = points(0)
    table.numbers["x"][:] = at
    with pytest.raises(OutsideError):
        Exact(call, table, 0).value()
    table.numbers["x"][:] = 0.3
    assert np.isfinite(float(Exact(call, table, 0).value()))
