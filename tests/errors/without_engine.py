"""Runs statements that differentiate and prints how each ends, as JSON: the message, or the result."""

import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.extend(json.loads(os.environ.get("XQL_TEST_PATHS", "[]")))


def outcome(attempt: Callable[[], object]) -> str:
    try:
        return repr(attempt())
    except Exception as error:
        return str(error)


def main(statements: list[str]) -> dict[str, str]:
    import datafusion
    from datafusion import col

    import xql_ffi
    from support.sessions import session
    from support.tables import TABLES

    ctx = session(TABLES, differentiates=False)
    ctx.sql("CREATE TABLE w (d DOUBLE)")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert xql_ffi.register(ctx) is ctx

    def run(statement: str) -> object:
        if statement == "dataframe":
            x = col("x")
            return ctx.table("t").select(xql_ffi.grad_capsule()(x * x, x)).to_pydict()
        return ctx.sql(statement).to_pydict()

    outcomes = {statement: outcome(partial(run, statement)) for statement in statements}
    outcomes["registered"] = repr(sorted({"grad", "jvp", "vjp"}.intersection(ctx.udfs())))
    try:
        xql_ffi.grad(col("x"), "x")
    except xql_ffi.MissingEngineError as error:
        outcomes["function"] = str(error)
    outcomes["gradients"] = outcome(lambda: xql_ffi.gradients(ctx, "SELECT SUM(x * x) FROM t", "t.x"))
    outcomes["objective"] = outcome(lambda: xql_ffi.objective(ctx, "SELECT SUM(x * x) FROM t", "t.x"))
    outcomes["verify"] = outcome(lambda: xql_ffi.testing.verify_grad(ctx, "t", "x * x", "x"))
    outcomes["plain"] = outcome(lambda: ctx.sql("SELECT id FROM t WHERE id = 1").to_pydict())
    outcomes["version"] = datafusion.__version__
    outcomes["warned"] = json.dumps([{"text": str(w.message), "file": Path(w.filename).name} for w in warned])
    outcomes["status"] = xql_ffi.engine_status()
    return outcomes


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
