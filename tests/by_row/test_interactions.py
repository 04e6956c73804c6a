"""Gradients by row among names, positions, sessions and rows that get in each other's way."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

from support import sessions
from support.cases import query
from support.errors import message_at_planning
from support.stock import ON_STOCK

Register = Callable[[SessionContext], SessionContext]

VALUES = {1: 0.5, 2: -0.75, 3: 1.25, 4: 2.0}
SUM = "(SELECT SUM(val * val) FROM w)"
SQUARES = {key: 2 * value for key, value in VALUES.items()}


TABLES = {"w": {"k": list(VALUES), "val": list(VALUES.values())}}


def by_key(session: SessionContext, statement: str) -> dict[Any, Any]:
    """The second column by the first, and every row once."""
    table = query(session, statement)
    keys, values = table.column(0).to_pylist(), table.column(1).to_pylist()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, values, strict=True))


def assert_values(found: dict[Any, Any], expected: dict[int, float]) -> None:
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), rtol=1e-12)


# Names


@pytest.mark.parametrize(
    "name",
    ["row", "cotangent", "value", "rows", "∂row", "∂rows", "∂cotangent", "number", "low", "ties", "the value", "Val"],
)
def test_columns_called_as_ours(session: SessionContext, name: str) -> None:
    """A column by which is differentiated, and one beside it, under names that derivatives use themselves."""
    values = list(VALUES.values())
    session.from_pydict({"k": list(VALUES), name: values, "other": [1.0, 2.0, 3.0, 4.0]}, name="t")
    statement = f'SELECT k, grad((SELECT SUM("{name}" * "{name}") FROM t), "{name}") AS d FROM t'
    assert_values(by_key(session, statement), SQUARES)
    session.from_pydict({"k": list(VALUES), "val": values, name: [1.0, 2.0, 3.0, 4.0]}, name="u")
    statement = f'SELECT k, "{name}" * grad((SELECT SUM(val * "{name}") FROM u), val) AS d FROM u'
    assert_values(by_key(session, statement), {1: 1.0, 2: 4.0, 3: 9.0, 4: 16.0})
    window = f"""(SELECT SUM(v * "{name}") FROM
        (SELECT SUM(val) OVER (ORDER BY "{name}") AS v, "{name}" FROM (SELECT k, val, "{name}" FROM u) AS a) AS b)"""
    statement = f'SELECT k, grad({window}, val) AS d FROM (SELECT k, val, "{name}" FROM u) AS c'
    assert_values(by_key(session, statement), {1: 10.0, 2: 9.0, 3: 7.0, 4: 4.0})


@pytest.mark.parametrize("table", ["rows", "∂rows", "cotangents", "groups", "∂groups", "constants", "My Table"])
def test_tables_called_as_ours(session: SessionContext, table: str) -> None:
    session.from_pydict({"k": list(VALUES), "val": list(VALUES.values())}, name=f'"{table}"')
    loss = f'(SELECT SUM(s * s) FROM (SELECT k, SUM(val) AS s FROM "{table}" GROUP BY k) AS q)'
    assert_values(by_key(session, f'SELECT k, grad({loss}, val) AS d FROM "{table}"'), SQUARES)


def test_shadowed_names(session: SessionContext) -> None:
    """A CTE under the name of a table hides it; what it is computed from is the table."""
    shadow = "WITH w AS (SELECT k, 3 * val AS val FROM w)"
    assert_values(
        by_key(session, f"{shadow} SELECT k, grad({SUM}, val) AS d FROM w"), {k: 6 * v for k, v in VALUES.items()}
    )
    inner = "(WITH w AS (SELECT k, 3 * val AS val FROM w) SELECT SUM(val * val) FROM w)"
    assert_values(by_key(session, f"SELECT k, grad({inner}, val) AS d FROM w"), {k: 18 * v for k, v in VALUES.items()})
    outer = f"{shadow} SELECT k, grad((SELECT SUM(val * val) FROM public.w), val) AS d FROM public.w"
    assert_values(by_key(session, outer), SQUARES)


def test_qualified_and_quoted_names(session: SessionContext) -> None:
    query(session, "CREATE SCHEMA other")
    query(session, "CREATE TABLE other.w AS SELECT k, 10 * val AS val FROM w")
    for table in ("w", "public.w", "datafusion.public.w", '"w"', '"public"."w"'):
        statement = f"SELECT k, grad({SUM}, x.val) AS d FROM {table} AS x"
        assert_values(by_key(session, statement), SQUARES)
        statement = f"SELECT k, grad((SELECT SUM(val * val) FROM {table}), val) AS d FROM w"
        assert_values(by_key(session, statement), SQUARES)
    statement = "SELECT k, grad((SELECT SUM(val * val) FROM other.w), val) AS d FROM other.w"
    assert_values(by_key(session, statement), {k: 20 * v for k, v in VALUES.items()})
    both = "(SELECT SUM(a.val * b.val) FROM w AS a JOIN other.w AS b ON a.k = b.k)"
    assert_values(by_key(session, f"SELECT k, grad({both}, val) AS d FROM w"), {k: 10 * v for k, v in VALUES.items()})
    assert_values(by_key(session, f"SELECT k, grad({both}, val) AS d FROM other.w"), VALUES)


def test_views_on_views(session: SessionContext) -> None:
    query(session, "CREATE VIEW v1 AS SELECT k, val FROM w WHERE k <> 2")
    query(session, "CREATE VIEW v2 AS SELECT k AS key, val AS number FROM v1")
    query(session, "CREATE VIEW loss AS SELECT SUM(number * number) + MAX(number) AS l FROM v2")
    expected = {1: 1.0, 2: 0.0, 3: 2.5, 4: 5.0}
    # The column originates in the table, so that all of its rows have a derivative.
    assert_values(by_key(session, "SELECT k, grad((SELECT l FROM loss), val) AS d FROM w"), expected)
    shown = {1: 1.0, 3: 2.5, 4: 5.0}
    assert_values(by_key(session, "SELECT key, grad((SELECT l FROM loss), number) AS d FROM v2"), shown)
    query(session, "CREATE VIEW gradient AS SELECT key, grad((SELECT l FROM loss), number) AS d FROM v2")
    assert_values(by_key(session, "SELECT * FROM gradient"), shown)


def test_one_table_under_two_aliases(session: SessionContext) -> None:
    loss = "(SELECT SUM(a.val * b.val) FROM w AS a JOIN w AS b ON a.k < b.k)"
    total = sum(VALUES.values())
    expected = {k: total - v for k, v in VALUES.items()}
    assert_values(by_key(session, f"SELECT k, grad({loss}, val) AS d FROM w"), expected)
    assert_values(by_key(session, f"SELECT a.k, grad({loss}, a.val) AS d FROM w AS a"), expected)


def test_alias_through_two_ctes(session: SessionContext) -> None:
    ctes = "WITH a AS (SELECT k, val AS x FROM w), b AS (SELECT k AS n, x AS y FROM a)"
    for loss in ("SELECT SUM(y * y) FROM b", "SELECT SUM(x * x) FROM a", "SELECT SUM(val * val) FROM w"):
        for column, table in (("n, grad(({}), y)", "b"), ("k, grad(({}), x)", "a"), ("k, grad(({}), val)", "w")):
            assert_values(by_key(session, f"{ctes} SELECT {column.format(loss)} AS d FROM {table}"), SQUARES)


def test_columns_of_one_relation_that_originate_in_different_places(session: SessionContext) -> None:
    """One column is passed on, the other computed; and one that is passed on twice."""
    ctes = "WITH c AS (SELECT k, val, k * 0.5 AS other FROM w)"
    loss = "(SELECT SUM(val * val * other) FROM c)"
    for order in ((0, 1), (1, 0)):
        calls = [f"grad({loss}, val) AS d", f"grad({loss}, other) AS o"]
        table = query(session, f"{ctes} SELECT k, {calls[order[0]]}, {calls[order[1]]} FROM c")
        for row in table.to_pylist():
            assert row["d"] == pytest.approx(VALUES[row["k"]] * row["k"], rel=1e-14)
            assert row["o"] == pytest.approx(VALUES[row["k"]] ** 2, rel=1e-14)
    ctes = "WITH c AS (SELECT k, val, val AS again FROM w)"
    loss = "(SELECT SUM(val * again * again) FROM c)"
    for column in ("val", "again"):
        found = by_key(session, f"{ctes} SELECT k, grad({loss}, {column}) AS d FROM c")
        # Both are the one column of the table.
        assert_values(found, {k: 3 * v * v for k, v in VALUES.items()})


def test_a_column_that_is_passed_on_and_computed_from(session: SessionContext) -> None:
    ctes = "WITH c AS (SELECT k, val, val * val AS square FROM w)"
    loss = "(SELECT SUM(val * square) FROM c)"
    found = by_key(session, f"{ctes} SELECT k, grad({loss}, val) AS d FROM c")
    assert_values(found, {k: 3 * v * v for k, v in VALUES.items()})
    found = by_key(session, f"{ctes} SELECT k, grad({loss}, square) AS d FROM c")
    assert_values(found, VALUES)


def test_a_whole_number_that_a_cte_converts(session: SessionContext) -> None:
    """Its cells are those of the CTE: the column of the table is no float."""
    converted = "WITH c AS (SELECT k, CAST(k AS DOUBLE) AS i, val FROM w)"
    statement = f"{converted} SELECT k, grad((SELECT SUM(i * i * val) FROM c), i) AS d FROM c"
    assert_values(by_key(session, statement), {k: 2 * k * value for k, value in VALUES.items()})


def test_cells_that_a_cte_repeats(session: SessionContext) -> None:
    """A CTE that repeats rows of a table shows the derivative of the cell in each."""
    ctes = "WITH r AS (SELECT w.k, n.n, w.val FROM w CROSS JOIN (VALUES (1), (2), (3)) AS n(n))"
    table = query(session, f"{ctes} SELECT k, n, grad((SELECT SUM(val * n) FROM r), val) AS d FROM r")
    assert table.num_rows == 12
    assert set(table["d"].to_pylist()) == {6.0}


# Statements


def test_prepared_statement_reads_new_data(session: SessionContext) -> None:
    query(session, "CREATE TABLE p (k BIGINT, val DOUBLE)")
    query(session, "INSERT INTO p SELECT k, val FROM w WHERE k < 3")
    query(session, "PREPARE g AS SELECT k, grad((SELECT SUM(val * val) / COUNT(*) FROM p), val) AS d FROM p")
    assert_values(by_key(session, "EXECUTE g"), {1: 0.5, 2: -0.75})
    query(session, "INSERT INTO p SELECT k, val FROM w WHERE k > 2")
    assert_values(by_key(session, "EXECUTE g"), {k: v / 2 for k, v in VALUES.items()})
    assert_values(by_key(session, "EXECUTE g"), {k: v / 2 for k, v in VALUES.items()})


def test_prepared_statement_reads_new_data_while_a_stream_has_the_old(register: Register) -> None:
    # With one partition nothing runs ahead of the stream.
    session = register(SessionContext(SessionConfig().with_target_partitions(1)))
    session.from_pydict({"k": list(VALUES), "val": list(VALUES.values())}, name="w")
    session.sql("CREATE TABLE stored AS SELECT * FROM w").collect()
    statement = "SELECT k, grad((SELECT SUM(val) * SUM(val) FROM stored), val) AS d FROM stored ORDER BY k"
    session.sql(f"PREPARE gradients AS {statement}").collect()
    stream = session.sql("EXECUTE gradients").execute_stream()
    session.sql("INSERT INTO stored VALUES (5, 4.0)").collect()
    assert_values(by_key(session, "EXECUTE gradients"), dict.fromkeys([*VALUES, 5], 2 * (sum(VALUES.values()) + 4)))
    old = pa.Table.from_batches([batch.to_pyarrow() for batch in stream])
    assert old["d"].to_pylist() == [2 * sum(VALUES.values())] * len(VALUES)


def test_prepared_statement_with_a_parameter(session: SessionContext) -> None:
    query(session, "PREPARE g(DOUBLE) AS SELECT k, grad((SELECT SUM(val * val * $1) FROM w), val) AS d FROM w")
    for factor in (1.0, 2.5):
        found = by_key(session, f"EXECUTE g({factor})")
        assert_values(found, {k: factor * d for k, d in SQUARES.items()})


def test_prepared_statement_in_single_precision(session: SessionContext) -> None:
    query(session, "CREATE TABLE f (id BIGINT NOT NULL, s REAL NOT NULL)")
    query(session, "INSERT INTO f VALUES (1, 0.625), (3, -1.3125), (4, 0.8125)")
    value = """(SELECT CASE WHEN b IS NOT NULL THEN a END FROM (SELECT MAX(s) AS a,
        CORR(greatest(-s, s + 0.0417), s) AS b FROM f WHERE id < 4) AS q)"""
    query(session, f"PREPARE g AS SELECT id, grad({value}, s) AS d FROM f")
    assert_values(by_key(session, "EXECUTE g"), {1: 1.0, 3: 0.0, 4: 0.0})


def test_single_beside_double_precision(session: SessionContext) -> None:
    """Of a maximum in single precision, derivatives along a column in single and one in double precision."""
    query(session, "CREATE TABLE f (id BIGINT NOT NULL, s REAL NOT NULL, d DOUBLE NOT NULL)")
    query(session, "INSERT INTO f VALUES (1, 0.625, 3.0), (3, -1.3125, 2.0)")
    value = "(SELECT MAX(s) FROM f)"
    statement = f"SELECT jvp({value}, s, 0.75) AS s, jvp({value}, d, 0.75) AS d FROM f"
    assert query(session, statement).to_pylist() == [{"s": 0.75, "d": 0.0}] * 2


def test_statements_that_store(session: SessionContext) -> None:
    call = f"SELECT k, val - 0.1 * grad({SUM}, val) AS val FROM w"
    expected = {k: 0.8 * v for k, v in VALUES.items()}
    query(session, f"CREATE TABLE stepped AS {call}")
    assert_values(by_key(session, "SELECT * FROM stepped"), expected)
    query(session, f"INSERT INTO stepped {call.replace('SELECT k', 'SELECT k + 10')}")
    assert query(session, "SELECT COUNT(*) AS n FROM stepped").to_pylist() == [{"n": 8}]
    query(
        session,
        f"CREATE OR REPLACE TABLE stepped AS {call.replace('w)', 'stepped)').replace('FROM w', 'FROM stepped')}",
    )
    found = by_key(session, "SELECT k, val FROM stepped")
    assert_values(
        found, {**{k: 0.8 * v for k, v in expected.items()}, **{k + 10: 0.8 * v for k, v in expected.items()}}
    )


def test_explain_shows_no_call(session: SessionContext) -> None:
    for statement in (
        f"SELECT k, grad({SUM}, val) AS d FROM w",
        f"SELECT SUM(d * val) FROM (SELECT val, grad({SUM}, val) AS d FROM w) AS q",
        "SELECT k, grad((SELECT SUM(s) FROM (SELECT SUM(val) OVER (ORDER BY k) AS s FROM w) AS q), val) AS d FROM w",
    ):
        for explain in ("EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE"):
            rows = query(session, f"{explain} {statement}").to_pylist()
            plans = [row["plan"] for row in rows if row["plan_type"] in ("physical_plan", "Plan with Metrics")]
            assert plans
            for plan in plans:
                assert not re.search(r"\b(grad|jvp|vjp)\((?!.*as )", plan)


# Execution


def test_one_dataframe_from_several_threads(session: SessionContext) -> None:
    """Executions of one DataFrame at the same time have nothing in common."""
    text = "(SELECT SUM(s * s) FROM (SELECT k, SUM(val) OVER (ORDER BY k) AS s FROM w) AS q)"
    frame = session.sql(f"SELECT k, grad({text}, val) AS d FROM w")
    expected = sorted(frame.to_pylist(), key=lambda row: row["k"])
    start = threading.Barrier(8)

    def run(_: int) -> list[list[dict[str, float]]]:
        start.wait()
        return [sorted(frame.to_pylist(), key=lambda row: row["k"]) for _ in range(5)]

    with ThreadPoolExecutor(8) as threads:
        for results in threads.map(run, range(8)):
            assert all(result == expected for result in results)


def test_statements_of_one_session_from_several_threads(session: SessionContext) -> None:
    def run(number: int) -> dict[Any, Any]:
        return by_key(session, f"SELECT k, grad((SELECT SUM(val * val * {number}) FROM w), val) AS d FROM w")

    with ThreadPoolExecutor(8) as threads:
        for number, found in enumerate(threads.map(run, range(40))):
            assert_values(found, {k: number * d for k, d in SQUARES.items()})


def test_a_statement_that_is_not_read_to_its_end(register: Register) -> None:
    """What it has reserved is there for others once it is dropped."""
    size = 200_000
    values = np.sin(np.arange(size))
    batches = [
        pa.RecordBatch.from_pydict(
            {"k": np.arange(start, start + 10_000), "val": values[start : start + 10_000].copy()}
        )
        for start in range(0, size, 10_000)
    ]
    # Enough for one statement, not for two.
    runtime = RuntimeEnvBuilder().with_greedy_memory_pool(40_000_000)
    session = register(SessionContext(SessionConfig().with_target_partitions(2), runtime))
    session.register_record_batches("big", [batches])
    statement = "SELECT k, grad((SELECT SUM(val * val) FROM big), val) AS d FROM big"
    for _ in range(12):
        stream = session.sql(statement).execute_stream()
        assert next(iter(stream)) is not None
        del stream
    total = query(session, f"SELECT SUM(abs(d)) AS d FROM ({statement}) AS q").to_pylist()
    assert total[0]["d"] == pytest.approx(2 * np.abs(values).sum(), rel=1e-9)


def test_slices_of_a_table_take_the_memory_of_the_table(register: Register) -> None:
    size = 200_000
    table = pa.table({"k": np.arange(size), "val": np.sin(np.arange(size))})
    session = register(SessionContext(SessionConfig(), RuntimeEnvBuilder().with_greedy_memory_pool(40_000_000)))
    session.register_record_batches("big", [table.to_batches(max_chunksize=1024)])
    (row,) = query(session, "SELECT SUM(grad((SELECT SUM(val) FROM big), val)) AS d FROM big").to_pylist()
    assert row["d"] == size


@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
@pytest.mark.parametrize("batch", [1, 2, 8192])
def test_partitions_and_batches(register: Register, partitions: int, batch: int) -> None:
    session = register(SessionContext(SessionConfig().with_target_partitions(partitions).with_batch_size(batch)))
    size = 40
    values = np.round(np.sin(np.arange(size)), 3)
    table = pa.table({"k": list(range(size)), "g": [n % 7 for n in range(size)], "val": values})
    session.register_record_batches("w", [part.to_batches() for part in (table[:11], table[11:12], table[12:])])
    loss = """(SELECT SUM(a.s * b.s) + MAX(c.r) FROM (SELECT g, tanh(SUM(val)) AS s FROM w GROUP BY g) AS a
        JOIN (SELECT g, AVG(val * val) AS s FROM w GROUP BY g) AS b ON a.g = b.g
        JOIN (SELECT g, SUM(val) OVER (PARTITION BY g ORDER BY k) AS r FROM w) AS c ON a.g = c.g)"""
    plain = register(SessionContext(SessionConfig().with_target_partitions(1)))
    plain.register_record_batches("w", [table.to_batches()])
    statement = f"SELECT k, grad({loss}, val) AS d FROM w"
    found, expected = by_key(session, statement), by_key(plain, statement)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose(
        [found[k] for k in range(size)], [expected[k] for k in range(size)], rtol=1e-10, atol=1e-12
    )


# Rows


def test_no_rows_and_one_row(session: SessionContext) -> None:
    query(session, "CREATE TABLE none (k BIGINT, val DOUBLE)")
    for loss in ("SUM(val * val)", "COUNT(val) * 1.0", "MAX(val)", "AVG(val) + 1", "STDDEV(val)"):
        assert query(session, f"SELECT k, grad((SELECT {loss} FROM none), val) AS d FROM none").num_rows == 0
    query(session, "CREATE TABLE one AS SELECT CAST(1 AS BIGINT) AS k, CAST(3 AS DOUBLE) AS val")
    for loss, expected in {
        "SUM(val * val)": 6.0, "COUNT(val) * 1.0": 0.0, "MAX(val) * val": None, "AVG(val) + 1": 1.0,
        "VAR_POP(val)": 0.0, "MIN(val)": 1.0, "STDDEV(val)": None,
    }.items():  # fmt: skip
        if loss == "MAX(val) * val":
            continue
        assert by_key(session, f"SELECT k, grad((SELECT {loss} FROM one), val) AS d FROM one") == {1: expected}


def test_nothing_but_null(session: SessionContext) -> None:
    query(session, "CREATE TABLE n AS SELECT k, CAST(NULL AS DOUBLE) AS val FROM w")
    for loss in ("SUM(val)", "COUNT(val) * 1.0", "SUM(coalesce(val, 1.0))", "MAX(val)"):
        found = by_key(session, f"SELECT k, grad((SELECT {loss} FROM n), val) AS d FROM n")
        assert found == dict.fromkeys(VALUES)


def test_keys_that_are_null(session: SessionContext) -> None:
    """A row whose key is NULL is in no pair, whatever the groups above the join are."""
    session.from_pydict({"k": [1, 2, 3, 4], "j": [1, None, 3, 1], "val": [1.0, 2.0, 3.0, 4.0]}, name="e")
    for grouped in ("SELECT SUM(a.val) AS s FROM {}", "SELECT a.k % 2 AS g, SUM(a.val) AS s FROM {} GROUP BY a.k % 2"):
        pairs = grouped.format("e AS a JOIN e AS b ON a.j = b.j")
        found = by_key(session, f"SELECT k, grad((SELECT SUM(s) FROM ({pairs}) AS q), val) AS d FROM e")
        assert_values(found, {1: 2.0, 2: 0.0, 3: 1.0, 4: 2.0})
    top = "(SELECT MAX(a.val * b.val) FROM e AS a JOIN e AS b ON a.j = b.j WHERE a.k <> b.k)"
    assert_values(by_key(session, f"SELECT k, grad({top}, val) AS d FROM e"), {1: 4.0, 2: 0.0, 3: 0.0, 4: 1.0})


def test_ties_under_keys_that_are_null(session: SessionContext) -> None:
    session.from_pydict({"k": [1, 2, 3, 4], "g": [1, None, None, 2], "val": [1.0, 3.0, 3.0, 5.0]}, name="keyed")
    greatest = "(SELECT SUM(m * m) FROM (SELECT g, MAX(val) AS m FROM keyed GROUP BY g) AS q)"
    found = by_key(session, f"SELECT k, grad({greatest}, val) AS d FROM keyed")
    assert_values(found, {1: 2.0, 2: 3.0, 3: 3.0, 4: 10.0})


def test_references_of_which_one_is_missing(session: SessionContext) -> None:
    """Where an outer join finds no partner the value is NULL, and neither reference contributes."""
    session.from_pydict({"x": [1.0, 5.0]}, name="a")
    value = "(SELECT SUM(r.x * 2 + q.x * q.x * 3) FROM a AS r LEFT JOIN a AS q ON r.x < q.x)"
    assert_values(by_key(session, f"SELECT x, grad({value}, x) AS d FROM a"), {1: 2.0, 5: 30.0})


def test_grouping_sets(session: SessionContext) -> None:
    """Each row is in its own group and in that of all."""
    groups = "SELECT k % 2 AS g, SUM(val) AS s FROM w GROUP BY {}"
    sums = {0: VALUES[2] + VALUES[4], 1: VALUES[1] + VALUES[3]}
    expected = {k: 2 * sums[k % 2] + 2 * sum(VALUES.values()) for k in VALUES}
    for sets in ("ROLLUP (k % 2)", "CUBE (k % 2)", "GROUPING SETS ((k % 2), ())"):
        loss = f"(SELECT SUM(s * s) FROM ({groups.format(sets)}) AS q)"
        assert_values(by_key(session, f"SELECT k, grad({loss}, val) AS d FROM w"), expected)


@pytest.mark.parametrize("key", ["k % 2", "val"])
def test_the_number_of_a_grouping_set(session: SessionContext, key: str) -> None:
    rows = f"SELECT {key} AS g, val FROM w"
    groups = f"SELECT g, grouping(g) AS n, SUM(val) AS s FROM ({rows}) AS a GROUP BY ROLLUP (g)"
    loss = f"(SELECT SUM(s * (n + 1)) FROM ({groups}) AS q)"
    assert_values(by_key(session, f"SELECT k, grad({loss}, val) AS d FROM w"), dict.fromkeys(VALUES, 3.0))


def test_the_number_of_a_grouping_set_in_a_prepared_statement(session: SessionContext) -> None:
    groups = "SELECT k, grouping(k) AS n, SUM(val) AS s FROM w GROUP BY ROLLUP (k)"
    loss = f"(SELECT SUM(s * (n + 1)) FROM ({groups}) AS q)"
    query(session, f"PREPARE g AS SELECT k, grad({loss}, val) AS d FROM w")
    assert_values(by_key(session, "EXECUTE g"), dict.fromkeys(VALUES, 3.0))


def test_groups_whose_aggregate_is_null(session: SessionContext) -> None:
    """What is NULL takes no part, whatever its derivative would be."""
    groups = "SELECT k, REGR_SLOPE(val, val) AS a, STDDEV(val) AS b, SUM(val) AS s FROM w GROUP BY k"
    for loss in ("SUM(s * s)", "SUM(s * s + coalesce(a, 0.0))", "SUM(s * s) + coalesce(SUM(b), 0.0)"):
        found = by_key(session, f"SELECT k, grad((SELECT {loss} FROM ({groups}) AS q), val) AS d FROM w")
        assert_values(found, SQUARES)


def test_single_precision(session: SessionContext) -> None:
    query(session, "CREATE TABLE f AS SELECT k, CAST(val AS REAL) AS val FROM w")
    table = query(session, "SELECT k, grad((SELECT SUM(val * val) FROM f), val) AS d FROM f")
    # The sum of single precision numbers is in double precision.
    assert table.schema.field("d").type in (pa.float32(), pa.float64())
    found = dict(zip(table["k"].to_pylist(), table["d"].to_pylist(), strict=True))
    assert found == SQUARES
    maximum = query(session, "SELECT k, grad((SELECT MAX(val) FROM f), val) AS d FROM f")
    assert maximum.schema.field("d").type == pa.float32()


def test_equal_rows(session: SessionContext) -> None:
    session.from_pydict({"k": [1, 1, 1, 2], "val": [0.5, 0.5, 0.5, 2.0]}, name="t")
    table = query(session, "SELECT k, grad((SELECT power(SUM(val), 2) FROM t), val) AS d FROM t")
    assert table["d"].to_pylist() == [7.0] * 4


def test_a_draw_is_the_same_for_all(session: SessionContext) -> None:
    """A mask that is drawn is drawn once: value and derivatives are of the same, by one relation or two."""
    query(session, "CREATE TABLE big AS SELECT value AS k, sin(value) AS val FROM range(0, 300)")
    query(session, "CREATE TABLE scale AS SELECT 1.5 AS s")
    drawn = "SELECT val, s, CASE WHEN random() < 0.5 THEN 1.0 ELSE 0.0 END AS mask FROM big CROSS JOIN scale"
    loss = f"(SELECT SUM(val * s * mask) FROM ({drawn}) AS drawn)"
    statement = f"""SELECT SUM(val * d) AS a, AVG(s * e) AS b, COUNT(DISTINCT d) AS n
        FROM (SELECT val, s, grad({loss}, val) AS d, grad({loss}, s) AS e FROM big CROSS JOIN scale) AS q"""
    (row,) = query(session, statement).to_pylist()
    assert row["a"] == pytest.approx(row["b"], rel=1e-9)
    assert row["n"] == 2


@pytest.mark.parametrize(
    "value",
    [
        "SELECT SUM(CASE WHEN random() < 0.5 THEN val ELSE 0.0 END) AS l FROM big",
        "SELECT SUM(val) FILTER (WHERE random() < 0.5) AS l FROM big",
        "SELECT SUM(v) AS l FROM (SELECT CASE WHEN random() < 0.5 THEN 0.0 ELSE val END AS v FROM big) AS dropout",
        "SELECT SUM(v) AS l FROM (SELECT SUM(val * random()) OVER (ORDER BY k) AS v FROM big) AS sums",
        "SELECT SUM(f) AS l FROM (SELECT first_value(val ORDER BY random()) AS f FROM big GROUP BY k % 30) AS q",
        "SELECT SUM(s) AS l FROM (SELECT SUM(val) * random() AS s FROM big GROUP BY floor(random() * 5)) AS q",
    ],
)
def test_what_is_drawn_beside_the_variable(session: SessionContext, value: str) -> None:
    """Each value is linear in the cells: whatever is drawn, it is the sum of the cells times their derivatives."""
    query(session, "CREATE TABLE big AS SELECT value AS k, sin(value) + 2 AS val FROM range(0, 300)")
    statement = f"""WITH loss AS ({value})
        SELECT MIN(l) AS l, SUM(val * d) AS of_derivatives, COUNT(DISTINCT d) AS n
        FROM (SELECT (SELECT l FROM loss) AS l, val, grad((SELECT l FROM loss), val) AS d FROM big) AS q"""
    (row,) = query(session, statement).to_pylist()
    assert row["l"] == pytest.approx(row["of_derivatives"], rel=1e-9)
    assert row["n"] > 1


@pytest.mark.parametrize(
    "drawn",
    [
        "SELECT val FROM powers WHERE random() < 0.5",
        "SELECT val FROM powers ORDER BY random() LIMIT 6",
        "SELECT val FROM (SELECT val, random() < 0.5 AS chosen FROM powers) AS q WHERE chosen",
    ],
)
def test_rows_that_are_drawn_are_the_same_for_all(session: SessionContext, drawn: str) -> None:
    """The square of a sum has the derivative `2 * sum` by the rows that the sum is over, and 0 by the others."""
    query(session, "CREATE TABLE powers AS SELECT value AS k, power(2.0, value) AS val FROM range(0, 12)")
    for _ in range(4):
        found = query(
            session, f"SELECT val, grad((SELECT power(SUM(val), 2) FROM ({drawn}) AS r), val) AS d FROM powers"
        )
        rows = [(row["val"], row["d"]) for row in found.to_pylist()]
        total = sum(val for val, d in rows if d)
        assert {d for _, d in rows if d} <= {2 * total}


def test_groups_that_are_drawn_are_the_same_for_all(session: SessionContext) -> None:
    """A row of a group that is drawn has the derivative of its own group, `2 * sum` for the square of its sum."""
    grouped = "(SELECT floor(random() * 3) AS k, SUM(val) AS s FROM w GROUP BY floor(random() * 3))"
    statement = f"WITH q AS {grouped} SELECT s, grad((SELECT SUM(s * s) FROM q), s) AS d FROM q"
    for _ in range(4):
        found = query(session, statement)
        assert found["d"].to_pylist() == [2 * s for s in found["s"].to_pylist()]
    again = "(SELECT val FROM (SELECT val, floor(random() * 3) AS c FROM w) AS a GROUP BY val, c)"
    message = message_at_planning(lambda: session.sql(f"SELECT grad({SUM}, val) AS d FROM {again} AS w"))
    assert "does not know which rows of a variable are in a group" in message


# Positions


def test_two_different_subqueries(session: SessionContext) -> None:
    total, count = sum(VALUES.values()), len(VALUES)
    call = f"grad({SUM} * (SELECT AVG(val) FROM w) + val * (SELECT MAX(val) FROM w), val)"
    squares = sum(v * v for v in VALUES.values())
    expected = {k: 2 * v * total / count + squares / count + 2.0 + (v if v == 2.0 else 0.0) for k, v in VALUES.items()}
    assert_values(by_key(session, f"SELECT k, {call} AS d FROM w"), expected)


def test_subquery_under_a_condition(session: SessionContext) -> None:
    call = f"grad(CASE WHEN k > 2 THEN {SUM} ELSE val END, val)"
    assert_values(by_key(session, f"SELECT k, {call} AS d FROM w"), {1: 1.0, 2: 1.0, 3: 2.5, 4: 4.0})
    call = "grad(coalesce((SELECT MAX(val) FROM w WHERE k > 10), (SELECT SUM(val) FROM w), 7.0), val)"
    assert_values(by_key(session, f"SELECT k, {call} AS d FROM w"), dict.fromkeys(VALUES, 1.0))
    call = "grad(coalesce(CASE WHEN k = 1 THEN (SELECT SUM(val * val) FROM w) END, val * val * val), val)"
    expected = {k: 2 * v if k == 1 else 3 * v * v for k, v in VALUES.items()}
    assert_values(by_key(session, f"SELECT k, {call} AS d FROM w"), expected)


ONE_ROW = "(SELECT AVG(val) AS m, 3 AS n FROM w) AS q"
TWO_AGGREGATES = """(SELECT m, s, 3 AS n FROM (SELECT AVG(val) AS m FROM w) AS a
    CROSS JOIN (SELECT MAX(val) AS s FROM w) AS b) AS q"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"SELECT SUM(q.m) FROM w AS a LEFT JOIN {ONE_ROW} ON a.k = q.n", dict.fromkeys(VALUES, 0.25)),
        (f"SELECT SUM(q.m) FROM {ONE_ROW} RIGHT JOIN w AS a ON a.k = q.n", dict.fromkeys(VALUES, 0.25)),
        (f"SELECT SUM(q.m) FROM {ONE_ROW} FULL JOIN w AS a ON a.k = q.n", dict.fromkeys(VALUES, 0.25)),
        (f"SELECT SUM(q.m) FROM w AS a FULL JOIN {ONE_ROW} ON a.k = q.n", dict.fromkeys(VALUES, 0.25)),
        (
            f"SELECT SUM(q.m) FROM w AS a LEFT JOIN {ONE_ROW} ON a.k = q.n LEFT JOIN w AS b ON b.k = a.k + 1",
            dict.fromkeys(VALUES, 0.25),
        ),
        (
            f"SELECT SUM(q.m) FROM w AS b LEFT JOIN (w AS a LEFT JOIN {ONE_ROW} ON a.k = q.n) ON b.k = a.k + 1",
            dict.fromkeys(VALUES, 0.25),
        ),
        (
            f"SELECT SUM(r.m) FROM (SELECT q.m FROM w AS a LEFT JOIN {ONE_ROW} ON a.k = q.n ORDER BY a.k LIMIT 9) AS r",
            dict.fromkeys(VALUES, 0.25),
        ),
        (
            f"SELECT SUM(q.m + q.s) FROM w AS a LEFT JOIN {TWO_AGGREGATES} ON a.k = q.n",
            {1: 0.25, 2: 0.25, 3: 0.25, 4: 1.25},
        ),
        (
            f"SELECT SUM(q.m * a.val) FROM w AS a LEFT JOIN {ONE_ROW} ON a.k = q.n",
            {1: 0.3125, 2: 0.3125, 3: 1.0625, 4: 0.3125},
        ),
        (
            f"SELECT SUM(coalesce(q.m, a.val)) FROM w AS a LEFT JOIN {ONE_ROW} ON a.k = q.n",
            {1: 1.25, 2: 1.25, 3: 0.25, 4: 1.25},
        ),
    ],
    ids=["left", "right", "full", "full_right", "below", "above", "limit", "two_aggregates", "product", "coalesce"],
)
def test_one_row_beside_some_rows(session: SessionContext, value: str, expected: dict[int, float]) -> None:
    """An outer join leaves out the one row of a subquery, which has no number, beside rows without a partner."""
    assert_values(by_key(session, f"SELECT k, grad(({value}), val) AS d FROM w"), expected)


def test_rows_that_are_shown(session: SessionContext) -> None:
    """Conditions, joins, orders and limits around a call change which rows there are, not their derivatives."""
    call = f"grad({SUM}, w.val) AS d"
    for statement, keys in {
        f"SELECT k, {call} FROM w WHERE k > 2": [3, 4],
        f"SELECT k, {call} FROM w WHERE val > 0 ORDER BY k DESC LIMIT 2": [3, 4],
        f"SELECT k, {call} FROM w ORDER BY k LIMIT 1 OFFSET 2": [3],
        f"SELECT w.k, {call} FROM w JOIN (VALUES (1), (4)) AS n(n) ON w.k = n.n": [1, 4],
        f"SELECT w.k, {call} FROM w LEFT JOIN (VALUES (1)) AS n(n) ON w.k = n.n": [1, 2, 3, 4],
        f"SELECT k, {call} FROM w WHERE k IN (SELECT n FROM (VALUES (2), (9)) AS n(n))": [2],
        f"SELECT k, d FROM (SELECT k, val, {call} FROM w) AS q WHERE d < 0": [2],
        f"SELECT k, {call} FROM w WHERE false": [],
        f"SELECT k, {call} FROM (SELECT * FROM w WHERE k > 2) AS w": [3, 4],
        f"SELECT k, {call} FROM (SELECT * FROM w ORDER BY val LIMIT 1) AS w": [2],
    }.items():
        assert_values(by_key(session, statement), {key: SQUARES[key] for key in keys})


@pytest.mark.parametrize(
    "value",
    [
        "SELECT MAX(s) FROM (SELECT k, sqrt(val) AS s FROM w) AS q",
        "SELECT SUM(s) FILTER (WHERE k > 1) FROM (SELECT k, sqrt(val) AS s FROM w) AS q",
        "SELECT last_value(s ORDER BY k) FROM (SELECT k, sqrt(val) AS s FROM w) AS q",
        "SELECT SUM(CASE WHEN k > 1 THEN s ELSE 0.5 END) FROM (SELECT k, sqrt(val) AS s FROM w) AS q",
    ],
)
def test_rows_that_do_not_contribute(session: SessionContext, value: str) -> None:
    """They do not where their derivative is infinite either: the root of 0."""
    session.from_pydict({"k": [1, 2], "val": [0.0, 4.0]}, name="roots")
    statement = f"SELECT k, grad(({value.replace('FROM w', 'FROM roots')}), val) AS d FROM roots"
    assert_values(by_key(session, statement), {1: 0.0, 2: 0.25})


def test_branches_not_taken_below_an_infinite_cotangent(session: SessionContext) -> None:
    for positive in ("greatest(val - 10.0, 0.0)", "CASE WHEN val > 10.0 THEN val * val ELSE 0.0 END"):
        statement = f"SELECT k, grad((SELECT sqrt(SUM({positive})) FROM w), val) AS d FROM w"
        assert_values(by_key(session, statement), dict.fromkeys(VALUES, 0.0))


def test_rows_that_an_outer_join_extends(session: SessionContext) -> None:
    statement = f"SELECT n.n, grad({SUM}, w.val) AS d FROM (VALUES (1), (9)) AS n(n) LEFT JOIN w ON w.k = n.n"
    assert by_key(session, statement) == {1: 1.0, 9: None}


def test_calls_in_clauses(session: SessionContext) -> None:
    squares = sum(v * v for v in VALUES.values())
    (row,) = query(session, f"SELECT SUM(grad({SUM}, val) * val) AS d FROM w").to_pylist()
    assert row["d"] == pytest.approx(2 * squares, rel=1e-14)
    found = query(session, f"SELECT k % 2 AS g, SUM(grad({SUM}, val)) AS d FROM w GROUP BY k % 2").to_pylist()
    assert {r["g"]: r["d"] for r in found} == {1: 3.5, 0: 2.5}
    found = query(session, f"SELECT k FROM w ORDER BY grad({SUM}, val)").to_pylist()
    assert [r["k"] for r in found] == [2, 1, 3, 4]
    found = query(session, f"SELECT k FROM w WHERE grad({SUM}, val) > 2 ORDER BY k").to_pylist()
    assert [r["k"] for r in found] == [3, 4]
    found = query(session, f"SELECT k % 2 AS g FROM w GROUP BY k % 2 HAVING SUM(grad({SUM}, val)) > 3").to_pylist()
    assert [r["g"] for r in found] == [1]
    found = query(session, f"SELECT k, SUM(grad({SUM}, val)) OVER (ORDER BY k) AS d FROM w ORDER BY k").to_pylist()
    assert [r["d"] for r in found] == [1.0, -0.5, 2.0, 6.0]
    found = query(session, f"SELECT (SELECT MAX(grad({SUM}, val)) FROM w) AS d").to_pylist()
    assert found == [{"d": 4.0}]
    found = query(
        session, f"SELECT k FROM w WHERE val > (SELECT MIN(grad({SUM}, val)) FROM w) + 2 ORDER BY k"
    ).to_pylist()
    assert [r["k"] for r in found] == [3, 4]
    distinct = query(session, f"SELECT DISTINCT grad({SUM}, val) > 0 AS p FROM w ORDER BY p").to_pylist()
    assert distinct == [{"p": False}, {"p": True}]


def test_a_call_in_the_condition_of_a_join(session: SessionContext) -> None:
    """It is that of the side that it names: 2 * a.val > b.val."""
    found = session.sql(f"SELECT a.k AS a, b.k AS b FROM w AS a JOIN w AS b ON grad({SUM}, a.val) > b.val").to_pylist()
    wanted = [(a, b) for a, slope in SQUARES.items() for b, value in VALUES.items() if slope > value]
    assert sorted((row["a"], row["b"]) for row in found) == sorted(wanted)


def test_a_union_of_calls(session: SessionContext) -> None:
    call = f"SELECT k, grad({SUM}, val) AS d FROM w"
    table = query(session, f"{call} UNION ALL {call.replace('SELECT k,', 'SELECT k + 10,')}")
    found = dict(zip(table["k"].to_pylist(), table["d"].to_pylist(), strict=True))
    assert found == {**SQUARES, **{k + 10: d for k, d in SQUARES.items()}}


# Recursion

TWO_LAYERS = """
    WITH RECURSIVE state AS (
        SELECT 0 AS step, layer, k, val FROM start
        UNION ALL
        {term})
    SELECT layer * 10 + k AS k, val AS d FROM state WHERE step = 12"""
LOSS = """(SELECT SUM(power(b.val * tanh(a.val) - a.k, 2)) FROM state AS a JOIN state AS b ON a.k = b.k
    WHERE a.layer = 1 AND b.layer = 2)"""


def _two_layers() -> dict[int, float]:
    a, b = np.array([0.3, -0.2, 0.5]), np.array([1.0, 0.4, -0.6])
    keys = np.arange(1.0, 4.0)
    for _ in range(12):
        error = 2 * (b * np.tanh(a) - keys)
        a, b = a - 0.1 * error * b * (1 - np.tanh(a) ** 2), b - 0.1 * error * np.tanh(a)
    return {**{10 + n: float(v) for n, v in enumerate(a, 1)}, **{20 + n: float(v) for n, v in enumerate(b, 1)}}


@pytest.mark.parametrize(
    "term",
    [
        f"SELECT step + 1, layer, k, val - 0.1 * grad({LOSS}, val) FROM state WHERE step < 12",
        f"(WITH loss AS {LOSS} SELECT step + 1, layer, k, val - 0.1 * grad((SELECT * FROM loss), val) FROM state "
        "WHERE step < 12)",
        f"SELECT * FROM (WITH loss AS {LOSS} SELECT step + 1, layer, k, val - 0.1 * grad((SELECT * FROM loss), val) "
        "FROM state WHERE step < 12) AS s",
    ],
    ids=["subquery", "with", "derived table"],
)
def test_training_of_two_layers_in_one_table(session: SessionContext, term: str) -> None:
    """The recursive term reads the working table three times."""
    layers = [(1, 1, 0.3), (1, 2, -0.2), (1, 3, 0.5), (2, 1, 1.0), (2, 2, 0.4), (2, 3, -0.6)]
    names = ("layer", "k", "val")
    session.from_pydict({name: [row[n] for row in layers] for n, name in enumerate(names)}, name="start")
    found = by_key(session, TWO_LAYERS.format(term=term))
    expected = _two_layers()
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-11)


def test_a_recursive_query_inside_the_value(session: SessionContext) -> None:
    loss = """(WITH RECURSIVE r AS (SELECT 0 AS n, SUM(val) AS s FROM w
            UNION {all} SELECT n + 1, s * s FROM r WHERE n < 2)
        SELECT MAX(s) FROM r WHERE n = 2)"""
    (total,) = query(session, "SELECT SUM(val) AS s FROM w").column("s").to_pylist()
    found = by_key(session, f"SELECT k, grad({loss.format(all='ALL')}, val) AS d FROM w")
    assert_values(found, dict.fromkeys(found, 4 * total**3))
    message = message_at_planning(lambda: session.sql(f"SELECT k, grad({loss.format(all='')}, val) AS d FROM w"))
    assert "recursive query with UNION, which compares whole rows" in message


def test_a_cell_that_is_null_does_not_move(session: SessionContext) -> None:
    session.from_pydict({"k": [1, 2, 3], "x": [1.0, None, 3.0], "v": [1.0, math.inf, 0.5]}, name="directions")
    statement = """SELECT k, jvp((SELECT SUM(coalesce(x, 2.0) * k) FROM directions), x, v) AS d
        FROM directions WHERE x IS NOT NULL"""
    assert_values(by_key(session, statement), {1: 2.5, 3: 2.5})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # A column that nobody reads has no part in the value, whatever its derivative.
        ("SELECT a FROM (SELECT SUM(s) AS a, covar_samp(r, s) AS b FROM groups) AS m", [1.0] * 6),
        (
            "SELECT SUM(a) FROM (SELECT SUM(s) OVER (ORDER BY p) AS a, stddev(r) OVER () AS b FROM groups) AS m",
            [1.0, 2.0] * 3,
        ),
        # Nor has a group that is left out. Of the even ones it is var_pop(v).
        (
            "SELECT SUM(b) FILTER (WHERE p = 0) FROM (SELECT p, covar_pop(r + v, v) AS b FROM pairs GROUP BY p) AS m",
            [0.0, -4 / 9, 0.0, 25 / 18, 0.0, -17 / 18],
        ),
    ],
)
def test_what_does_not_contribute_may_be_nan(session: SessionContext, value: str, expected: list[float]) -> None:
    """By groups, `corr` of 0.1, 0.1 and 0.1 with other numbers is NaN in DataFusion 54."""
    cells = {1: 0.5, 2: -0.75, 3: 1.25, 4: 2.0, 5: 0.25, 6: -1.5}
    session.from_pydict({"k": list(cells), "v": list(cells.values()), "c": [0.1, 0.1, 0.1, 0.1, 0.1, 0.3]}, name="x")
    with_ = """WITH groups AS (SELECT k % 2 AS p, SUM(v) AS s, corr(c, v) AS r FROM x GROUP BY k % 2),
        pairs AS (SELECT x.v, g.p, g.r FROM x JOIN groups AS g ON x.k % 2 = g.p)"""
    assert math.isnan(by_key(session, f"{with_} SELECT p, r FROM groups")[1])
    found = by_key(session, f"{with_} SELECT k, grad(({value}), v) AS d FROM x")
    assert_values(found, dict(zip(cells, expected, strict=True)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("SELECT SUM(m) FILTER (WHERE k > 2) FROM products", {3: 3.0, 4: 4.0}),
        ("SELECT MAX(m) FILTER (WHERE k > 2) FROM products", {3: 0.0, 4: 4.0}),
        ("SELECT MIN(m) FILTER (WHERE k > 2) FROM products", {3: 3.0, 4: 0.0}),
        ("SELECT VAR_POP(m) FILTER (WHERE k > 2) FROM products", {3: -6.375, 4: 8.5}),
        ("SELECT last_value(m ORDER BY k) FROM products", {3: 0.0, 4: 4.0}),
        # None of several readers takes them.
        ("SELECT SUM(m) FILTER (WHERE k > 2) + MAX(m) FILTER (WHERE k > 2) FROM products", {3: 3.0, 4: 8.0}),
        ("SELECT covar_pop(m, m * k) FILTER (WHERE k > 2) FROM products", {3: -25.125, 4: 37.75}),
        (
            "SELECT SUM(CASE WHEN k > 2 THEN p * q ELSE 0 END) FROM (SELECT k, m * 2 AS p, m + 1 AS q FROM products)",
            {3: 51.0, 4: 136.0},
        ),
        (
            "SELECT SUM(s) FILTER (WHERE k > 2) + MAX(t) FILTER (WHERE k > 2) "
            "FROM (SELECT k, SUM(m) AS s, AVG(m) AS t FROM products GROUP BY k)",
            {3: 3.0, 4: 8.0},
        ),
    ],
)
def test_rows_that_do_not_contribute_may_be_infinite(
    session: SessionContext, value: str, expected: dict[int, float]
) -> None:
    session.from_pydict({"k": [1, 2, 3, 4], "r": [math.nan, math.inf, 3.0, 4.0]}, name="r")
    with_ = "WITH products AS (SELECT w.k, w.val * r.r AS m FROM w JOIN r ON w.k = r.k)"
    found = by_key(session, f"{with_} SELECT k, grad(({value}), val) AS d FROM w")
    assert_values(found, {1: 0.0, 2: 0.0, **expected})


@pytest.mark.parametrize(
    "chosen",
    [
        "CASE WHEN isnan(r) OR r > 100 THEN 0.0 ELSE m END",
        "1.0 - CASE WHEN r < 100 THEN -m ELSE 0.0 END",
        "CASE WHEN r < 100 THEN m END",
        "coalesce(CASE WHEN r < 100 THEN NULL ELSE 1.0 END, m)",
        "nvl2(CASE WHEN r < 100 THEN 1.0 END, m, r)",
        "nanvl(CASE WHEN r < 100 THEN m ELSE r - r END, 0.0)",
    ],
)
@pytest.mark.parametrize("form", ["products", "again", "sums"])
def test_values_that_a_choice_does_not_take_may_be_nan(session: SessionContext, chosen: str, form: str) -> None:
    session.from_pydict({"k": [1, 2, 3, 4], "r": [math.nan, math.inf, 3.0, 4.0]}, name="r")
    with_ = """WITH products AS (SELECT w.k, r.r, w.val * r.r AS m FROM w JOIN r ON w.k = r.k),
        again AS (SELECT k, r, m + 0.0 AS m FROM products), sums AS (SELECT r, SUM(m) AS m FROM products GROUP BY r)"""
    value = f"SELECT SUM({chosen}) FROM {form}"
    found = by_key(session, f"{with_} SELECT k, grad(({value}), val) AS d FROM w")
    assert_values(found, {1: 0.0, 2: 0.0, 3: 3.0, 4: 4.0})
    (along,) = query(session, f"{with_} SELECT jvp(({value}), w.val, 1.0) AS d FROM w LIMIT 1").to_pylist()
    assert along["d"] == 7.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "SELECT SUM(a + v) FROM (SELECT v, first_value(v * r) OVER (ORDER BY k) AS a FROM x) AS s",
            [1 + 3 * 1.5, 1.0, 1.0],
        ),
        ("SELECT SUM(a + v) FROM (SELECT v, last_value(v * r) OVER () AS a FROM x) AS s", [1.0, 1.0, 1 + 3 * 2.5]),
        ("SELECT (SELECT SUM(a) FROM s WHERE k <> 2) + (SELECT SUM(v * v) FROM s)", [1.5 + 1.0, -1.5, 2.5 + 2.5]),
        ("SELECT SUM(v) * 2 + SUM(a) FILTER (WHERE k <> 2) FROM s", [2 + 1.5, 2.0, 2 + 2.5]),
    ],
)
def test_what_one_of_several_readers_leaves_out_may_be_nan(
    session: SessionContext, value: str, expected: list[float]
) -> None:
    session.from_pydict({"k": [1, 2, 3], "v": [0.5, -0.75, 1.25], "r": [1.5, math.nan, 2.5]}, name="x")
    with_ = "WITH s AS (SELECT k, v, v * r AS a FROM x ORDER BY k LIMIT 3)"
    found = by_key(session, f"{with_} SELECT k, grad(({value}), v) AS d FROM x")
    assert_values(found, dict(enumerate(expected, 1)))


@pytest.mark.parametrize(
    ("grouping", "expected"),
    [
        # One set, and sets without an aggregate.
        ("SELECT SUM(val) AS v FROM w GROUP BY GROUPING SETS ((k % 2))", {1: 3.5, 2: 2.5, 3: 3.5, 4: 2.5}),
        ("SELECT SUM(val) AS v FROM w GROUP BY k % 2, GROUPING SETS (())", {1: 3.5, 2: 2.5, 3: 3.5, 4: 2.5}),
        ("SELECT val AS v FROM w GROUP BY ROLLUP (val)", SQUARES),
        ("SELECT val AS v FROM w GROUP BY CUBE (val, k)", {key: 2 * square for key, square in SQUARES.items()}),
    ],
)
def test_sets_of_groups(session: SessionContext, grouping: str, expected: dict[int, float]) -> None:
    found = by_key(session, f"SELECT k, grad((SELECT SUM(v * v) FROM ({grouping}) AS q), val) AS d FROM w")
    assert_values(found, expected)


@pytest.mark.parametrize("column", ["val", "small"])
@pytest.mark.parametrize(
    ("default", "number"),
    [("0", 0.0), ("-1", -1.0), ("0.5", 0.5), ("CAST(2 AS BIGINT)", 2.0), ("1 + 1", 2.0), ("'2'", 2.0), ("NULL", None)],
)
def test_default_of_another_type(session: SessionContext, column: str, default: str, number: float | None) -> None:
    """The square of `2 * x + lag(x)`, in which the default stands before the first row."""
    session.sql("CREATE TABLE m AS SELECT k, val, CAST(val AS REAL) AS small FROM w").collect()
    lagged = f"SELECT 2 * {column} + lag({column}, 1, {default}) OVER (ORDER BY k) AS z FROM m"
    found = by_key(session, f"SELECT k, grad((SELECT SUM(z * z) FROM ({lagged}) AS q), {column}) AS d FROM m")
    values = [number, *VALUES.values()]
    z = [None if b is None else 2 * v + b for v, b in zip(VALUES.values(), values, strict=False)] + [0.0]
    expected = {k: (0.0 if z[k - 1] is None else 4 * z[k - 1]) + 2 * z[k] for k in VALUES}  # type: ignore[operator]
    assert_values(found, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("SELECT SUM(a.val * b.val * c.val) FROM m AS a JOIN m AS b ON a.k = b.k JOIN m AS c ON a.k = c.k", 6.0),
        ("SELECT SUM(v) FROM (SELECT val * val AS v FROM m UNION ALL SELECT val * val FROM m UNION ALL "
         "SELECT power(val, 3) - 2 * val * val FROM m) AS q", 6.0),
        ("SELECT SUM(v) FROM (SELECT power(val, 3) AS v FROM m UNION ALL (SELECT val FROM m UNION ALL "
         "SELECT -val FROM m WHERE k < 9)) AS q", 6.0),
    ],
)  # fmt: skip
def test_hessian_times_a_vector_through_several_readers(session: SessionContext, value: str, expected: float) -> None:
    """Of the sum of cubes, whose second derivative is six times the value."""
    with_ = """WITH eps AS (SELECT 0.0 AS eps), m AS (SELECT k, val + eps AS val, eps FROM w CROSS JOIN eps)"""
    found = by_key(session, f"{with_} SELECT k, grad(grad(({value}), val), eps) AS hv FROM m")
    assert_values(found, {key: expected * v for key, v in VALUES.items()})


@pytest.mark.parametrize(
    ("columns", "step", "derivative"),
    [
        ("val, 0.1 AS rate", "val - rate * grad((SELECT SUM(val * val) FROM r), val), rate", "grad(val, rate)"),
        (
            "val, 0.1 AS rate",
            "val - 0.1 * jvp((SELECT SUM(val * val) FROM r), val, 1.0), rate",
            "grad(rate * val, rate)",
        ),
        ("val, val AS start", "val - 0.1 * grad((SELECT SUM(val * val) FROM r), val), start", "grad(val, start)"),
    ],
)
def test_no_derivative_through_gradients_of_iterations(
    session: SessionContext, columns: str, step: str, derivative: str
) -> None:
    """The columns of an iteration come out of a relation that its gradient shares."""
    recursive = f"""WITH RECURSIVE r AS (SELECT 0 AS step, {columns} FROM w WHERE k = 1
        UNION ALL SELECT step + 1, {step} FROM r WHERE step < 1)"""
    message = message_at_planning(lambda: session.sql(f"{recursive} SELECT {derivative} AS d FROM r"))
    assert re.search("take a gradient by its own rows", message)
    # What an iteration computes is a variable of its own.
    (last,) = query(session, f"{recursive} SELECT grad(val * val, val) AS d, val FROM r WHERE step = 1").to_pylist()
    assert last["d"] == 2 * last["val"]


def test_a_semi_join_without_an_equality(session: SessionContext) -> None:
    """DataFusion 54 fails on some, which the judges of random values excuse. Once it does not, the excuse goes."""
    session.from_pydict({"id": [1, 2], "k": [1, 2], "x": [1.0, 2.0], "y": [3.0, 4.0]}, name="a")
    session.from_pydict({"k": [2]}, name="b")
    semi = "SELECT id, x, y FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k < b.k)"
    if not ON_STOCK:
        with pytest.raises(Exception, match=r"(?s)ProjectionPushdown.*col\.name\(\) == matching_name"):
            query(session, semi)
    same = "SELECT id, x, y FROM a WHERE a.k < (SELECT MAX(k) FROM b)"
    assert query(session, same).to_pylist() == [{"id": 1, "x": 1.0, "y": 3.0}]
    found = by_key(session, f"SELECT id, grad((SELECT SUM(x * x * y) FROM ({same}) AS q), x) AS d FROM a")
    assert_values(found, {1: 6.0, 2: 0.0})


def test_rows_that_do_not_contribute_may_overflow(session: SessionContext) -> None:
    session.from_pydict({"k": [1, 2], "v": [1000.0, 1.5]}, name="x")
    value = "SELECT SUM(s) FILTER (WHERE k = 2) + MAX(s) FILTER (WHERE k = 2) FROM (SELECT k, exp(v) AS s FROM x) AS q"
    found = by_key(session, f"SELECT k, grad(({value}), v) AS d FROM x")
    assert_values(found, {1: 0.0, 2: 2 * math.exp(1.5)})


@pytest.mark.parametrize("sign", ["", "-"])
def test_zeros_of_both_signs_contribute_nothing(session: SessionContext, sign: str) -> None:
    value = f"SELECT SUM({sign}root * (k - 1)) FROM (SELECT k, sqrt(val - 0.5) AS root FROM w WHERE k IN (1, 4)) AS q"
    derivatives = by_key(session, f"SELECT k, grad(({value}), val) AS d FROM w")
    slope = 3 / (2 * math.sqrt(VALUES[4] - 0.5))
    assert_values(derivatives, {1: 0.0, 2: 0.0, 3: 0.0, 4: -slope if sign else slope})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("SELECT SUM(DISTINCT val) FROM w", r"sum\(DISTINCT .*no derivative is known for an aggregate of DISTINCT"),
        ("SELECT SUM(q.val * q.val) FROM w AS q WHERE q.k > w.k", "the correlated subquery"),
        ("SELECT SUM(q.val * (SELECT SUM(o.val) FROM w AS o WHERE o.k > q.k)) FROM w AS q", "the correlated subquery"),
        (
            "SELECT SUM(a.val) FROM w AS a JOIN w AS b ON a.k = b.k AND b.k < (SELECT SUM(val) FROM w)",
            "Put it in WHERE",
        ),
        (
            """SELECT SUM(w.val * o.k) FROM w,
                LATERAL (SELECT k FROM (VALUES (1), (2)) AS x(k) WHERE x.k = w.k ORDER BY k LIMIT 1) AS o""",
            "LATERAL where DataFusion makes a join of it",
        ),
        (
            "SELECT SUM(CAST(val AS DECIMAL(10, 2)) * 2) FROM w",
            "^sum varies with a float but is Decimal128.*Convert the",
        ),
        ("SELECT MAX(CAST(val AS DECIMAL(10, 2))) FROM w", "^max varies with a float but is Decimal128"),
        (
            "SELECT SUM(u) FROM (SELECT lag(val, 1, val) OVER (ORDER BY k) AS u FROM w) AS q",
            "DataFusion takes only a constant as the default of lag",
        ),
    ],
)
def test_refused(session: SessionContext, value: str, says: str) -> None:
    message = message_at_planning(lambda: session.sql(f"SELECT grad(({value}), val) AS d FROM w"))
    assert re.search(says, message)


@pytest.mark.parametrize("relation", ["a CTE", "a derived table"])
def test_groups_by_keys_of_which_one_is_computed(relation: str) -> None:
    """DataFusion 54 takes a and b for the key of `q`, and groups by what it takes for dependent, too."""
    ctx = sessions.session({"t": {"a": [0, 0, 0, 1], "c": [0, 1, 1, 0], "x": [0.5, -1.0, 2.0, 3.0]}})
    q = "SELECT a, a + 1 AS b, c, s FROM (SELECT a, c, SUM(x) AS s FROM t GROUP BY a, c) g"
    named, read = (f"q AS ({q}), ", "q") if relation == "a CTE" else ("", f"({q}) q")
    groups = f"{named}u AS (SELECT a, b, SUM(s) AS u FROM {read} GROUP BY a, b), l AS (SELECT SUM(u * u) AS l FROM u)"
    (value,) = query(ctx, f"WITH {groups} SELECT l, grad(0.0 * x, x) AS d FROM l CROSS JOIN t LIMIT 1").to_pylist()
    assert value["l"] == pytest.approx(1.5**2 + 3.0**2)
    found = query(ctx, f"WITH {groups} SELECT grad((SELECT l FROM l), x) AS d FROM t ORDER BY x").to_pydict()["d"]
    assert found == pytest.approx([3.0, 3.0, 3.0, 6.0])
