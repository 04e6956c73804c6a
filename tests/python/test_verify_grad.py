"""verify_grad: what it verifies, what it catches, and what it says."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datafusion import Expr, SessionContext, col, lit, udf
from datafusion import functions as f

import xql_ffi
from xql_ffi.testing import ColumnReport, verify_grad

Register = Callable[[SessionContext], SessionContext]


_SCHEMA = pa.schema(
    [
        pa.field("x", pa.float64()),
        pa.field("y", pa.float64()),
        pa.field("z", pa.float64()),
        pa.field("s", pa.float32()),
        pa.field("k", pa.int64()),
    ]
)
_ROWS = {
    "x": [0.5, 1.5, -2.0, 300.0, 1e-7],
    "y": [2.0, -1.0, 0.25, 7.0, 3e5],
    "z": [1.0, None, 3.0, None, 0.5],
    "s": [0.5, -1.25, 3.0, 1e-3, 40.0],
    "k": [1, 2, 3, 4, 5],
}
TABLES = {"t": pa.RecordBatch.from_pydict(_ROWS, schema=_SCHEMA)}


@pytest.mark.parametrize(
    "expr",
    [
        "sin(x) * y",
        "x * x * x - 3 * x * y",
        "exp(-x * x) / (1 + y * y)",
        "ln(1 + x * x) * k",
        "tanh(x) + atan(y)",
        "power(abs(x) + 1, 0.3) * sqrt(1 + y * y)",
        "CASE WHEN x > y THEN x * x ELSE y * x END",
        "5.0",
        "floor(y + 0.3)",
        "x % 7",
    ],
)
def test_right_derivatives_pass(session: SessionContext, expr: str) -> None:
    found = verify_grad(session, "t", expr, ["x", "y"])
    assert list(found) == ["x", "y"]
    for report in found.values():
        assert report.verified >= 4
        assert report.verified + len(report.inconclusive) == 5
        assert report.worst is not None


@pytest.mark.parametrize("error", [1e-1, 1e-3, 1e-5, -1e-5])
@pytest.mark.parametrize(
    "expr", ["sin(x) * y", "exp(-x * x) + 3 * x", "ln(1 + x * x)", "sqrt(4 + x)", "x * y", "1 / (2 + cos(x))"]
)
def test_wrong_derivatives_are_caught(session: SessionContext, expr: str, error: float) -> None:
    """Off by so much, relative to what is right, in every row."""

    def wrong(expr: Expr, column: Expr) -> Expr:
        return session.udf("grad")(expr, column) * lit(1 + error)

    with pytest.raises(AssertionError, match="is wrong in"):
        verify_grad(session, "t", expr, "x", grad=wrong)


@pytest.fixture
def everywhere(session: SessionContext) -> SessionContext:
    """With a table of enough points that some differences agree by accident."""
    session.from_pydict({"x": [0.3 + 0.173 * k for k in range(40)]}, name="many")
    return session


@pytest.mark.parametrize("frequency", [f"1e{k}" for k in range(11)])
@pytest.mark.parametrize("form", ["sin({} * x)", "3 + sin({} * x) * 7", "exp(cos({} * x))"])
def test_a_right_derivative_of_what_oscillates_is_not_called_wrong(
    everywhere: SessionContext, frequency: str, form: str
) -> None:
    """At steps that are multiples of the period, the function seems not to vary."""
    try:
        report = verify_grad(everywhere, "many", form.format(frequency), "x")["x"]
    except AssertionError as error:
        assert "could not be compared in any row" in str(error)  # noqa: PT017 - either will do
    else:
        assert report.kinks == 0
        assert report.verified + len(report.inconclusive) == 40


@pytest.mark.parametrize("frequency", ["1", "30", "1e4", "1e6"])
def test_steps_become_as_small_as_an_oscillation_needs(everywhere: SessionContext, frequency: str) -> None:
    expr = f"sin({frequency} * x)"
    assert verify_grad(everywhere, "many", expr, "x")["x"].verified > 30

    def wrong(expr: Expr, column: Expr) -> Expr:
        return everywhere.udf("grad")(expr, column) * lit(1 + 1e-5)

    with pytest.raises(AssertionError, match="is wrong in"):
        verify_grad(everywhere, "many", expr, "x", grad=wrong)


@pytest.mark.parametrize("expr", ["sin({} * x)", "3 + sin({} * x) * 7", "x * x + 1e-4 * sin({} * x)"])
@pytest.mark.parametrize("frequency", [10, 100, 1000, 10**4, 10**5])
def test_what_converges_at_coarse_steps_hides_no_oscillation(
    everywhere: SessionContext, expr: str, frequency: int
) -> None:
    report = verify_grad(everywhere, "many", expr.format(frequency), "x")["x"]
    assert report.verified >= 38
    assert report.verified + len(report.inconclusive) == 40


@pytest.mark.parametrize(("frequency", "verified"), [(1000, 38), (10**5, 38), (10**6, 5), (10**7, 5)])
def test_a_small_oscillation_is_no_error(everywhere: SessionContext, frequency: int, verified: int) -> None:
    """Of 1e-8 of the value. That of few fine steps says nothing where more of the coarser ones contradict."""
    report = verify_grad(everywhere, "many", f"x * x + 1e-8 * sin({frequency} * x)", "x")["x"]
    assert report.verified >= verified
    assert report.verified + len(report.inconclusive) == 40


def test_differences_that_do_not_converge_say_so(everywhere: SessionContext) -> None:
    with pytest.raises(AssertionError, match=r"in 40 of 40 differences do not converge.*oscillate within"):
        verify_grad(everywhere, "many", "sin(1e10 * x)", "x")


def test_values_of_few_digits(everywhere: SessionContext) -> None:
    """As a Python function gives that iterates until it is within a tolerance."""

    def times_two(factor: float) -> Callable[[Expr, Expr], Expr]:
        return lambda expr, column: lit(2 * factor) * column

    expr = "round(x * x * 1e9) / 1e9"
    assert verify_grad(everywhere, "many", expr, "x", grad=times_two(1.0))["x"].verified > 30
    with pytest.raises(AssertionError, match=r"is wrong in 3\d of 40"):
        verify_grad(everywhere, "many", expr, "x", grad=times_two(1 + 1e-4))


def test_a_derivative_wrong_in_one_row_is_caught(session: SessionContext) -> None:
    def wrong(expr: Expr, column: Expr) -> Expr:
        right = session.udf("grad")(expr, column)
        return f.when(col("k") == lit(3), right + lit(1e-4)).otherwise(right)

    with pytest.raises(AssertionError, match=r"wrong in 1 of 5 rows. Worst is row 2, \{'x': -2\.0"):
        verify_grad(session, "t", "sin(x)", "x", grad=wrong)


def test_the_message_has_all_there_is_to_know(session: SessionContext) -> None:
    def wrong(expr: Expr, column: Expr) -> Expr:
        return session.udf("grad")(expr, column) * col("k")

    with pytest.raises(AssertionError) as caught:
        verify_grad(session, "t", "x * x", "x", grad=wrong)
    message = str(caught.value)
    assert re.search(r"grad\(x \* x, x\) is wrong in 4 of 5 rows", message)
    assert "row 4, {'x': 1e-07, 'y': 300000.0, 'z': 0.5, 's': 40.0, 'k': 5}" in message
    assert re.search(r"derivative: +1e-06\n", message)
    assert re.search(
        r"central differences: (2e-07|1\.99999\d*e-07|2\.0000\d*e-07), give or take \S+ \(step \S+\)", message
    )


def test_the_message_of_the_documentation(session: SessionContext) -> None:
    session.from_pydict({"x": [0.5, 1.5], "y": [2.0, -1.0]}, name="documented")

    def wrong(expr: Expr, column: Expr) -> Expr:
        return session.udf("grad")(expr, column) * lit(1.1)

    with pytest.raises(AssertionError) as caught:
        verify_grad(session, "documented", "x * x", "x", grad=wrong)
    page = Path(__file__).parents[2] / "docs" / "python.md"
    assert str(caught.value) in page.read_text(encoding="utf-8")


def test_a_wrong_constant_is_caught_where_the_derivative_is_zero(session: SessionContext) -> None:
    with pytest.raises(AssertionError, match="is wrong in"):
        verify_grad(session, "t", "y * 2", "x", grad=lambda expr, column: lit(1e-3))


def test_nan_and_infinity_are_wrong_where_there_is_a_derivative(session: SessionContext) -> None:
    for value in (lit(math.nan), lit(math.inf)):
        with pytest.raises(AssertionError, match="is wrong in"):
            verify_grad(session, "t", "x * y", "x", grad=lambda expr, column: value)  # noqa: B023 - called at once


def test_nulls(session: SessionContext) -> None:
    assert verify_grad(session, "t", "x * z", "x")["x"].null == 2
    by_null = verify_grad(session, "t", "coalesce(z, x) * y", "z")["z"]
    assert (by_null.verified, by_null.null, by_null.inconclusive) == (3, 0, (1, 3))


def test_null_in_one_only_is_caught(session: SessionContext) -> None:
    with pytest.raises(AssertionError, match=r"the expression is NULL and the derivative is not in row 1, \{"):
        verify_grad(session, "t", "x * z", "x", grad=lambda expr, column: lit(1.0))
    with pytest.raises(AssertionError, match="the derivative is NULL and the expression is not in row 1"):
        verify_grad(session, "t", "x * y", "x", grad=lambda expr, column: col("y") + col("z") - col("z"))


def test_kinks(session: SessionContext) -> None:
    session.from_pydict({"x": [-1.0, 0.0, 2.0]}, name="kinked")
    assert _counts(verify_grad(session, "kinked", "abs(x) * 3", "x")["x"]) == (2, 1, ())
    assert _counts(verify_grad(session, "kinked", "greatest(x, 2 * x)", "x")["x"]) == (2, 1, ())
    assert _counts(verify_grad(session, "kinked", "abs(x) * 3", "x", kinks=False)["x"]) == (2, 0, (1,))


def test_a_derivative_that_is_wrong_at_a_kink_is_caught(session: SessionContext) -> None:
    session.from_pydict({"x": [-1.0, 0.0, 2.0]}, name="kinked")

    def wrong(expr: Expr, column: Expr) -> Expr:
        right = session.udf("grad")(expr, column)
        return f.when(col("x") == lit(0.0), lit(3.001)).otherwise(right)

    with pytest.raises(AssertionError, match=r"wrong in 1 of 3 rows\. Worst is row 1"):
        verify_grad(session, "kinked", "abs(x) * 3", "x", grad=wrong)
    verify_grad(session, "kinked", "abs(x) * 3", "x", grad=wrong, kinks=False)


def test_jumps_poles_and_borders_say_nothing(session: SessionContext) -> None:
    session.from_pydict({"x": [0.0, 0.3, math.nan, math.inf]}, name="edges")
    for expr in ("floor(x)", "1 / x", "sqrt(x)", "ln(x)", "cbrt(x)"):
        assert _counts(verify_grad(session, "edges", expr, "x")["x"]) == (1, 0, (0, 2, 3)), expr


def test_nothing_conclusive_is_an_error(session: SessionContext) -> None:
    session.from_pydict({"x": [0.0, math.nan]}, name="edges")
    with pytest.raises(AssertionError, match="could not be compared in any row: in 2 of 2"):
        verify_grad(session, "edges", "sqrt(x)", "x")


@pytest.mark.parametrize("expr", ["s * s", "sin(s) * 3", "exp(s / 10)", "s * x", "CAST(s * s AS REAL) + x"])
def test_single_precision(session: SessionContext, expr: str) -> None:
    report = verify_grad(session, "t", expr, "s")["s"]
    assert report.verified >= 4

    def wrong(expr: Expr, column: Expr) -> Expr:
        return session.udf("grad")(expr, column) * lit(1.02)

    with pytest.raises(AssertionError, match="is wrong in"):
        verify_grad(session, "t", expr, "s", grad=wrong)


def test_python_function_of_single_precision(session: SessionContext) -> None:
    """It takes Float32 only, and so the differences have to be in that."""

    def doubled(s: Any) -> Any:
        return pa.array([2 * v for v in s.to_pylist()], pa.float32())

    session.register_udf(udf(doubled, [pa.float32()], pa.float32(), "immutable", name="doubled"))
    report = verify_grad(session, "t", "doubled(s)", "s", grad=lambda expr, column: lit(2.0))["s"]
    assert report.verified >= 3
    with pytest.raises(AssertionError, match="is wrong in"):
        verify_grad(session, "t", "doubled(s)", "s", grad=lambda expr, column: lit(2.1))


def test_python_function_of_double_precision_over_single(session: SessionContext) -> None:
    """It is given Float64, and so the differences have its precision."""
    cube = udf(
        lambda s: pa.array([v**3 for v in s.to_pylist()]), [pa.float64()], pa.float64(), "immutable", name="cube"
    )
    session.register_udf(cube)

    def times(factor: float) -> Callable[[Expr, Expr], Expr]:
        return lambda expr, column: lit(3.0 * factor) * column * column

    assert verify_grad(session, "t", "cube(s)", "s", grad=times(1.0))["s"].verified == 5
    with pytest.raises(AssertionError, match="is wrong in"):
        verify_grad(session, "t", "cube(s)", "s", grad=times(1 + 1e-5))


def test_python_function_that_the_session_does_not_have(session: SessionContext) -> None:
    """What it takes is not known."""
    doubled = udf(lambda s: pa.array([2 * v for v in s.to_pylist()], s.type), [pa.float32()], pa.float32(), "immutable")
    report = verify_grad(session, "t", doubled(col("s")), "s", grad=lambda expr, column: lit(2.0))["s"]
    assert report.verified >= 3


def test_python_function_that_rounds_to_single_precision(session: SessionContext) -> None:
    rounded = udf(lambda x: x.cast(pa.float32()), [pa.float64()], pa.float32(), "immutable", name="rounded")
    session.register_udf(rounded)
    report = verify_grad(session, "t", "rounded(x * x) + x", "x", grad=lambda e, column: lit(2.0) * column + lit(1.0))[
        "x"
    ]
    assert report.verified >= 4


def test_an_error_of_a_python_function_is_shown(session: SessionContext) -> None:
    def fails(s: Any) -> Any:
        if len(s) > 5:
            msg = "too many rows"
            raise ValueError(msg)
        return s

    session.register_udf(udf(fails, [pa.float64()], pa.float64(), "immutable", name="fails"))
    with pytest.raises(Exception, match="too many rows"):
        verify_grad(session, "t", "fails(s)", "s", grad=lambda expr, column: lit(1.0))


def test_python_function(session: SessionContext) -> None:
    softplus = udf(
        lambda x: pa.array([math.log1p(math.exp(v)) for v in x.to_pylist()]),
        [pa.float64()],
        pa.float64(),
        "immutable",
        name="softplus",
    )
    session.register_udf(softplus)
    session.from_pydict({"x": [-2.0, 0.0, 3.0]}, name="few")
    sigmoid = lit(1.0) / (lit(1.0) + f.exp(lit(-1.0) * col("x")))
    assert verify_grad(session, "few", "softplus(x)", "x", grad=lambda expr, column: sigmoid)["x"].verified == 3
    with pytest.raises(AssertionError, match=r"grad\(softplus\(x\), x\) is wrong in 3 of 3"):
        verify_grad(session, "few", "softplus(x)", "x", grad=lambda expr, column: sigmoid * sigmoid)


def test_expressions_and_frames(session: SessionContext) -> None:
    frame = session.table("t").filter(col("k") < lit(4))
    found = verify_grad(session, frame, f.sin(col("x")) * col("y"), [col("x"), "y"])
    assert {name: report.verified for name, report in found.items()} == {"x": 3, "y": 3}


def test_qualified_columns(session: SessionContext) -> None:
    assert verify_grad(session, "t", "t.x * t.y", "t.x")["x"].verified == 5


def test_rows_can_be_limited(session: SessionContext) -> None:
    assert verify_grad(session, "t", "x * y", "x", rows=2)["x"].verified == 2


def test_tolerances(session: SessionContext) -> None:
    def wrong(expr: Expr, column: Expr) -> Expr:
        return session.udf("grad")(expr, column) * lit(1 + 1e-4)

    with pytest.raises(AssertionError):
        verify_grad(session, "t", "x * y", "x", grad=wrong)
    verify_grad(session, "t", "x * y", "x", grad=wrong, rtol=2e-4)
    verify_grad(session, "t", "x * y", "x", grad=wrong, atol=31.0)


def test_the_session_is_left_as_it_was(session: SessionContext) -> None:
    before = session.catalog().schema().names()
    verify_grad(session, "t", "x * y", "x")
    assert session.catalog().schema().names() == before


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"table": "t", "expr": "x", "wrt": []}, ValueError, "at least one column"),
        ({"table": "none", "expr": "x", "wrt": "x"}, ValueError, "no table called 'none': register one"),
        ({"table": "nowhere.t", "expr": "x", "wrt": "x"}, ValueError, "no table called 'nowhere.t'"),
        ({"table": "t", "expr": "x", "wrt": lit(3.0)}, TypeError, "a variable must be a column"),
        ({"table": "t", "expr": 3.0, "wrt": "x"}, TypeError, r"3\.0 is not one"),
        ({"table": "t", "expr": "x", "wrt": "w"}, ValueError, "no column 'w' to differentiate by, only 'x', 'y', 'z'"),
        ({"table": "t", "expr": "x", "wrt": '"X"'}, ValueError, "no column 'X'"),
        ({"table": "t", "expr": "avg(x)", "wrt": "x"}, ValueError, r"of one row, and avg\(t.x\) is over many rows"),
        ({"table": "t", "expr": "1 + sin(sum(x) * x)", "wrt": "x"}, ValueError, r"sum\(t.x\) is over many"),
        ({"table": "t", "expr": "x - avg(x) OVER ()", "wrt": "x"}, ValueError, r"avg\(t.x\) .* is over many"),
        ({"table": "t", "expr": f.avg(col("x")).alias("m"), "wrt": "x"}, ValueError, "give what is inside of it"),
    ],
)
def test_errors(session: SessionContext, arguments: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        verify_grad(session, **arguments)


def test_a_subquery_is_no_aggregate(session: SessionContext) -> None:
    assert verify_grad(session, "t", "x * x + (SELECT 3.0) * x", "x")["x"].verified >= 4


def test_a_long_expression_is_cut_in_messages(session: SessionContext) -> None:
    with pytest.raises(AssertionError, match=r"^grad\(x \+ x .* \.\.\., x\) is wrong in") as caught:
        verify_grad(session, "t", " + ".join(["x"] * 200), "x", grad=lambda expr, column: lit(1.0))
    assert len(str(caught.value)) < 600


def test_a_deep_expression(session: SessionContext) -> None:
    expr = col("x")
    for _ in range(1200):
        expr = expr + lit(1.0)
    with pytest.raises(AssertionError, match=r"\.\.\., x\) is wrong in"):
        verify_grad(session, session.table("t").limit(1), expr, "x", grad=lambda expr, column: lit(2.0))


@pytest.mark.parametrize("expr", ["x * x", "t.x * x", col("x") * col("x"), col("t.x") * col("x")], ids=str)
@pytest.mark.parametrize("table", ["t", "T", "public.t", "datafusion.public.t", '"t"'])
def test_names_of_tables(session: SessionContext, table: str, expr: Any) -> None:
    for given in (table, session.table(table), session.table(table).filter(col("k") > lit(0))):
        assert verify_grad(session, given, expr, "x")["x"].verified == 5
        assert verify_grad(session, given, expr, "t.x")["x"].verified == 5


def test_frames_of_other_tables(session: SessionContext) -> None:
    session.from_pydict({"x": [0.5], "w": [2.0]}, name='"Other"')
    other = session.table('"Other"')
    assert verify_grad(session, other, '"Other".x * w', "x")["x"].verified == 1
    assert verify_grad(session, session.from_pydict({"x": [0.5], "w": [2.0]}), "x * w", "w")["w"].verified == 1
    assert verify_grad(session, other.select((col("x") + col("w")).alias("u")), "u * u", "u")["u"].verified == 1


def test_names_of_columns(session: SessionContext) -> None:
    session.from_pydict({"x": [0.5], "X": [3.0], "a.b": [2.0]}, name="named")
    expr = 'x * "X" * "a.b"'
    for name, value in {"X": 6.0, '"X"': 1.0, 'named."X"': 1.0, "NAMED.X": 6.0, '"a.b"': 1.5}.items():
        (report,) = verify_grad(session, "named", expr, name, grad=lambda e, c, v=value: lit(v)).values()  # type: ignore[misc]
        assert report.verified == 1


def test_a_session_without_grad() -> None:
    ctx = SessionContext()
    ctx.from_pydict({"x": [1.0]}, name="t")
    with pytest.raises(ValueError, match=r"xql_ffi.register\(ctx\)"):
        verify_grad(ctx, "t", "x", "x")
    assert verify_grad(ctx, "t", "x * x", "x", grad=xql_ffi.grad_capsule())["x"].verified == 1


def test_a_table_without_rows(session: SessionContext) -> None:
    with pytest.raises(ValueError, match="no rows"):
        verify_grad(session, session.table("t").filter(col("k") > lit(100)), "x", "x")


def _counts(report: ColumnReport) -> tuple[int, int, tuple[int, ...]]:
    return report.verified, report.kinks, tuple(report.inconclusive)


def test_the_report_is_shown_as_a_table(session: SessionContext) -> None:
    report = verify_grad(session, "t", "abs(x) * y", ["x", "y"], rows=3)
    assert (report.checked, report.rows) == (3, 5)
    title, header, *lines = repr(report).splitlines()
    assert title == "derivatives of abs(x) * y at 3 of 5 rows"
    assert header.split() == ["column", "verified", "kinks", "null", "inconclusive", "largest", "error"]
    assert [line.split()[:5] for line in lines] == [["x", "3", "0", "0", "0"], ["y", "3", "0", "0", "0"]]
    assert len({len(line) for line in (header, *lines)}) == 1
    assert verify_grad(session, "t", "y * y", "y").rows == 5


def test_a_row_at_a_kink_is_the_worst_where_no_other_is(session: SessionContext) -> None:
    frame = session.from_pydict({"a": [0.0]})
    report = verify_grad(session, frame, "abs(a)", "a")["a"]
    assert (report.verified, report.kinks, report.worst.number) == (0, 1, 0)
