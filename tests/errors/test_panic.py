"""A panic in DataFusion is the exception that the stock module makes of it."""

import pytest
from datafusion import SessionContext

import xql_ffi

# DataFusion panics when it executes this.
_PANICS = "array_repeat(1, 9223372036854775807)"


@pytest.mark.parametrize("derivative", ["x", "grad(x * x, x)"])
@pytest.mark.parametrize("creating", ["", "CREATE TABLE made AS "])
def test_it_says_what_has_happened(derivative: str, creating: str) -> None:
    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"x": [1.5]}, name="t")
    with pytest.raises(BaseException, match="capacity overflow") as raised:
        ctx.sql(f"{creating}SELECT {derivative} AS d, {_PANICS} AS r FROM t").collect()
    assert type(raised.value).__name__ == "PanicException"
    assert ctx.sql("SELECT grad(x * x, x) AS d FROM t").to_pydict() == {"d": [3.0]}
