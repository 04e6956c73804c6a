"""Views of a session, each of which holds the tables that had their names when it was made."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from datafusion import SessionContext

import xql_ffi

ANEW = "Make the view anew, by CREATE OR REPLACE VIEW"
VIEWS = {
    "v": "SELECT val FROM t",
    "squares": "SELECT val, val * val AS sq FROM t",
    "doubled": "SELECT 2 * val AS d FROM t",
    "over": "SELECT SUM(sq) AS s FROM squares WHERE val < (SELECT 9 * MAX(val) FROM t)",
}


def table(ctx: SessionContext, *values: float) -> None:
    ctx.sql(f"CREATE OR REPLACE TABLE t (val DOUBLE) AS VALUES {', '.join(f'({value:.1f})' for value in values)}")


@pytest.fixture
def ctx() -> SessionContext:
    """Views over a table of 1 and 2, in the place of which is one of 10, 20 and 30."""
    ctx = SessionContext()
    table(ctx, 1, 2)
    for name, query in VIEWS.items():
        ctx.sql(f"CREATE VIEW {name} AS {query}")
    table(ctx, 10, 20, 30)
    return ctx


def rows(ctx: SessionContext, statement: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in xql_ffi.sql(ctx, statement).to_pylist())


def test_a_view_beside_a_call(ctx: SessionContext) -> None:
    statement = "SELECT (SELECT SUM(val) FROM v) AS v, grad((SELECT SUM(val * val) FROM t), val) AS g FROM t"
    assert rows(ctx, statement) == [(3.0, 2 * val) for val in (10.0, 20.0, 30.0)]
    assert rows(ctx, statement.replace("FROM v", "FROM over").replace("SUM(val)", "SUM(s)")) == [
        (5.0, 2 * val) for val in (10.0, 20.0, 30.0)
    ]


@pytest.mark.parametrize("value", ["SUM(sq) FROM squares", "SUM(val * val) FROM v", "s FROM over"])
def test_a_view_that_does_not_read_the_variable(ctx: SessionContext, value: str) -> None:
    statement = f"SELECT (SELECT {value}) AS value, grad((SELECT {value}) * (SELECT SUM(val) FROM t), val) AS g FROM t"
    assert rows(ctx, statement) == [(5.0, 5.0)] * 3
    assert rows(ctx, f"SELECT grad((SELECT {value}), val) AS g FROM t") == [(0.0,)] * 3


def test_the_rows_of_a_view(ctx: SessionContext) -> None:
    """What the view computes is a variable of its own, of which the text reads the view by its name."""
    assert rows(ctx, "SELECT d, grad((SELECT SUM(d * d) FROM doubled), d) AS g FROM doubled") == [
        (2.0, 4.0),
        (4.0, 8.0),
    ]
    above = "WITH m AS (SELECT val, SUM(val) OVER () AS s FROM v) SELECT grad(s * s, val) AS g FROM m"
    assert rows(ctx, above) == [(6.0,), (6.0,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT grad(sq * sq, val) AS g FROM squares",
        "SELECT grad((SELECT SUM(val * val) FROM v), val) AS g FROM v",
        # Both views read the table that there was.
        "SELECT grad((SELECT SUM(sq) FROM squares), val) AS g FROM v",
    ],
)
def test_through_a_view(ctx: SessionContext, statement: str) -> None:
    """No name is left for the table below."""
    with pytest.raises(ValueError, match=ANEW):
        xql_ffi.expand_sql(statement, ctx)
    for name, query in VIEWS.items():
        ctx.sql(f"CREATE OR REPLACE VIEW {name} AS {query}")
    assert "FROM t" in xql_ffi.expand_sql(statement, ctx)


def test_a_view_of_a_view_that_was_replaced(ctx: SessionContext) -> None:
    ctx.sql("CREATE OR REPLACE VIEW squares AS SELECT val, val + 1 AS sq FROM t")
    beside = "SELECT (SELECT s FROM over) AS s, grad((SELECT SUM(val * val) FROM t), val) AS g FROM t"
    with pytest.raises(ValueError, match="its query would give another one now"):
        xql_ffi.expand_sql(beside, ctx)
    assert rows(ctx, "SELECT SUM(grad(sq, val)) AS g FROM squares") == [(3.0,)]


def test_a_view_of_equal_text_over_the_other_table(ctx: SessionContext) -> None:
    ctx.sql(f"CREATE OR REPLACE VIEW squares AS {VIEWS['squares']}")
    with pytest.raises(ValueError, match="its query would give another one now"):
        xql_ffi.expand_sql("SELECT (SELECT s FROM over), grad((SELECT SUM(val * val) FROM t), val) AS g FROM t", ctx)


def test_tables_that_stay(ctx: SessionContext) -> None:
    """Only one of two tables has been replaced, and rows that were added are those of the view as well."""
    ctx.sql("CREATE TABLE u (val DOUBLE) AS VALUES (3.0)")
    ctx.sql("CREATE VIEW both AS SELECT SUM(t.val * u.val) AS s FROM t CROSS JOIN u")
    statement = "SELECT val, grad((SELECT s FROM both), val) AS g FROM u"
    assert rows(ctx, statement) == [(3.0, 60.0)]
    ctx.sql("INSERT INTO u VALUES (4.0)").collect()
    assert rows(ctx, statement) == [(3.0, 60.0), (4.0, 60.0)]
    table(ctx, 1)
    with pytest.raises(ValueError, match=ANEW):
        xql_ffi.expand_sql(statement, ctx)
    assert rows(ctx, "SELECT grad((SELECT s FROM both) * val, val) AS g FROM t") == [(420.0,)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = []
    for number, values in enumerate(([1.0, 2.0], [10.0, 20.0])):
        paths.append(str(tmp_path / f"{number}.parquet"))
        pa.parquet.write_table(pa.table({"val": values}), paths[-1])
    return paths[0], paths[1]


def test_files(files: tuple[str, str]) -> None:
    ctx = SessionContext()
    ctx.register_parquet("t", files[0])
    ctx.sql("CREATE VIEW v AS SELECT val, val * val AS sq FROM t")
    through = "SELECT grad(sq * sq, val) AS g FROM v"
    assert rows(ctx, through) == [(4.0,), (32.0,)]
    ctx.deregister_table("t")
    ctx.register_parquet("t", files[1])
    assert rows(ctx, "SELECT grad((SELECT SUM(sq) FROM v) * val, val) AS g FROM t") == [(5.0,), (5.0,)]
    with pytest.raises(ValueError, match=ANEW):
        xql_ffi.expand_sql(through, ctx)


def test_a_table_of_which_nothing_is_known(files: tuple[str, str]) -> None:
    ctx = SessionContext()
    ctx.register_dataset("t", pa.dataset.dataset(files[0]))
    ctx.sql("CREATE VIEW v AS SELECT val, val * val AS sq FROM t")
    beside = "SELECT (SELECT SUM(sq) FROM v) AS s, grad((SELECT SUM(val * val) FROM t), val) AS g FROM t"
    assert rows(ctx, beside) == [(5.0, 2.0), (5.0, 4.0)]
    with pytest.raises(ValueError, match="Write the query of the view in its place"):
        xql_ffi.expand_sql("SELECT grad(sq * sq, val) AS g FROM v", ctx)
    with pytest.raises(ValueError, match="read it without the view"):
        xql_ffi.expand_sql("SELECT grad((SELECT SUM(sq) FROM v), val) AS g FROM t", ctx)


def test_a_table_that_is_replaced_in_a_script() -> None:
    script = """CREATE TABLE t (val DOUBLE) AS VALUES (1.0), (2.0);
        CREATE VIEW v AS SELECT val * val AS sq FROM t;
        CREATE OR REPLACE TABLE t (val DOUBLE) AS VALUES (10.0), (20.0);
        SELECT (SELECT SUM(sq) FROM v) AS s, grad((SELECT SUM(val * val) FROM t), val) AS g FROM t"""
    ctx = SessionContext()
    *made, last = xql_ffi.expand_sql(script, {}).split(";")
    for statement in made:
        ctx.sql(statement)
    assert sorted(ctx.sql(last).to_pydict().items()) == [("g", [20.0, 40.0]), ("s", [5.0, 5.0])]
    through = script.rpartition(";")[0] + "; SELECT grad((SELECT SUM(sq * sq) FROM v), sq) AS g FROM v"
    assert sorted(ctx.sql(xql_ffi.expand_sql(through, {}).rpartition(";")[2]).to_pydict()["g"]) == [2.0, 8.0]
    with pytest.raises(ValueError, match=ANEW):
        xql_ffi.expand_sql(through.replace("AS sq", "AS sq, val").replace("FROM v), sq)", "FROM v), val)"), {})


def test_a_view_that_names_its_columns() -> None:
    ctx = SessionContext()
    ctx.sql("CREATE TABLE t (x DOUBLE, y DOUBLE) AS VALUES (2.0, 5.0)")
    ctx.sql("CREATE VIEW swapped (y, x) AS SELECT x, y FROM t")
    assert rows(ctx, "WITH m AS (SELECT x, x * x AS s FROM swapped) SELECT x, grad(s, x) AS g FROM m") == [(5.0, 10.0)]
