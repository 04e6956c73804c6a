"""What a gradient costs beside the loss, when both are written through CTEs."""

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

ROWS, PARAMETERS = 300_000, 12

PREDICTION = " + ".join(f"w{i} * x{i}" for i in range(PARAMETERS))
NAMES = [f"w{i}" for i in range(PARAMETERS)]
MODEL = f"WITH m AS (SELECT *, {PREDICTION} AS pred FROM data CROSS JOIN params)"
STAGES = f"""{MODEL}, s AS (SELECT *, 1 / (1 + exp(-pred)) AS p FROM m),
    l AS (SELECT *, -(y * ln(p) + (1 - y) * ln(1 - p)) AS loss FROM s)"""


@pytest.fixture(scope="module")
def session(register: Callable[[SessionContext], SessionContext]) -> SessionContext:
    ctx = register(SessionContext(SessionConfig().with_target_partitions(1)))
    rng = np.random.default_rng(11)
    columns = {f"x{i}": rng.normal(size=ROWS) for i in range(PARAMETERS)}
    columns["y"] = rng.uniform(size=ROWS)
    ctx.register_record_batches("data", [pa.table(columns).to_batches(max_chunksize=8192)])
    ctx.from_pydict({f"w{i}": [0.02 * i] for i in range(PARAMETERS)}, name="params")
    return ctx


@pytest.mark.parametrize(
    ("statement", "loss", "slope"),
    [
        (f"{MODEL} SELECT {{}} FROM m", "AVG(power(pred - y, 2))", "AVG(grad(power(pred - y, 2), {}))"),
        (
            f"{MODEL} SELECT {{}} FROM m GROUP BY {', '.join(NAMES)}",
            "AVG(power(pred - y, 2))",
            "grad(AVG(power(pred - y, 2)), {})",
        ),
        (f"{STAGES} SELECT {{}} FROM l", "AVG(loss)", "AVG(grad(loss, {}))"),
    ],
    ids=["loss_over_a_cte", "of_an_aggregate", "several_stages"],
)
def test_gradient_costs_at_most_four_times_the_loss(
    session: SessionContext, statement: str, loss: str, slope: str
) -> None:
    gradient = ", ".join(slope.format(name) for name in NAMES)
    statements = statement.format(loss), statement.format(gradient)
    # In turn, so that a busy moment of the machine meets both.
    spent = [[_execution(session, each) for each in statements] for _ in range(7)]
    of_loss, of_gradient = (min(times) for times in zip(*spent, strict=True))
    assert of_gradient <= 4 * of_loss, spent


def _execution(session: SessionContext, statement: str) -> float:
    """The seconds that a statement is executed, without planning, which does not grow with the rows."""
    frame = session.sql(statement)
    start = time.perf_counter()
    frame.execution_plan()
    planned = time.perf_counter()
    frame.collect()
    return time.perf_counter() - planned - (planned - start)
