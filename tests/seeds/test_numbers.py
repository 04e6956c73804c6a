"""Random numbers by seed and keys: their values, types and refusals, and how they are distributed.

The oracle is the generator of NumPy, which counts for itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext
from scipy import stats

import xql_ffi
from xql_ffi import _session, random

Integers = np.typing.NDArray[np.int64]
EDGES = (0, 1, -1, 2**32, 2**63 - 1, -(2**63), 42)
# How far normal numbers are off whose logarithm and cosine are of another library.
NEAR = 1e-14


def of_numpy(seed: int, *keys: int) -> np.random.Generator:
    """NumPy's generator whose first words are those of a seed and keys."""
    counter = sum(key % 2**64 << 64 * place for place, key in enumerate(keys))
    return np.random.Generator(np.random.Philox(key=seed % 2**64 + (len(keys) << 64), counter=(counter - 1) % 2**256))


def arguments(count: int, keys: int) -> Integers:
    """Seeds and keys, a column for each."""
    made = np.random.default_rng(keys).integers(-(2**63), 2**63 - 1, (keys + 1, count), endpoint=True)
    made[:, : len(EDGES)] = [np.roll(EDGES, place) for place in range(keys + 1)]
    return made


@pytest.fixture
def ctx() -> SessionContext:
    return xql_ffi.register(SessionContext(), functions=True)


def columns(ctx: SessionContext, sql: str) -> list[Any]:
    return [column.to_numpy() for column in ctx.sql(sql).to_arrow_table().columns]


@pytest.mark.parametrize("keys", [1, 2, 3, 4])
def test_numbers_are_those_of_numpys_generator(keys: int) -> None:
    points = arguments(60, keys)
    drawn = np.array([of_numpy(*map(int, point)).random(3) for point in points.T])
    np.testing.assert_array_equal(random.uniform(*points), drawn[:, 0])
    expected = np.sqrt(-2 * np.log1p(-drawn[:, 1])) * np.cos(2 * np.pi * drawn[:, 2])
    np.testing.assert_allclose(random.normal(*points), expected, rtol=0, atol=NEAR)


@pytest.mark.parametrize("keys", [1, 2, 3, 4])
def test_sql_has_the_same(ctx: SessionContext, keys: int) -> None:
    points = arguments(500, keys)
    names = ["seed", *(f"key{number}" for number in range(1, keys + 1))]
    ctx.from_pydict({"row": list(range(500)), **dict(zip(names, points.tolist(), strict=True))}, name="t")
    called = ", ".join(names)
    uniform, normal = columns(ctx, f"SELECT random_uniform({called}), random_normal({called}) FROM t ORDER BY row")
    np.testing.assert_array_equal(uniform, random.uniform(*points))
    np.testing.assert_allclose(normal, random.normal(*points), rtol=0, atol=NEAR)


def test_numbers_stay_what_they_are(ctx: SessionContext) -> None:
    sql = "SELECT random_uniform(7, 0), random_uniform(7, 0, 1), random_normal(7, 0), random_normal(-7, 1, 2, 3, 4)"
    found = [column[0] for column in columns(ctx, sql)]
    assert found == [0.47131543477349913, 0.05195402196527399, 1.0463950366880137, 0.4899009374340413]


@pytest.mark.parametrize(("partitions", "batch"), [(1, 8192), (3, 100), (7, 1)])
def test_whatever_the_partitions_are(partitions: int, batch: int) -> None:
    config = SessionConfig().with_target_partitions(partitions).with_batch_size(batch)
    ctx = xql_ffi.register(SessionContext(config), functions=True)
    rows = pa.RecordBatch.from_pydict({"id": pa.array(range(200))})
    ctx.register_record_batches("t", [[rows.slice(0, 50)], [rows.slice(50, 1), rows.slice(51)]])
    sql = "SELECT id, random_uniform(3, id) AS u FROM t GROUP BY id, random_uniform(3, id) ORDER BY id"
    np.testing.assert_array_equal(columns(ctx, sql)[1], random.uniform(3, range(200)))


def test_a_number_is_the_same_wherever_it_is_computed(ctx: SessionContext) -> None:
    """It is a constant of its row, so a query that is read twice draws the same."""
    ctx.from_pydict({"id": list(range(50))}, name="t")
    once = "SELECT id, random_normal(1, id) AS r FROM t"
    sql = f"SELECT COUNT(*) AS n FROM ({once}) AS a JOIN ({once}) AS b ON a.id = b.id AND a.r = b.r"
    assert columns(ctx, sql)[0][0] == 50
    folded, computed = columns(ctx, "SELECT random_normal(1, 7), random_normal(1, id) FROM t WHERE id = 7")
    assert folded == computed


@pytest.mark.parametrize("typed", ["TINYINT", "SMALLINT UNSIGNED", "INT", "BIGINT", "BIGINT UNSIGNED"])
def test_whole_numbers_of_all_types(ctx: SessionContext, typed: str) -> None:
    ctx.sql(f"CREATE TABLE t AS SELECT CAST(v AS {typed}) AS k FROM (VALUES (5), (NULL)) AS t(v)").collect()
    seed, key, both = columns(
        ctx, "SELECT random_uniform(k, 3), random_uniform(3, k), random_normal(k, 1, k) FROM t ORDER BY k"
    )
    assert [seed[0], key[0]] == [random.uniform(5, 3), random.uniform(3, 5)]
    assert both[0] == pytest.approx(float(random.normal(5, 1, 5)), abs=1e-14)
    assert np.isnan([seed[1], key[1], both[1]]).all()
    table = ctx.sql("SELECT random_uniform(k, 3) AS u, random_uniform(NULL, 3) AS v FROM t").to_arrow_table()
    assert table["u"].null_count == 1
    assert table["v"].null_count == 2
    assert table.schema.types == [pa.float64(), pa.float64()]


def test_rows_by_their_numbers_and_dictionaries(ctx: SessionContext) -> None:
    ctx.from_pydict({"x": [3.0, 1.0, 2.0]}, name="t")
    sql = "SELECT random_uniform(1, ROW_NUMBER() OVER (ORDER BY x)) AS u FROM t ORDER BY x"
    np.testing.assert_array_equal(columns(ctx, sql)[0], random.uniform(1, [1, 2, 3]))
    (found,) = columns(ctx, "SELECT random_uniform(1, arrow_cast(3, 'Dictionary(Int32, Int64)')) AS u")
    assert found == random.uniform(1, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("random_uniform(1)", "takes a seed and from 1 to 4 keys, not 1 argument: random_uniform"),
        ("random_normal(1, 2, 3, 4, 5, 6)", "takes a seed and from 1 to 4 keys, not 6 arguments: random_normal"),
        ("random_uniform(1, 2.5)", r"random_uniform takes whole numbers, not Float64: CAST\(... AS BIGINT\)"),
        ("random_uniform('a', 2)", "random_uniform takes whole numbers, not Utf8"),
        ("random_uniform(TRUE, 2)", "random_uniform takes whole numbers, not Boolean"),
        ("random_uniform(1, 9223372036854775808)", "9223372036854775808"),
    ],
)
def test_what_is_refused(ctx: SessionContext, call: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        ctx.sql(f"SELECT {call}").collect()


def test_what_numpy_refuses() -> None:
    with pytest.raises(TypeError, match="uniform takes a seed and from 1 to 4 keys, not 0 keys"):
        random.uniform(1)
    with pytest.raises(TypeError, match="normal takes whole numbers of 64 bits, not"):
        random.normal(1, [0.5])
    with pytest.raises(OverflowError, match="below 2"):
        random.uniform(1, 2**63)
    assert random.uniform(1, [[1], [2]], [3, 4, 5]).shape == (2, 3)


# What ties numbers together that are to have nothing to do with one another: neighbours of each kind.
IDS = np.arange(20_000)
STREAMS = {
    "uniform": random.uniform(11, IDS),
    "another seed": random.uniform(12, IDS),
    "the next key": random.uniform(11, IDS + 1),
    "another stream": random.uniform(11, IDS, 0),
    "its other place": random.uniform(11, 0, IDS),
    "a third key": random.uniform(11, IDS, 0, 0),
    "by seeds": random.uniform(IDS, 11),
    "normal": stats.norm.cdf(random.normal(11, IDS)),
    "normal by seeds": stats.norm.cdf(random.normal(IDS, 11)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_distribution(name: str) -> None:
    assert stats.kstest(STREAMS[name], "uniform").pvalue > 0.01
    # Beyond what the distribution of all says: neighbours are independent.
    assert abs(np.corrcoef(STREAMS[name][1:], STREAMS[name][:-1])[0, 1]) < 0.03


def test_streams_are_independent() -> None:
    correlations = np.corrcoef(list(STREAMS.values())) - np.eye(len(STREAMS))
    assert np.abs(correlations).max() < 0.03
    normal = random.normal(5, np.arange(100_000))
    assert stats.kstest(normal, "norm").pvalue > 0.01
    assert stats.kurtosis(normal) == pytest.approx(0, abs=0.05)


def extended(*, functions: bool) -> SessionContext:
    made: Any = SessionContext()
    extended: SessionContext = made.with_extensions(xql_ffi.Extension(functions=functions))
    return extended


@pytest.mark.skipif(not _session.is_supported(), reason="extensions are of datafusion 55")
def test_by_an_extension() -> None:
    ctx = extended(functions=True)
    ctx.from_pydict({"x": [0.5]}, name="t")
    sql = "SELECT grad(erf(x) + random_normal(1, 2) * x, x) AS d FROM t"
    expected = 2 / np.sqrt(np.pi) * np.exp(-0.25) + random.normal(1, 2)
    assert ctx.sql(sql).to_pydict()["d"] == [pytest.approx(float(expected))]
    plain = extended(functions=False)
    with pytest.raises(Exception, match="Invalid function 'random_normal'"):
        plain.sql("SELECT random_normal(1, 2)")
