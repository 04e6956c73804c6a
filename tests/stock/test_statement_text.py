"""Statements that read a relation several times are planned by the library; the session gets a table instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext, col, udf

import xql_ffi
from support.sessions import session
from xql_ffi import _native

# Each reads the one before twice: written out, the plan would have 2^30 nodes.
CHAIN = ["c0 AS (SELECT i, tanh(val) AS val FROM w)"] + [
    f"c{n + 1} AS (SELECT a.i, (a.val + b.val) / 2 AS val FROM c{n} a JOIN c{n} b ON a.i = b.i)" for n in range(30)
]
LOSS = f"WITH {', '.join(CHAIN)}, loss AS (SELECT SUM(val * val) AS l FROM c30)"
GRADIENT = f"{LOSS} SELECT i, grad((SELECT l FROM loss), val) AS d FROM w ORDER BY i"
AT = np.array([0.5, -1.0, 2.0])
SLOPE = 2 * np.tanh(AT) * (1 - np.tanh(AT) ** 2)


@pytest.fixture
def ctx() -> SessionContext:
    return session({"w": {"i": [0, 1, 2], "val": AT.tolist()}})


def close(found: list[float], wanted: object) -> None:
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-12)


@pytest.fixture(autouse=True)
def nothing_is_left(ctx: SessionContext) -> object:
    """The session has the tables that it had, and nothing is on its way."""
    before, crossings = set(ctx.catalog().schema().names()), _native.crossings()
    yield
    left = {name for name in set(ctx.catalog().schema().names()) - before if name.startswith("xql_")}
    assert not left
    # A statement of another test that was interrupted may go on being planned.
    assert _native.crossings() <= crossings


def test_the_order_of_the_rows_stays(ctx: SessionContext) -> None:
    found = ctx.sql(GRADIENT.replace("ORDER BY i", "ORDER BY i DESC")).to_pydict()
    assert found["i"] == [2, 1, 0]
    close(found["d"], SLOPE[::-1])


def test_a_frame_that_goes_on(ctx: SessionContext) -> None:
    frame = ctx.sql(GRADIENT)
    assert frame.schema().names == ["i", "d"]
    assert frame.filter(col("i") > 0).select((col("d") * 2).alias("e")).to_pydict()["e"] == pytest.approx(2 * SLOPE[1:])
    assert frame.count() == 3
    assert "xql_statement" not in str(frame.optimized_logical_plan())


def test_statements_around_a_query(ctx: SessionContext, tmp_path: Path) -> None:
    ctx.sql(f"CREATE TABLE made AS {GRADIENT}")
    ctx.sql(f"INSERT INTO made {GRADIENT}").collect()
    close(ctx.sql("SELECT d FROM made ORDER BY i").to_pydict()["d"], np.repeat(SLOPE, 2))
    target = tmp_path / "it's.csv"
    ctx.sql(f"COPY ({GRADIENT}) TO '{str(target).replace(chr(39), 2 * chr(39))}' STORED AS CSV").collect()
    close([float(line.split(",")[1]) for line in target.read_text().split()[1:]], SLOPE)
    shown = ctx.sql(f"EXPLAIN {GRADIENT}").to_pydict()["plan"]
    assert "xql_statement" not in shown[0]
    assert "SharedScanExec" in shown[1]
    (verbose, *_) = ctx.sql(f"EXPLAIN VERBOSE {GRADIENT}").to_pydict()["plan"]
    assert verbose
    assert "metrics" in ctx.sql(f"EXPLAIN ANALYZE {GRADIENT}").to_pydict()["plan"][0]


def test_a_view_of_a_deep_query_and_its_table_beside_it(ctx: SessionContext) -> None:
    ctx.sql(f"CREATE VIEW deep AS {LOSS} SELECT l FROM loss")
    # The table is the same one in the view and beside it.
    found = ctx.sql("SELECT grad((SELECT l FROM deep) + (SELECT SUM(val) FROM w), val) AS d FROM w ORDER BY i")
    close(found.to_pydict()["d"], SLOPE + 1)
    twice = "SELECT grad((SELECT SUM(a.l * b.l) FROM deep a CROSS JOIN deep b), val) AS d FROM w ORDER BY i"
    close(ctx.sql(twice).to_pydict()["d"], 2 * np.sum(np.tanh(AT) ** 2) * SLOPE)
    again = f"{LOSS} SELECT grad((SELECT l FROM loss) * (SELECT l FROM deep), val) AS d FROM w ORDER BY i"
    close(ctx.sql(again).to_pydict()["d"], 2 * np.sum(np.tanh(AT) ** 2) * SLOPE)


def test_a_small_view_keeps_its_text(ctx: SessionContext) -> None:
    ctx.sql("CREATE VIEW small AS SELECT a.i, a.val + b.val AS val FROM w a JOIN w b ON a.i = b.i")
    assert "xql_statement" not in ctx.table("small").logical_plan().display_indent()


def test_a_table_that_is_made_anew(ctx: SessionContext) -> None:
    frame = ctx.sql(GRADIENT)
    ctx.deregister_table("w")
    ctx.from_pydict({"i": [7], "val": [0.25]}, name="w")
    close(frame.to_pydict()["d"], SLOPE)
    close(ctx.sql(GRADIENT).to_pydict()["d"], [2 * np.tanh(0.25) * (1 - np.tanh(0.25) ** 2)])


def test_functions_of_the_session(ctx: SessionContext) -> None:
    """Of the user's own name, in the place of DataFusion's, and an operator with rules of the user's own."""
    double = udf(lambda x: pa.compute.multiply(x, 2.0), [pa.float64()], pa.float64(), "immutable", name="tanh")
    ctx.register_udf(double)
    own = xql_ffi.Rule("tanh(x)", ("2.0",))
    ctx.register_udf(xql_ffi.grad_capsule(rules=[own]))
    close(ctx.sql(GRADIENT).to_pydict()["d"], 8 * AT)


def test_files(ctx: SessionContext, tmp_path: Path) -> None:
    ctx.sql(f"COPY w TO '{tmp_path / 'w.parquet'}'").collect()
    ctx.register_parquet("f", str(tmp_path / "w.parquet"))
    close(ctx.sql(GRADIENT.replace("FROM w", "FROM f")).to_pydict()["d"], SLOPE)


def test_equal_names_of_columns_are_for_the_session(ctx: SessionContext) -> None:
    short = (
        f"WITH {', '.join(CHAIN[:4])} SELECT a.i, b.i, grad(a.val * b.val, a.val) AS d FROM c3 a JOIN c3 b ON a.i = b.i"
    )
    assert ctx.sql(short).schema().names == ["i", "i", "d"]


def test_what_is_wrong_the_session_says(ctx: SessionContext) -> None:
    statement = f"WITH {', '.join(CHAIN[:4])} SELECT grad((SELECT SUM(missing) FROM c3), val) FROM w"
    with pytest.raises(Exception, match="No field named missing"):
        ctx.sql(statement)
    with pytest.raises(Exception, match=r"table 'datafusion\.public\.nowhere' not found"):
        ctx.sql(statement.replace("FROM w", "FROM nowhere"))


def test_values_without_a_table() -> None:
    ctx = session()
    rows = "w AS (SELECT * FROM (VALUES (0, 0.5), (1, -1.0), (2, 2.0)) AS w(i, val))"
    close(ctx.sql(GRADIENT.replace(CHAIN[0], f"{rows}, {CHAIN[0]}")).to_pydict()["d"], SLOPE)


def test_options_of_statements(ctx: SessionContext) -> None:
    """What a session does not let a statement do is refused."""
    from datafusion import SQLOptions

    with pytest.raises(Exception, match="DDL not supported"):
        ctx.sql(f"CREATE TABLE made AS {GRADIENT}", options=SQLOptions().with_allow_ddl(False))
    close(ctx.sql(GRADIENT, options=SQLOptions()).to_pydict()["d"], SLOPE)


def test_a_session_of_its_own_catalog() -> None:
    from datafusion import SessionConfig

    config = SessionConfig().with_default_catalog_and_schema("here", "there")
    ctx = session({"w": {"i": [0, 1, 2], "val": AT.tolist()}}, config=config)
    close(ctx.sql(GRADIENT.replace("FROM w ", "FROM here.there.w ")).to_pydict()["d"], SLOPE)


@pytest.mark.parametrize(
    "statement",
    [
        'SELECT "a.b".i, grad("a.b".val * "a.b".val, "a.b".val) AS d FROM w AS "a.b" ORDER BY "a.b".i',
        'SELECT " b".i, grad(" b".val * " b".val, " b".val) AS d FROM w AS " b" ORDER BY " b".i',
        """WITH "a.b" AS (SELECT SUM(val * val) AS l FROM w)
        SELECT i, grad((SELECT l FROM "a.b"), val) AS d FROM w ORDER BY i""",
        """WITH "a.b" AS (SELECT i, SUM(val * val) AS l FROM w GROUP BY i)
        SELECT w.i, grad("a.b".l, w.val) AS d FROM "a.b" JOIN w ON w.i = "a.b".i ORDER BY w.i""",
        'SELECT q.i, grad("a.b" * "a.b", "a.b") AS d FROM (SELECT i, val AS "a.b" FROM w) AS q ORDER BY i',
        'SELECT i, grad(val * val, val) AS d FROM "w.w" ORDER BY i',
        'SELECT i, grad(l, val) AS d FROM dots ORDER BY i',
    ],
)  # fmt: skip
def test_names_with_a_dot_or_a_space(ctx: SessionContext, statement: str) -> None:
    """As bytes they are other names."""
    ctx.from_pydict({"i": [0, 1, 2], "val": AT.tolist()}, name='"w.w"')
    ctx.sql('CREATE VIEW dots AS SELECT "a.b".i, "a.b".val, grad(val * val * val, val) / 3 AS l FROM w AS "a.b"')
    close(ctx.sql(statement).to_pydict()["d"], 2 * AT)
    ctx.sql("DROP VIEW dots")
