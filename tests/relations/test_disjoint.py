"""Full joins of rows that are apart by literals are unions in statements with calls, of the same rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

import xql_ffi
from support.choices import Choices
from support.compare import rows_of
from support.seed import SEED
from support.sessions import session

TABLES = {
    "u": {"k": [1, 2, None], "val": [0.5, None, -2.0], "n": [1, 2, 3]},
    "v": {"k": [2, 3, 3], "val": [1.5, 2.5, None], "n": [0, 2, 5]},
    "w": {"k": [1], "val": [4.0], "n": [7]},
}
KINDS = ["apart", "apart", "apart", "equal", "by column", "floats", "null", "text"]


def statement(choices: Choices) -> tuple[str, str]:
    """A statement over full joins and one more column of it, which is a call or what that is."""
    count = 2 + choices.below(4)
    kind = choices.of(KINDS)
    keys = {
        "apart": [str(n) for n in range(count)],
        "equal": [str(n // 2) for n in range(count)],
        "by column": ["n"] * count,
        "floats": ["0.0", "-0.0", "1.0", "2.0", "3.0"][:count],
        "null": ["CAST(NULL AS BIGINT)"] * count,
        "text": [f"'{n}'" for n in range(count)],
    }[kind]
    tables = [choices.of(["u", "v", "w"]) for _ in range(count)]
    parts = []
    for n, (table, key) in enumerate(zip(tables, keys, strict=True)):
        rows = f"(SELECT *, {key} AS part FROM {table}) r{n}"
        if choices.chance(20):
            rows = f"(SELECT k, val, n + 1 AS n, part FROM {rows} WHERE n < 5) r{n}"
        parts.append(rows)

    def joined(begin: int, end: int) -> str:
        if end - begin == 1:
            return parts[begin]
        middle = begin + 1 + choices.below(end - begin - 1)
        one, other = f"r{begin}.part", f"r{middle}.part"
        if kind != "text" and choices.chance(30):
            other = f"coalesce({other}, -1)"
        if choices.chance(30):
            one, other = other, one
        how = "LEFT" if choices.chance(5) else "FULL"
        return f"({joined(begin, middle)} {how} JOIN {joined(middle, end)} ON {one} = {other})"

    rows = joined(0, count)
    if choices.chance(40):
        rows += " CROSS JOIN (SELECT SUM(val) AS total, MAX(val) AS most FROM v) s"
    if choices.chance(20):
        rows += " CROSS JOIN w AS z"

    def column(name: str) -> str:
        return f"r{choices.below(count)}.{name}"

    def number(depth: int) -> str:
        form = choices.below(7) if depth else 0
        if form == 1:
            return f"coalesce({', '.join(number(depth - 1) for _ in range(1 + choices.below(3)))})"
        if form == 2:
            return f"CASE WHEN {column('k')} IS NOT NULL THEN {number(depth - 1)} ELSE {number(depth - 1)} END"
        if form == 3:
            return f"CASE WHEN {column('val')} IS NOT NULL THEN {number(depth - 1)} END"
        if form == 4:
            return f"({number(depth - 1)} + {number(depth - 1)})"
        if form == 5:
            first, other = (
                f"WHEN {when} THEN {number(depth - 1)}" for when in (f"{column('n')} > 1", f"{column('k')} IS NULL")
            )
            return f"CASE {first} {other} END"
        if form == 6:
            return choices.of([f"CAST({column('n')} AS DOUBLE)", "1.0", "CAST(NULL AS DOUBLE)"])
        return column("val")

    selected = [f"{number(3)} AS c{place}" for place in range(1 + choices.below(4))]
    selected += [f"coalesce({', '.join(f'r{n}.k' for n in range(count))}) AS k"]
    where = " WHERE " + f"{column('n')} IS NOT NULL" if choices.chance(15) else ""
    if choices.chance(30):
        inner = ", ".join(f"{number(2)} AS e{place}" for place in range(2))
        inner += "".join(f", r{n}.k AS k{n}, r{n}.val AS val{n}" for n in range(count))
        outer = "e0, coalesce(e1, val0, val1) AS e, CASE WHEN k0 IS NULL THEN val1 ELSE e1 END AS f"
        return f"SELECT {outer}, {{}} AS d FROM (SELECT {inner} FROM {rows}{where}) q", "val1"
    return f"SELECT {', '.join(selected)}, {{}} AS d FROM {rows}{where}", column("val")


def counted(table: pa.Table) -> Counter[str]:
    """The rows, in no order."""
    return Counter(map(repr, rows_of(table)))


def statements() -> Iterator[tuple[str, str]]:
    choices = Choices(random.Random(SEED))
    for _ in range(150):
        yield statement(choices)


def test_rows_are_those_of_the_join() -> None:
    """The derivative of a column by itself is 1 where it is not NULL."""
    ctx = session(TABLES)
    unions = 0
    for sql, column in statements():
        expected = ctx.sql(sql.format(f"CASE WHEN {column} IS NOT NULL THEN 1.0 END")).to_arrow_table()
        called = sql.format(f"grad({column}, {column})")
        assert counted(ctx.sql(called).to_arrow_table()) == counted(expected), called
        unions += "Union" in ctx.sql(called).optimized_logical_plan().display_indent()
    assert unions > 15


@pytest.mark.parametrize(
    ("keys", "is_union"),
    [
        (("1", "2"), True),
        (("1", "1"), False),
        (("0.0", "-0.0"), False),
        (("n", "n + 100"), False),
    ],
)
def test_which_joins_are_unions(keys: tuple[str, str], is_union: bool) -> None:
    one, other = keys
    sql = f"""SELECT coalesce(a.n, b.n) AS n, grad(a.val * a.val, a.val) AS d
        FROM (SELECT *, {one} AS part FROM u) a FULL JOIN (SELECT *, {other} AS part FROM v) b ON a.part = b.part"""
    plan = session(TABLES).sql(sql).optimized_logical_plan().display_indent()
    assert ("Union" in plan) == is_union, plan
    assert ("Full Join" in plan) != is_union, plan


ROWS = "(SELECT *, 1 AS p FROM u) a FULL JOIN (SELECT *, 2 AS p FROM v) b ON a.p = b.p"
D = "CASE WHEN b.val IS NOT NULL THEN 1.0 END"


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT a.val, b.val, {{}} AS d FROM {ROWS}",
        f"SELECT *, {{}} AS d FROM {ROWS}",
        f"SELECT coalesce(a.val, b.val) AS e, {{}} AS d FROM {ROWS} ORDER BY a.val, b.val",
        f"SELECT coalesce(a.val, b.val) AS e, {{}} AS d FROM {ROWS} ORDER BY b.n * 2, a.n",
        f"SELECT coalesce(b.val, 1.0) AS e, {{}} AS d FROM {ROWS}",
        f"SELECT 'a' AS e, CASE WHEN b.val IS NOT NULL THEN b.val ELSE 1.0 END AS f, {{}} AS d FROM {ROWS}",
    ],
)
def test_columns_of_one_name_and_without_null(select: str) -> None:
    ctx = session(TABLES)
    expected, called = (ctx.sql(select.format(d)).to_arrow_table() for d in (D, "grad(b.val, b.val)"))
    assert called.schema.names == expected.schema.names
    assert counted(called) == counted(expected)


def test_types_of_columns_stay() -> None:
    """A union has of an extension type what all branches have of it, and a branch without the column has nothing."""
    rows = pa.table({"id": pa.array([b"x" * 16], pa.uuid()), "val": [2.0]})
    found = xql_ffi.gradients(
        session({"a": rows, "b": rows}), "SELECT SUM(a.val * b.val) FROM a CROSS JOIN b", ["a.val", "b.val"]
    )
    assert found.by["a"].schema().field("id").type == pa.uuid()
    assert found.by["b"].to_pydict()["d_val"] == [2.0]
