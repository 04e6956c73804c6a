"""The tables and queries of the h2o.ai database benchmark, ten with GROUP BY and five joins, for `engine_vs_stock.py`.

The tables have the distributions of the benchmark's generators, without NULLs and unsorted, from NumPy's random
numbers instead of R's. At scale 1 they have 2,500,000 rows; the smallest size of the benchmark is scale 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from datafusion import SessionContext
    from engine_cases import Case

    Integers = np.ndarray[Any, np.dtype[np.int64]]

GROUPS = 100  # large groups; small ones have about as many rows

GROUP_BY = {
    "sum by id1": "SELECT id1, sum(v1) AS v1 FROM g GROUP BY id1",
    "sum by id1, id2": "SELECT id1, id2, sum(v1) AS v1 FROM g GROUP BY id1, id2",
    "sum, mean by id3": "SELECT id3, sum(v1) AS v1, avg(v3) AS v3 FROM g GROUP BY id3",
    "means by id4": "SELECT id4, avg(v1) AS v1, avg(v2) AS v2, avg(v3) AS v3 FROM g GROUP BY id4",
    "sums by id6": "SELECT id6, sum(v1) AS v1, sum(v2) AS v2, sum(v3) AS v3 FROM g GROUP BY id6",
    "median, deviation by id4, id5": "SELECT id4, id5, median(v3) AS m, stddev(v3) AS s FROM g GROUP BY id4, id5",
    "range by id3": "SELECT id3, max(v1) - min(v2) AS r FROM g GROUP BY id3",
    "largest two by id6": "SELECT id6, v3 FROM (SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) "
    "AS place FROM g WHERE v3 IS NOT NULL) WHERE place <= 2",
    "regression by id2, id4": "SELECT id2, id4, power(corr(v1, v2), 2) AS r2 FROM g GROUP BY id2, id4",
    "sum, count by all": "SELECT id1, id2, id3, id4, id5, id6, sum(v3) AS v3, count(*) AS n FROM g "
    "GROUP BY id1, id2, id3, id4, id5, id6",
}
JOIN = {
    "small inner on int": "SELECT x.*, y.id4 AS y4, y.v2 FROM x JOIN small AS y ON x.id1 = y.id1",
    "medium inner on int": "SELECT x.*, y.id1 AS y1, y.id4 AS y4, y.id5 AS y5, y.v2 FROM x JOIN medium AS y "
    "ON x.id2 = y.id2",
    "medium outer on int": "SELECT x.*, y.id1 AS y1, y.id4 AS y4, y.id5 AS y5, y.v2 FROM x LEFT JOIN medium AS y "
    "ON x.id2 = y.id2",
    "medium inner on text": "SELECT x.*, y.id1 AS y1, y.id2 AS y2, y.id4 AS y4, y.v2 FROM x JOIN medium AS y "
    "ON x.id5 = y.id5",
    "big inner on int": "SELECT x.*, y.id1 AS y1, y.id2 AS y2, y.id4 AS y4, y.id5 AS y5, y.id6 AS y6, y.v2 "
    "FROM x JOIN big AS y ON x.id3 = y.id3",
}


def text(numbers: Integers, digits: int = 1) -> pa.Array:
    """`id` and each number, with zeros before it up to so many digits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise("id", pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), digits, "0"), "")


def values(rng: np.random.Generator, rows: int, decimals: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Floats from 0 to 100 with few decimals."""
    import numpy as np

    return np.round(rng.uniform(0, 100, rows), decimals)


def groups(rng: np.random.Generator, rows: int) -> pa.Table:
    """The table of the queries with GROUP BY."""
    import pyarrow as pa

    def draw(largest: int) -> Integers:
        return rng.integers(1, largest, rows, endpoint=True)

    return pa.table(
        {
            "id1": text(draw(GROUPS), 3),
            "id2": text(draw(GROUPS), 3),
            "id3": text(draw(rows // GROUPS), 10),
            "id4": draw(GROUPS),
            "id5": draw(GROUPS),
            "id6": draw(rows // GROUPS),
            "v1": draw(5),
            "v2": draw(15),
            "v3": values(rng, rows, 6),
        }
    )


def joined(rng: np.random.Generator, rows: int) -> Iterator[tuple[str, pa.Table]]:
    """The left table `x` of the joins and the three right ones.

    Of the keys of each column, nine tenths are in both tables, one tenth is on the left and another on the right only.
    """
    import numpy as np
    import pyarrow as pa

    sizes = {"small": max(rows // 1_000_000, 10), "medium": max(rows // 1_000, 10), "big": rows}
    keys = [rng.permutation(size * 11 // 10) + 1 for size in sizes.values()]
    for name, size in {"x": rows, **sizes}.items():
        columns: dict[str, Any] = {}
        count = 3 if name == "x" else list(sizes).index(name) + 1
        for number, (key, distinct) in enumerate(zip(keys[:count], sizes.values(), strict=False), 1):
            both = distinct * 9 // 10
            own = key[:distinct] if name == "x" else np.concatenate([key[:both], key[distinct:]])
            # Every key is there, and the others are drawn.
            drawn = rng.permutation(np.concatenate([own, rng.choice(own, size - len(own))]))
            columns |= {f"id{number}": drawn, f"id{number + 3}": text(drawn)}
        yield name, pa.table({**dict(sorted(columns.items())), "v1" if name == "x" else "v2": values(rng, size, 6)})


def make(folder: Path, scale: float) -> None:
    """Writes all tables as parquet files."""
    import numpy as np
    import pyarrow.parquet

    rng, rows = np.random.default_rng(108), round(2_500_000 * scale)
    pyarrow.parquet.write_table(groups(rng, rows), folder / "g.parquet")
    for name, table in joined(rng, rows):
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")


def cases(ctx: SessionContext, folder: Path) -> Iterator[Case]:
    """Every query, planned and run over the parquet files."""
    from engine_cases import planned_and_run

    for table in folder.glob("*.parquet"):
        ctx.register_parquet(table.stem, table)
    yield from planned_and_run(ctx, "h2o group by", GROUP_BY)
    yield from planned_and_run(ctx, "h2o join", JOIN)
