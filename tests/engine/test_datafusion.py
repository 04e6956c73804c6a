"""datafusion on the engine is datafusion: what other parts of it and other libraries need is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = {
    "the names of all modules": """
import datafusion
def names(module, prefix):
    for name in sorted(vars(module)):
        if name not in ("__file__", "__loader__", "__spec__", "__builtins__", "__cached__"):
            print(prefix + name)
            value = getattr(module, name)
            if type(value) is type(datafusion) or isinstance(value, type):
                names(value, prefix + name + ".") if not isinstance(value, type) else print(sorted(vars(value)))
names(datafusion._internal, "")
""",
    "substrait": """
from datafusion import SessionContext, substrait
ctx = SessionContext()
ctx.from_pydict({"x": [1, 2, 3]}, name="t")
plan = substrait.Serde.serialize_to_plan("SELECT sum(x) AS s FROM t", ctx)
logical = substrait.Consumer.from_substrait_plan(ctx, plan)
print(ctx.create_dataframe_from_logical_plan(logical).to_pydict())
""",
    "pickling": """
import pickle
from datafusion import SessionContext, col, functions as f, lit, udf
import pyarrow as pa
expr = pickle.loads(pickle.dumps(f.sin(col("x")) + lit(1)))
print(expr)
ctx = SessionContext()
print(ctx.from_pydict({"x": [0.0]}).select(expr.alias("y")).to_pydict())
""",
    "functions in Python": """
import pyarrow as pa, pyarrow.compute as pc
from datafusion import SessionContext, col, udf
double = udf(lambda a: pc.multiply(a, 2.0), [pa.float64()], pa.float64(), "stable", name="double")
ctx = SessionContext()
ctx.register_udf(double)
ctx.from_pydict({"x": [1.0]}, name="t")
print(ctx.sql("SELECT double(x) AS y FROM t").to_pydict())
print(ctx.table("t").select(double(col("x")).alias("y")).to_pydict())
print(ctx.udf("double"), sorted(ctx.udfs())[:3])
""",
    "xarray-sql": """
import numpy as np, xarray as xr
from xarray_sql import XarrayContext
data = xr.Dataset({"t": (("time", "x"), np.arange(6.0).reshape(2, 3))}, {"time": [0, 1], "x": [0, 1, 2]})
ctx = XarrayContext()
ctx.from_dataset("grid", data, chunks={"time": 1})
print(ctx.sql("SELECT x, avg(t) AS m FROM grid GROUP BY x ORDER BY x").to_pandas())
""",
    "the DataFrame API": """
from datafusion import SessionContext, col, column, functions as f, lit
df = SessionContext().from_pydict({"k": [1, 1, 2], "x": [1.0, 2.0, 3.0]}, name="t")
print(df.aggregate([col("k")], [f.sum(col("x")).alias("s")]).sort(col("k")).to_pydict())
print(df.filter(col("x") > lit(1.5)).with_column("y", f.power(col("x"), lit(2))).to_pandas())
print(df.explain(), df.logical_plan().display_indent())
""",
    "an error": """
from datafusion import SessionContext
try:
    SessionContext().sql("SELECT nothing").collect()
except Exception as error:
    print(type(error), error)
""",
}


@pytest.mark.parametrize("title", PROGRAMS)
def test_it_does_what_the_stock_module_does(run: Callable[..., str], title: str) -> None:
    program = PROGRAMS[title]
    assert run(program) == run(program, XQL_FFI_ENGINE="0") != ""
