"""What is refused is an exception of `xql_ffi`, whichever method meets it first."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext, col, lit, udf
from datafusion import functions as f

import xql_ffi
from support.sessions import session
from support.tables import TABLES

NO_RULE = "SELECT grad(halve(x), x) AS d FROM t"
METHODS: dict[str, Callable[[Any], object]] = {
    "execution_plan": lambda frame: frame.execution_plan(),
    "optimized_logical_plan": lambda frame: frame.optimized_logical_plan(),
    "collect": lambda frame: frame.collect(),
    "collect_partitioned": lambda frame: frame.collect_partitioned(),
    "collect_column": lambda frame: frame.collect_column("d"),
    "to_arrow_table": lambda frame: frame.to_arrow_table(),
    "to_pandas": lambda frame: frame.to_pandas(),
    "to_pydict": lambda frame: frame.to_pydict(),
    "to_pylist": lambda frame: frame.to_pylist(),
    "count": lambda frame: frame.filter(col("d") > lit(0.0)).count(),
    "show": lambda frame: frame.show(),
    "cache": lambda frame: frame.cache(),
    "execute_stream": lambda frame: frame.execute_stream(),
    "arrow_stream": pa.table,
    "notebook": lambda frame: frame._repr_html_(),
}


@pytest.fixture(scope="module")
def with_udf() -> SessionContext:
    ctx = session(TABLES)
    ctx.register_udf(udf(lambda a: a, [pa.float64()], pa.float64(), "immutable", "halve"))
    return ctx


@pytest.mark.parametrize("method", METHODS)
def test_every_method(with_udf: SessionContext, method: str) -> None:
    frame = with_udf.sql(NO_RULE)
    with pytest.raises(xql_ffi.MissingRuleError) as caught:
        METHODS[method](frame)
    message = str(caught.value)
    assert message.startswith("grad(halve(t.x), t.x): ")
    assert "caused by" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("statement", "kind", "says"),
    [
        (f"CREATE TABLE made AS {NO_RULE}", xql_ffi.MissingRuleError, "halve"),
        ("SELECT grad(x * x, 2.5) AS d FROM t", xql_ffi.VariableError, "2.5 is a number"),
        ("SELECT grad(x * x, k) AS d FROM t", xql_ffi.VariableError, "k is Int64"),
        ("SELECT grad(x * x, x + 1) AS d FROM t", xql_ffi.VariableError, "is an expression"),
        ("SELECT grad(a.x, b.x) AS d FROM t AS a JOIN t AS b ON a.id = b.id", xql_ffi.VariableError, "x"),
        ("SELECT grad(AVG(x * x), x) AS d FROM t", xql_ffi.VariableError, r"GROUP BY t\.x, or .*AVG\(grad\(f, x\)\)"),
        ("SELECT y, vjp(AVG(x * x), x, 1.0) AS d FROM t GROUP BY y", xql_ffi.VariableError, r"AVG\(vjp\(f, x\)\)"),
        ("SELECT grad(g, x) AS d FROM t", xql_ffi.NotNumericError, "Utf8"),
        ("SELECT grad(x > 0, x) AS d FROM t", xql_ffi.NotNumericError, "Boolean"),
        (
            "SELECT grad(x * (SELECT MAX(v.y) FROM v WHERE v.x > t.x), x) AS d FROM t",
            xql_ffi.DifferentiationError,
            "subquery",
        ),
        ("SELECT grad(x * random(), x) AS d FROM t", xql_ffi.DifferentiationError, "volatile"),
        ("SELECT grad(x * y, x, y) AS d FROM t", xql_ffi.DifferentiationError, "one call for each column"),
    ],
)
def test_kinds(with_udf: SessionContext, statement: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(xql_ffi.DifferentiationError, match=says) as caught:
        with_udf.sql(statement).execution_plan()
    assert isinstance(caught.value, kind)
    assert "Error during planning" not in str(caught.value)


def test_aggregates_of_the_dataframe_api(with_udf: SessionContext) -> None:
    frame = with_udf.table("t").aggregate([], [xql_ffi.grad(f.avg(col("x") * col("x")), "x")])
    with pytest.raises(xql_ffi.VariableError, match=r"must be one of its keys; t\.x is not.*avg\(grad\(f, x\)\)"):
        frame.collect()


def test_rules_are_refused_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="no z here") as caught:
        xql_ffi.rule("f(x)", "z")
    assert type(caught.value) is ValueError


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT nowhere FROM t",
        "SELECT x, AVG(y) FROM t",
        "SELECT y, AVG(grad(x * x, x)) AS d FROM t",
        "SELECT y, grad(AVG(x * x), x) AS d FROM t GROUP BY x",
        "SELECT 'grad(', x, AVG(y) FROM",
        "SELECT arrow_cast(1, 'no')",
    ],
)
def test_other_errors_stay_as_they_are(with_udf: SessionContext, statement: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - datafusion raises plain exceptions
        with_udf.sql(statement).collect()
    assert not isinstance(caught.value, xql_ffi.DifferentiationError)


@pytest.mark.parametrize("kind", xql_ffi.DifferentiationError.__subclasses__())
def test_all_are_value_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, ValueError)
    assert getattr(xql_ffi, kind.__name__) is kind
