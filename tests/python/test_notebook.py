"""What a notebook shows of a session in which the functions are registered."""

from typing import Any

import xarray_sql
from datafusion import SessionContext

import xql_ffi


def test_registering_as_the_last_line_shows_a_line() -> None:
    for make in (SessionContext, xarray_sql.XarrayContext):
        ctx: Any = xql_ffi.register(make())
        shown = ctx._repr_mimebundle_(include=None, exclude=None)
        assert shown == {"text/plain": f"<{type(ctx).__name__} with grad, jvp, vjp and stop_gradient>"}


def test_a_session_that_shows_itself_still_does() -> None:
    class Shown(SessionContext):
        def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
            return {"text/plain": "shown"}

    assert xql_ffi.register(Shown())._repr_mimebundle_() == {"text/plain": "shown"}
