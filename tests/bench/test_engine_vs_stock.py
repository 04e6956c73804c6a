"""What `bench/engine_vs_stock.py` stands on: the comparison of rows, and the tables of the joins."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.programs import load

h2o, same_rows, engine_cases = (load(f"bench/{name}") for name in ("h2o", "same_rows", "engine_cases"))

Rows = dict[str, list[Any]]
ROWS: Rows = {"key": ["a", "b", "c"], "n": [1, None, 3], "x": [0.5, None, 1e6]}
SAME = ""


def difference(folder: Path, one: Rows, other: Rows, ordered: bool) -> str:
    for name, rows in {"one.npz": one, "other.npz": other}.items():
        # Batches are cut anywhere.
        batches = pa.table(rows).to_batches(max_chunksize=2 if name == "one.npz" else 3)
        same_rows.keep(batches, ordered, folder / name)
    return str(same_rows.difference(folder / "one.npz", folder / "other.npz"))


def reversed_rows(rows: Rows) -> Rows:
    return {name: column[::-1] for name, column in rows.items()}


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_are_the_same_as_themselves_but_for_the_last_digits(tmp_path: Path, ordered: bool) -> None:
    assert difference(tmp_path, ROWS, ROWS, ordered) == SAME
    assert difference(tmp_path, ROWS, ROWS | {"x": [0.5 * (1 + 1e-10), None, 1e6]}, ordered) == SAME


def test_order_counts_only_where_the_query_has_one(tmp_path: Path) -> None:
    assert difference(tmp_path, ROWS, reversed_rows(ROWS), ordered=False) == SAME
    assert difference(tmp_path, ROWS, reversed_rows(ROWS), ordered=True) != SAME


def test_rows_that_differ_in_floats_alone_are_paired_by_these(tmp_path: Path) -> None:
    rows: Rows = {"key": ["a", "a", "a"], "x": [2.0, 3.0, 1.0]}
    assert difference(tmp_path, rows, reversed_rows(rows), ordered=False) == SAME
    assert difference(tmp_path, rows, rows | {"x": [2.0, 3.0, 1.1]}, ordered=False) != SAME


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "other",
    [
        {"x": [0.5 * (1 + 1e-8), None, 1e6]},
        {"x": [0.5, float("nan"), 1e6]},
        {"x": [0.5, 0.0, 1e6]},
        {"n": [1, 0, 3]},
        {"key": ["a", "b", "d"]},
        {"more": [1.0, 2.0, 3.0]},
    ],
)
def test_a_difference_is_found(tmp_path: Path, other: Rows, ordered: bool) -> None:
    assert difference(tmp_path, ROWS, ROWS | other, ordered) != SAME


def test_rows_swapped_between_columns_are_a_difference(tmp_path: Path) -> None:
    rows: Rows = {"key": ["a", "b"], "x": [1.0, 2.0]}
    assert difference(tmp_path, rows, rows | {"x": [2.0, 1.0]}, ordered=False) != SAME


def test_fewer_rows_are_a_difference(tmp_path: Path) -> None:
    for count in (2, 0):
        fewer = {name: column[:count] for name, column in ROWS.items()}
        assert difference(tmp_path, ROWS, fewer, ordered=False) != SAME


def test_only_the_order_of_the_whole_query_counts() -> None:
    assert engine_cases.in_order("WITH t AS (SELECT 1 AS a) SELECT a FROM t ORDER BY a LIMIT 3")
    assert not engine_cases.in_order("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)")
    assert not engine_cases.in_order("SELECT row_number() OVER (ORDER BY a) FROM t")


def test_nine_tenths_of_the_keys_of_the_joins_match() -> None:
    tables = dict(h2o.joined(np.random.default_rng(1), 100_000))
    assert {name: len(table) for name, table in tables.items()} == {
        "x": 100_000,
        "small": 10,
        "medium": 100,
        "big": 100_000,
    }
    for name, key in {"small": "id1", "medium": "id2", "big": "id3"}.items():
        left, right = (pc.unique(tables[table][key]) for table in ("x", name))
        assert len(right) == len(tables[name]), "each key is in the table on the right once"
        assert pc.sum(pc.is_in(left, right)).as_py() == 0.9 * len(left)
        assert tables[name][f"id{int(key[2]) + 3}"][0].as_py() == f"id{tables[name][key][0]}"
