"""The SQL in README and on the pages runs, and gives what the comments beside it say."""

import math
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext, udf

from support import sessions
from support.pages import blocks, is_statement

TABLES: dict[str, dict[str, list[Any]]] = {
    "data": {"x": [0.5, 1.5, -2.0], "y": [1.0, 2.5, 0.25]},
    "parameters": {"w": [0.75], "b": [-0.5]},
    "params": {"w": [0.75], "b": [-0.5]},
    "d": {"x": [0.5, 1.5, -2.0], "y": [1.0, 2.5, 0.25]},
    "t": {"id": [1, 2, 3], "k": [1, 1, 2], "x": [1.0, 2.0, 3.0], "y": [0.5, -0.25, 4.0]},
    "equations": {"a": [2.0, 10.0]},
    "x": {"sample": [1, 1, 2, 2], "inp": [1, 2, 1, 2], "val": [0.5, -1.0, 2.0, 0.25]},
    "w": {"k": [1, 2], "inp": [1, 2], "out": [1, 1], "val": [0.75, -0.5]},
    "v": {"k": [1, 2], "val": [1.0, -2.0]},
    "y": {"sample": [1, 2], "out": [1, 1], "val": [0.5, -0.5]},
    "batches": {"step": [0, 1, 2], "sample": [1, 2, 1]},
    "steps": {"step": [0, 1], "inp": [1, 1], "val": [0.0, 0.5], "m": [0.0, 0.25]},
    "models": {"model": ["slow", "fast"], "rate": [0.1, 2.0]},
    "field": {"cell": [0, 1], "val": [1.0, -0.5]},
    "stencil": {"cell": [0, 0, 1, 1], "neighbour": [0, 1, 1, 0], "weight": [0.9, 0.1, 0.9, 0.1]},
    "observed": {"step": [20, 20], "cell": [0, 1], "val": [0.25, 0.5]},
    "era5": {"time": [0, 1], "latitude": [0.0, 3.0], "longitude": [0.0, 0.0], "t": [290.0, 288.0]},
    "air": {"latitude": [0.0, 3.0, 6.0], "longitude": [0.0, 0.0, 0.0], "t": [290.0, 288.0, 289.0]},
}

ERROR = "an error"

# The comments beside statements, up to a colon, as queries whose rows are the last column of the statement. Those that
# are not here are expressions over the table t.
SAID = {
    "AVG(2 * (pred - y) * x)": "SELECT AVG(2 * (w * x + b - y) * x) FROM d CROSS JOIN params",
    "AVG(2 * x * x)": "SELECT AVG(2 * x * x) FROM d",
    "AVG(2 * (w * x - y) * x)": "SELECT AVG(2 * (w * x - y) * x) FROM d CROSS JOIN params",
    "2 * x / COUNT(x) OVER (PARTITION BY k)": "SELECT 2 * x / COUNT(x) OVER (PARTITION BY k) FROM t",
    "SUM(x) OVER (PARTITION BY cell) / COUNT(*) OVER ()": "SELECT SUM(x) OVER () / COUNT(*) OVER () FROM d",
    "0 in every row": "SELECT 0.0 FROM t",
    "0.5": "SELECT 0.5",
    "2 in every row": "SELECT 2.0 FROM w",
    "12 in every row": "SELECT 12.0 FROM w",
    "0 in the rows that are left": "SELECT 0.0 FROM t WHERE x > y",
    "the rows whose x is above 1.5": "SELECT x FROM t WHERE x > 1.5",
    "1.414213562373095": "SELECT sqrt(2)",
    "2 * s": "SELECT 2 * (x + y) FROM t",
    "0": "SELECT CASE WHEN id > 1 THEN 0.0 END FROM t",
    "p * (1 - p)": "SELECT p * (1 - p) FROM (SELECT exp(x) / SUM(exp(x)) OVER () AS p FROM t)",
    "1 / (3 * x * x + 1)": "SELECT 1 / (3 * x * x + 1) FROM (VALUES (1.0), (2.0)) AS root(x)",
    "6 * w.val * v.val": "SELECT 6 * w.val * v.val FROM w JOIN v ON w.k = v.k",
    "twice the val": "SELECT 2 * val FROM w",
    "what x gains by a": "SELECT power(1 + 0.1 * a, 9) FROM equations",
    "2 * (pred - y)": "SELECT 2 * (w * x - y) FROM d CROSS JOIN params",
    "2 * (pred - y) * x": "SELECT 2 * (w * x - y) * x FROM d CROSS JOIN params",
}


def statements() -> Iterator[tuple[str, str, str]]:
    """The statements, each with its place and the comment at its end."""
    for block in filter(is_statement, blocks("sql")):
        tables = ""
        # A statement ends with a comment or with its block; several may follow one WITH.
        for statement, said in re.findall(r"(.+?)(?:\s+-- ([^\n]*)\n|\Z)", block.text, re.DOTALL):
            if not statement.strip():
                continue
            if statement.startswith("WITH"):
                tables = statement.rpartition("\nSELECT")[0]
            elif tables:
                statement = f"{tables}\n{statement}"
            yield str(block), statement, said.partition(":")[0].strip()


CASES = [pytest.param(statement, said, id=f"{place} {said}") for place, statement, said in statements()]


def test_no_comment_is_left_over() -> None:
    assert {case.values[1] for case in CASES} >= {ERROR, *SAID}


@pytest.fixture(scope="module")
def session() -> SessionContext:
    ctx = sessions.session(TABLES)
    ctx.register_udf(udf(lambda x: x, [pa.float64()], pa.float64(), "volatile", "dice"))
    return ctx


def last_column(session: SessionContext, statement: str) -> list[float]:
    *_, column = session.sql(statement).to_pydict().values()
    assert column, "it has no rows"
    return sorted((math.nan if value is None else value for value in column), key=str)


@pytest.mark.parametrize(("statement", "said"), CASES)
def test_statement(statement: str, said: str, session: SessionContext) -> None:
    if said == ERROR:
        with pytest.raises(Exception, match="grad"):
            session.sql(statement).collect()
        return
    if statement.startswith("EXPLAIN"):
        assert "grad" not in session.sql(statement).to_pydict()["plan"][0]
        return
    found = last_column(session, statement)
    if said:
        expected = last_column(session, SAID.get(said, f"SELECT {said} FROM t"))
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)
