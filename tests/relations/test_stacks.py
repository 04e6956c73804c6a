"""Derivatives that share much are planned as a stack of projections, which other libraries have to let through."""

from collections.abc import Callable

import pytest
from datafusion import SessionContext

from support.cases import plans

_CHAIN = "sin(" * 20 + "x * y" + ")" * 20
_GREATEST = f"greatest({', '.join(f'x * {i}' for i in range(40))})"


@pytest.mark.parametrize(
    "calls",
    [f"grad({_CHAIN}, x) AS d", f"grad({_CHAIN}, x) AS d, jvp({_CHAIN}, y, x) AS e", f"grad({_GREATEST}, x) AS d"],
    ids=["a chain", "two calls", "greatest"],
)
def test_what_is_shared_is_a_column(calls: str, register: Callable[[SessionContext], SessionContext]) -> None:
    ctx = register(SessionContext())
    ctx.from_pydict({"x": [0.5], "y": [2.0]}, name="t")
    assert "AS ∂value" in plans(ctx, f"SELECT {calls} FROM t")["logical_plan"]
