"""The number of arguments."""

import pytest
from datafusion import SessionContext, col

from support.errors import assert_says, message_at_planning
from xql_ffi import grad_capsule

CALLS = [
    "grad()",
    "grad(x * x)",
    "grad(x * x, x, x)",
    "grad(x * x, x, 1.0, y)",
    "jvp()",
    "jvp(x * x)",
    "jvp(x * x, x)",
    "jvp(x * y, x, 1.0, y)",
    "jvp(x * y, x, 1.0, y, 1.0, w)",
    "vjp()",
    "vjp(x * x)",
    "vjp(x * x, x)",
    "vjp(x * y, x, 1.0, y)",
]


@pytest.mark.parametrize("call", CALLS)
def test_wrong_number(ctx: SessionContext, call: str) -> None:
    """The message names the function, says how it is called, and how many arguments it met."""
    name = call[: call.index("(")]
    met = 0 if call.endswith("()") else call.count(",") + 1
    given = {0: "no arguments are given", 1: "1 argument is given"}.get(met, rf"\b{met} (arguments )?are given")
    says = [
        name,
        "argument",
        given,
        {"grad": r"grad\(\w+, ", "jvp": r"jvp\(\w+, ", "vjp": r"vjp\(\w+, "}[name],
    ]
    assert_says(message_at_planning(lambda: ctx.sql(f"SELECT {call} AS d FROM t")), says)


def test_several_columns(ctx: SessionContext) -> None:
    """One is told the calls to write."""
    message = message_at_planning(lambda: ctx.sql("SELECT grad(x * y, x, y) AS d FROM t"))
    assert_says(message, [r"one call for each column: grad\(.*, x\), grad\(.*, y\)"])


def test_dataframe_api(ctx: SessionContext) -> None:
    message = message_at_planning(lambda: ctx.table("t").select(grad_capsule()(col("x") * col("x"))))
    assert_says(message, ["grad", "argument"])
