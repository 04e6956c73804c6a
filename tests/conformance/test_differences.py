"""Random expressions against differences: DataFusion's own values decide, whatever JAX takes the functions for."""

from __future__ import annotations

from collections.abc import Callable

from datafusion import SessionContext

from conformance.generation import generated
from conformance.points import ORDINARY, points
from support.seed import SEED
from xql_ffi.testing import verify_grad


def test_central_differences(register: Callable[[SessionContext], SessionContext]) -> None:
    ctx = register(SessionContext())
    ctx.register_record_batches("points", [points(SEED).table.slice(0, ORDINARY).to_batches()])
    verified = 0
    for case in generated(40, SEED):
        for column in case.expression.columns:
            try:
                report = verify_grad(ctx, "points", case.expression.sql, column)
            except AssertionError as error:
                if "could not be compared" not in str(error):
                    raise
            else:
                verified += report[column].verified
    assert verified > 200
