"""Gradients by row through window functions over frames of all kinds, against frames that are looked for row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from datafusion import SessionContext

from support import differences, sessions
from support.cases import query

Cell = float | None
ROWS = 14
WEIGHTS = [0.3 + 0.1 * row for row in range(ROWS)]


def table(seed: int, *, nulls: bool = True) -> dict[str, list[Any]]:
    """Rows in no order: `id` is a key, `t` an order in which some are equal, `p` a partition, `x` the variable."""
    draw = Random(seed)
    ids = draw.sample(range(100), ROWS)
    may_be_null = 0.15 if nulls else 0.0

    def known(value: Any) -> Any:
        return None if draw.random() < may_be_null else value

    return {
        "id": ids,
        "t": [known(draw.randrange(8)) for _ in ids],
        "p": [known(draw.randrange(3)) for _ in ids],
        "x": [known(round(draw.uniform(-2, 2), 3)) for _ in ids],
        "c": WEIGHTS,
    }


@dataclass(frozen=True)
class Window:
    """A window function, as SQL and as what it means."""

    function: str
    argument: str = ""
    partition: bool = False
    # The columns of the order, and whether they fall.
    order: tuple[str, ...] = ("id",)
    falls: bool = False
    nulls_first: bool = False
    units: str = "ROWS"
    # None is UNBOUNDED, and a negative number of rows is PRECEDING.
    start: int | None = None
    end: int | None = 0
    filtered: bool = False

    def sql(self, x: str = "x") -> str:
        """The call."""
        arguments = f"{x}{self.argument}"
        condition = " FILTER (WHERE id % 3 > 0)" if self.filtered else ""
        parts = ["PARTITION BY p"] if self.partition else []
        direction = f"{'DESC' if self.falls else 'ASC'} NULLS {'FIRST' if self.nulls_first else 'LAST'}"
        parts.append(f"ORDER BY {', '.join(f'{column} {direction}' for column in self.order)}")
        if self.function not in ("LAG", "LEAD"):
            parts.append(f"{self.units} BETWEEN {bound(self.start, 'PRECEDING')} AND {bound(self.end, 'FOLLOWING')}")
        return f"{self.function}({arguments}){condition} OVER ({' '.join(parts)})"

    def frames(self, rows: dict[str, list[Any]]) -> Iterator[tuple[int, list[int]]]:
        """Each row with the rows of its frame in their order."""
        partitions: dict[Any, list[int]] = {}
        for row in range(ROWS):
            partitions.setdefault(rows["p"][row] if self.partition else 0, []).append(row)
        for members in partitions.values():
            members.sort(key=lambda row: [self.place(rows[column][row]) for column in self.order])
            keys = [[rows[column][row] for column in self.order] for row in members]
            groups = [keys.index(key) for key in keys]
            ranks = {first: number for number, first in enumerate(sorted(set(groups)))}
            for place, row in enumerate(members):
                if self.units == "ROWS":
                    distances = [float(other - place) for other in range(len(members))]
                elif self.units == "GROUPS":
                    distances = [float(ranks[group] - ranks[groups[place]]) for group in groups]
                else:
                    distances = [self.distance(keys[place][0], key[0]) for key in keys]
                # A distance from NULL is NULL, which is that of the rows that are equal.
                is_from_null = self.units == "RANGE" and keys[place] == [None]
                frame = replace(self, start=self.start and 0, end=self.end and 0) if is_from_null else self
                yield row, [member for member, at in zip(members, distances, strict=True) if frame.has(at)]

    def place(self, value: int | None) -> tuple[int, int]:
        """Where a value stands in the order."""
        if value is None:
            return (-1 if self.nulls_first else 1, 0)
        return (0, -value if self.falls else value)

    def distance(self, own: int | None, other: int | None) -> float:
        """How far a value is from a row's own. NULLs are equal, and infinitely far from all others."""
        if own is None or other is None:
            return math.copysign(math.inf, self.place(other)[0] - self.place(own)[0]) if own != other else 0.0
        return float(own - other if self.falls else other - own)

    def has(self, distance: float) -> bool:
        """Whether a row at a distance is in the frame."""
        return (self.start is None or distance >= self.start) and (self.end is None or distance <= self.end)

    def values(self, rows: dict[str, list[Any]], x: Sequence[Cell]) -> list[Cell]:
        """The value in each row."""
        found: list[Cell] = [None] * ROWS
        for row, frame in replace(self, start=None, end=None).frames(rows) if self.shifts else self.frames(rows):
            if self.shifts:
                place = frame.index(row) + (-2 if self.function == "LAG" else 2)
                found[row] = x[frame[place]] if 0 <= place < len(frame) else 0.5
                continue
            members = [x[member] for member in frame if not self.filtered or rows["id"][member] % 3 > 0]
            found[row] = FUNCTIONS[self.function](members)
        return found

    @property
    def shifts(self) -> bool:
        """Whether it has no frame."""
        return self.function in ("LAG", "LEAD")


def bound(rows: int | None, unbounded: str) -> str:
    """A bound of a frame."""
    if rows is None:
        return f"UNBOUNDED {unbounded}"
    return "CURRENT ROW" if rows == 0 else f"{abs(rows)} {'PRECEDING' if rows < 0 else 'FOLLOWING'}"


def of_known(function: Callable[[list[float]], float]) -> Callable[[list[Cell]], Cell]:
    """A function of the values that are not NULL."""

    def value(cells: list[Cell]) -> Cell:
        known = [cell for cell in cells if cell is not None]
        return function(known) if known else None

    return value


FUNCTIONS: dict[str, Callable[[list[Cell]], Cell]] = {
    "SUM": of_known(sum),
    "AVG": of_known(lambda known: sum(known) / len(known)),
    "MIN": of_known(min),
    "MAX": of_known(max),
    "VAR_POP": of_known(lambda known: float(np.var(known))),
    "FIRST_VALUE": lambda cells: cells[0] if cells else None,
    "LAST_VALUE": lambda cells: cells[-1] if cells else None,
    "NTH_VALUE": lambda cells: cells[1] if len(cells) > 1 else None,
}


def drawn(seed: int) -> Window:
    """A random window."""
    draw = Random(seed)
    function = draw.choice(
        ["SUM", "SUM", "AVG", "AVG", "MIN", "MAX", "VAR_POP", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"]
    )
    function = draw.choice([function] * 6 + ["LAG", "LEAD"])
    units = "ROWS" if function in ("LAG", "LEAD") else draw.choice(["ROWS", "ROWS", "RANGE", "GROUPS"])
    # Which of equal rows comes first nobody says.
    one = function in ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
    window = Window(
        function,
        {"NTH_VALUE": ", 2", "LAG": ", 2, 0.5", "LEAD": ", 2, 0.5"}.get(function, ""),
        partition=draw.random() < 0.5,
        order=("t", "id") if units == "ROWS" else ("id",) if one else ("t",),
        falls=draw.random() < 0.4,
        nulls_first=draw.random() < 0.5,
        units=units,
        filtered=function in ("SUM", "AVG", "MIN", "MAX", "VAR_POP") and draw.random() < 0.3,
    )
    start, end = draw.choice(
        [(None, 0), (0, None), (None, -1), (1, None), (-2, 0), (-1, 2), (1, 3), (-3, -1), (0, 0), (-9, 9)]
    )
    return replace(window, start=start, end=end)


def session(rows: dict[str, list[Any]]) -> SessionContext:
    return sessions.session({"r": rows})


def loss(values: Sequence[Cell]) -> Cell:
    """The loss, NULL if all values are."""
    terms = [
        weight * (value * value + math.sin(value))
        for weight, value in zip(WEIGHTS, values, strict=True)
        if value is not None
    ]
    return sum(terms) if terms else None


LOSS = "l AS (SELECT SUM(c * (s * s + sin(s))) AS l FROM s)"


def expected(rows: dict[str, list[Any]], value: Callable[[list[Cell]], Cell]) -> list[Cell]:
    """The derivatives by each cell, by differences; NULL where that or the value is."""
    is_null = value(rows["x"]) is None

    def moved(row: int, step: float) -> Cell:
        cells = list(rows["x"])
        cells[row] += step
        return value(cells)

    return [
        None if cell is None or is_null else float(differences.central(partial(moved, row)))
        for row, cell in enumerate(rows["x"])
    ]


def gradient(ctx: SessionContext, rows: dict[str, list[Any]], model: str) -> list[Cell]:
    """The derivatives of `l` by the cells of the table, in its order."""
    found = query(ctx, f"WITH {model} SELECT id, grad((SELECT l FROM l), x) AS d FROM r").to_pylist()
    by_id = {row["id"]: row["d"] for row in found}
    assert len(found) == len(by_id) == ROWS
    return [by_id[key] for key in rows["id"]]


def assert_close(found: Sequence[Cell], wanted: Sequence[Cell]) -> None:
    assert [value is None for value in found] == [value is None for value in wanted]
    mine, differences_ = (np.array([0.0 if value is None else value for value in values]) for values in (found, wanted))
    np.testing.assert_allclose(mine, differences_, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(60))
def test_a_window(seed: int) -> None:
    window, rows = drawn(seed), table(seed)
    model = f"s AS (SELECT c, {window.sql()} AS s FROM r), {LOSS}"
    found = gradient(session(rows), rows, model)
    assert_close(found, expected(rows, lambda x: loss(window.values(rows, x))))


@pytest.mark.parametrize("seed", range(100, 108))
def test_several_windows_beside_one_another_and_one_on_another(seed: int) -> None:
    first, second, third = (replace(drawn(3 * seed + number), function="SUM", argument="") for number in range(3))
    second, third, rows = replace(second, function="AVG"), replace(third, function="AVG"), table(seed)
    model = f"""a AS (SELECT id, t, p, c, x, {first.sql("x * x")} AS a, {second.sql()} AS b FROM r),
        s AS (SELECT c, coalesce({third.sql("a")}, 0) + coalesce(b, 0) * x AS s FROM a), {LOSS}"""

    def value(x: list[Cell]) -> Cell:
        a = first.values(rows, [None if cell is None else cell * cell for cell in x])
        b, on_a = second.values(rows, x), third.values(rows, a)
        s = [None if cell is None else (u or 0.0) + (v or 0.0) * cell for cell, u, v in zip(x, on_a, b, strict=True)]
        return loss(s)

    found = gradient(session(rows), rows, model)
    assert_close(found, expected(rows, value))


@pytest.mark.parametrize("seed", range(200, 206))
def test_the_gradient_of_a_gradient(seed: int) -> None:
    """By each row, and along a direction that one row has."""
    window = replace(drawn(seed), function="AVG" if seed % 2 else "SUM", argument="")
    rows = table(seed, nulls=False)
    ctx = session(rows)

    def slopes(x: list[Cell]) -> list[float]:
        return [value or 0.0 for value in expected({**rows, "x": x}, lambda x: loss(window.values(rows, x)))]

    model = f"""s AS (SELECT c, {window.sql()} AS s FROM r), {LOSS.replace("l AS", "inner_l AS", 1)},
        g AS (SELECT grad((SELECT l FROM inner_l), x) AS g FROM r), l AS (SELECT SUM(g * g) AS l FROM g)"""
    found = gradient(ctx, rows, model)
    wanted = expected(rows, lambda x: sum(slope * slope for slope in slopes(x)))
    np.testing.assert_allclose(np.array(found, float), np.array(wanted, float), rtol=1e-5, atol=1e-5)

    along = f"""WITH e AS (SELECT 0.0 AS e), m AS (SELECT id, t, p, c, e, x + e * c AS x FROM r CROSS JOIN e),
        s AS (SELECT c, {window.sql()} AS s FROM m), {LOSS},
        g AS (SELECT id, e, grad((SELECT l FROM l), x) AS g FROM m)
        SELECT id, grad(g, e) AS d FROM g"""
    by_id = {row["id"]: row["d"] for row in query(ctx, along).to_pylist()}
    moved = differences.central(lambda step: slopes([x + step * c for x, c in zip(rows["x"], rows["c"], strict=True)]))
    np.testing.assert_allclose([by_id[key] for key in rows["id"]], moved, rtol=1e-5, atol=1e-5)


def test_windows_in_the_steps_of_a_recursion() -> None:
    rows = table(7, nulls=False)
    step = "0.5 * x + 0.25 * SUM(x) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)"
    statement = f"""WITH RECURSIVE m AS (SELECT 0 AS n, id, c, x FROM r UNION ALL
            SELECT n + 1, id, c, {step} FROM m WHERE n < 3),
        l AS (SELECT SUM(c * sin(x)) AS l FROM m WHERE n = 3)
        SELECT id, grad((SELECT l FROM l), x) AS d FROM r"""
    window = Window("SUM", start=-2, end=1)

    def value(x: list[Cell]) -> float:
        for _ in range(3):
            sums = window.values(rows, x)
            x = [0.5 * (cell or 0) + 0.25 * (total or 0) for cell, total in zip(x, sums, strict=True)]
        return sum(weight * math.sin(cell or 0) for weight, cell in zip(WEIGHTS, x, strict=True))

    found = {row["id"]: row["d"] for row in query(session(rows), statement).to_pylist()}
    assert_close([found[key] for key in rows["id"]], expected(rows, value))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("function", ["SUM", "AVG"])
def test_what_has_left_a_frame_does_not_count(function: str, bad: float) -> None:
    """Nothing is taken away again, so that neither NaN nor what is too large for others stays."""
    count = 9
    x = [float(row) for row in range(count)]
    x[3] = bad
    rows = {"id": list(range(count)), "x": x}
    sums = f"s AS (SELECT id, {function}(x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM r)"
    statement = f"WITH {sums}, l AS (SELECT SUM(s * s) AS l FROM s) SELECT id, grad((SELECT l FROM l), x) AS d FROM r"
    found = {row["id"]: row["d"] for row in query(sessions.session({"r": rows}), statement).to_pylist()}
    members = [[other for other in (row - 1, row) if other >= 0] for row in range(count)]
    of = [sum(x[row] for row in frame) / (1 if function == "SUM" else len(frame)) for frame in members]
    share = [1.0 if function == "SUM" else 1 / len(frame) for frame in members]
    for row in range(count):
        wanted = sum(2 * of[other] * share[other] for other in (row, row + 1) if other < count)
        assert found[row] == pytest.approx(wanted, rel=1e-14, nan_ok=True), row


def test_sums_over_frames_join_nothing() -> None:
    """So that they do not grow with the square of the rows."""
    rows = table(1)
    frames = [
        "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
        "RANGE UNBOUNDED PRECEDING",
        "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    ]
    for frame in frames:
        sums = f"s AS (SELECT SUM(x) OVER (PARTITION BY p ORDER BY t {frame}) AS s FROM r)"
        sums += ", l AS (SELECT SUM(s * s) AS l FROM s)"
        shown = query(
            session(rows), f"EXPLAIN WITH {sums} SELECT id, grad((SELECT l FROM l), x) AS d FROM r"
        ).to_pylist()
        plan = next(row["plan"] for row in shown if row["plan_type"] == "physical_plan")
        assert "NestedLoopJoin" not in plan, plan
        assert not [line for line in plan.splitlines() if "HashJoinExec" in line and "filter=" in line], plan
