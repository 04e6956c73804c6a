"""Messages show the beginning of a long expression."""

import pytest
from datafusion import SessionContext

from support.errors import message_at_planning

LONG = " + ".join(f"sin(x * {number})" for number in range(300))
CALLS = [
    f"grad({LONG}, 1)",
    f"grad({LONG}, {LONG})",
    f"grad({LONG}, k)",
    f"grad(({LONG}) > 0, x)",
    f"grad(x * ({LONG} + random()), x)",
    f"grad(array_element([{LONG}], 1), x)",
    f"jvp(concat(x), {', '.join(['x, 1.0'] * 300)})",
    f"jvp(x, {', '.join(['x, 1.0'] * 300)}, 1, 1)",
    f"vjp(x, 1, {LONG})",
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[:12]}...{call[-12:]}")
def test_long_expressions_are_cut(ctx: SessionContext, call: str) -> None:
    message = message_at_planning(lambda: ctx.sql(f"SELECT {call} AS d FROM t"))
    assert " ..." in message
    assert len(message) < 1000
