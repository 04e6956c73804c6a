"""Random stacks of window functions over rows with cells, as SQL and as functions of the cells in JAX."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Cells = jax.Array
Values = Callable[[Cells], Sequence[jax.Array]]
Mask = NDArray[np.bool_]

# Rows: what partitions and orders them, a number, and a value; h splits what g has together.
ROWS: list[tuple[int, int, int, int, float, float | None]] = [
    (1, 1, 1, 10, 0.7, 0.9),
    (2, 1, 1, 20, -0.4, 1.6),
    (3, 1, 2, 20, 1.1, None),
    (4, 1, 2, 30, 0.3, -0.8),
    (5, 2, 1, 10, 0.8, 1.6),
    (6, 2, 1, 30, -1.2, 1.6),
    (7, 2, 2, 20, 0.5, 0.4),
    (8, 2, 2, 50, 1.3, -1.1),
]
PARAMETERS = [0.7, -1.3]


@dataclass(frozen=True)
class Rows:
    """Where the rows of a stack come from, the cell of x in each of them, and the values of the cells."""

    sql: str
    rows: Sequence[tuple[int, int, int, int, float]]
    cell: Sequence[int | None]
    values: Sequence[float]


@dataclass(frozen=True)
class Expression:
    """A value of each row: in SQL, by the cells, and where it is NULL."""

    sql: str
    values: Values
    null: Mask


@dataclass(frozen=True)
class Window:
    """The rows of the frame of each row, in order, and how the window is written."""

    sql: str
    frames: Sequence[Sequence[int]]
    partitions: Sequence[Sequence[int]]
    is_whole: bool


def _data(columns: str) -> str:
    rows = ", ".join(
        f"({i}, {g}, {h}, {t}, {y!r}, {'CAST(NULL AS DOUBLE)' if x is None else repr(x)})" for i, g, h, t, y, x in ROWS
    )
    return f"SELECT {columns} FROM (VALUES {rows}) AS v(id, g, h, t, y, x)"


def rows_of_a_table() -> Rows:
    """Every row has a cell of its own."""
    cells = [number for number, row in enumerate(ROWS) if row[5] is not None]
    return Rows(
        _data("id, g, h, t, y, x"),
        [row[:5] for row in ROWS],
        [cells.index(number) if number in cells else None for number in range(len(ROWS))],
        [row[5] for row in ROWS if row[5] is not None],
    )


def rows_of_parameters(on: str) -> Rows:
    """A join repeats each cell: over the rows of a group, or over all rows."""
    parameters = ", ".join(f"({k}, {x!r})" for k, x in enumerate(PARAMETERS, 1))
    source = (
        "SELECT d.id * 10 + p.k AS id, g, p.k AS h, t + p.k AS t, y + 0.25 * p.k AS y, x "
        f"FROM ({_data('id, g, t, y')}) AS d JOIN (SELECT * FROM (VALUES {parameters}) AS q(k, x)) AS p ON {on}"
    )
    rows, cell = [], []
    for i, g, _, t, y, _ in ROWS:
        for k in range(1, len(PARAMETERS) + 1):
            if on == "true" or k == g:
                rows.append((i * 10 + k, g, k, t + k, y + 0.25 * k))
                cell.append(k - 1)
    return Rows(source, rows, cell, PARAMETERS)


class Stack:
    """A stack of windows, one on another."""

    def __init__(self, choices: random.Random, source: Rows) -> None:
        self.choices = choices
        self.source = source
        self.rows = source.rows
        count = len(self.rows)
        null = np.array([cell is None for cell in source.cell])
        self.x = Expression("x", lambda x: [x[c] if c is not None else jnp.zeros(()) for c in source.cell], null)
        self.y = Expression("y", lambda _: [jnp.asarray(row[4]) for row in self.rows], np.zeros(count, bool))
        self.levels = [source.sql]

    def written(self, listed: str) -> str:
        """A query over all levels."""
        ctes = ", ".join(f"l{number} AS ({text})" for number, text in enumerate(self.levels))
        return f"WITH {ctes} SELECT {listed} FROM l{len(self.levels) - 1} ORDER BY id"

    def named(self, value: Expression) -> Expression:
        """The value as a column of the next level."""
        name = f"c{len(self.levels)}"
        self.levels.append(f"SELECT *, {value.sql} AS {name} FROM l{len(self.levels) - 1}")
        return Expression(name, value.values, value.null)

    # Expressions

    def mixed(self, a: Expression, b: Expression) -> Expression:
        """A smooth function of two values."""
        forms: list[tuple[str, Callable[[jax.Array, jax.Array], jax.Array]]] = [
            ("{0} - {1}", lambda a, b: a - b),
            ("{0} * {1}", lambda a, b: a * b),
            ("sin({0}) + {1} * {1}", lambda a, b: jnp.sin(a) + b * b),
            ("exp(0.3 * ({0} - {1}))", lambda a, b: jnp.exp(0.3 * (a - b))),
            ("{0} / (2.0 + {1} * {1})", lambda a, b: a / (2 + b * b)),
        ]
        sql, function = self.choices.choice(forms)
        written = sql.format(a.sql, b.sql)
        return Expression(
            written,
            lambda x: [function(p, q) for p, q in zip(a.values(x), b.values(x), strict=True)],
            a.null | b.null,
        )

    # Windows

    def window(self, keys: Sequence[str], *, whole: bool, around: bool = False) -> Window:
        """A window over partitions by these keys, whole or with a frame, which may have to be around the row."""
        position = {"g": 1, "h": 2}
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, row in enumerate(self.rows):
            groups.setdefault(tuple(int(row[position[key]]) for key in keys), []).append(number)
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        if whole:
            frames = [next(g for g in groups.values() if n in g) for n in range(len(self.rows))]
            return Window(by, frames, frames, is_whole=True)
        kind = self.choices.choice(["rows", "range", "running", "groups"])
        order, key = ("t, id", (3, 0)) if kind == "rows" else ("t", (3,))
        low, high = self.choices.choice(
            [(-2, 0), (-1, 1), (0, 2)] if around else [(-2, 0), (-1, 1), (0, 2), (-2, -1), (1, 2)]
        )
        distance = 10 if kind == "range" else 1
        ordered = [
            sorted(group, key=lambda n: [float(self.rows[n][k]) for k in (*key, 0)]) for group in groups.values()
        ]
        frames = []
        for number in range(len(self.rows)):
            group = next(group for group in ordered if number in group)
            if kind == "rows":
                at = group.index(number)
                frames.append(group[max(0, at + low) : max(0, at + high + 1)])
                continue
            times = sorted({self.rows[n][3] for n in group})
            rank = times.index(self.rows[number][3])
            at = self.rows[number][3]

            def in_frame(n: int, rank: int = rank, at: int = at, times: Sequence[int] = times) -> bool:
                if kind == "running":
                    return self.rows[n][3] <= at
                if kind == "range":
                    return at + distance * low <= self.rows[n][3] <= at + distance * high
                return rank + low <= times.index(self.rows[n][3]) <= rank + high

            frames.append([n for n in group if in_frame(n)])
        partitions = [next(group for group in ordered if n in group) for n in range(len(self.rows))]
        if kind == "running":
            return Window(f"{by}ORDER BY {order}", frames, partitions, is_whole=False)
        bounds = [
            f"{abs(end) * distance} {'PRECEDING' if end < 0 else 'FOLLOWING'}" if end else "CURRENT ROW"
            for end in (low, high)
        ]
        frame = f"{kind.upper()} BETWEEN {bounds[0]} AND {bounds[1]}"
        return Window(f"{by}ORDER BY {order} {frame}", frames, partitions, is_whole=False)

    def aggregate(self, name: str, value: Expression, window: Window, *, filtered: bool = False) -> Expression:
        """An aggregate over a window, of a value or of a pair of it and y."""
        pairs = name in _PAIRS
        takes = [not value.null[n] and (not filtered or self.rows[n][4] > 0) for n in range(len(self.rows))]
        frames = [[n for n in frame if takes[n]] for frame in window.frames]
        least = _LEAST.get(name, 1)
        null = np.array([len(frame) < least for frame in frames])

        def values(x: Cells) -> list[jax.Array]:
            of, ys = value.values(x), self.y.values(x)
            found = []
            for frame in frames:
                if len(frame) < least:
                    found.append(jnp.zeros(()))
                    continue
                a = jnp.stack([of[n] for n in frame])
                b = jnp.stack([ys[n] for n in frame])
                found.append(_PAIRS[name](a, b) if pairs else _AGGREGATES[name](a))
            return found

        arguments = f"{value.sql}, y" if pairs else value.sql
        condition = " FILTER (WHERE y > 0)" if filtered else ""
        return Expression(f"{name}({arguments}){condition} OVER ({window.sql})", values, null)

    def choice(self, value: Expression, keys: Sequence[str]) -> Expression:
        """A function that has the value of one row."""
        window = self.window(keys, whole=True)
        ordered = [sorted(p, key=lambda n: (self.rows[n][3], self.rows[n][0])) for p in window.partitions]
        name, which = self.choices.choice(
            [("lag", -1), ("lag", -2), ("lead", 1), ("first_value", 0), ("nth_value", 2), ("last_value", -1)]
        )
        ignores = self.choices.random() < 0.3
        default = name in ("lag", "lead") and not ignores and self.choices.random() < 0.5
        picked: list[int | None] = []
        for number, partition in enumerate(ordered):
            at = partition.index(number)
            if name in ("lag", "lead"):
                step = 1 if which > 0 else -1
                ahead = partition[at + 1 :] if step > 0 else partition[:at][::-1]
                ahead = [n for n in ahead if not (ignores and value.null[n])]
                picked.append(ahead[abs(which) - 1] if abs(which) <= len(ahead) else None)
                continue
            frame = partition[: at + 1] if name != "last_value" else partition
            frame = [n for n in frame if not (ignores and value.null[n])]
            index = {"first_value": 0, "nth_value": 1, "last_value": -1}[name]
            picked.append(frame[index] if len(frame) > max(index, 0) else None)
        arguments = {"lag": f", {-which}", "lead": f", {which}", "nth_value": ", 2"}.get(name, "")
        arguments += ", 0.25" if default else ""
        frame_sql = " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING" if name == "last_value" else ""
        null = np.array([(not default) if n is None else value.null[n] for n in picked])

        def values(x: Cells) -> list[jax.Array]:
            of = value.values(x)
            return [jnp.asarray(0.25) if n is None else of[n] for n in picked]

        nulls = " IGNORE NULLS" if ignores else ""
        sql = f"{name}({value.sql}{arguments}){nulls} OVER ({window.sql}ORDER BY t, id{frame_sql})"
        return Expression(sql, values, null)

    # Derivatives

    def own(self, values: Values) -> Callable[[Cells], Sequence[jax.Array]]:
        """The derivative of each row's value by the row's own cell, 0 where it has none."""

        def derivative(x: Cells) -> list[jax.Array]:
            jacobian = jax.jacobian(lambda x: jnp.stack(values(x)))(x)
            return [jacobian[r, c] if c is not None else jnp.zeros(()) for r, c in enumerate(self.source.cell)]

        return derivative

    def rows_of(self, values: Values, null: Mask) -> list[tuple[object, ...]]:
        """What a query gives, in the order of the rows."""
        found = [float(value) for value in values(jnp.array(self.source.values))]
        order = sorted(range(len(self.rows)), key=lambda n: self.rows[n][0])
        return [(None if null[n] else found[n],) for n in order]


def _deviation(degrees: int) -> Callable[[jax.Array], jax.Array]:
    def value(a: jax.Array) -> jax.Array:
        variance = jnp.sum((a - jnp.mean(a)) ** 2) / (len(a) - degrees)
        # Of equal values the middle of the subdifferential.
        return jnp.where(variance > 1e-20, jnp.sqrt(jnp.where(variance > 1e-20, variance, 1.0)), 0.0)

    return value


def _median(a: jax.Array) -> jax.Array:
    ends = jnp.sort(jax.lax.stop_gradient(a))[jnp.array([(len(a) - 1) // 2, len(a) // 2])]
    # Equal values share evenly.
    means = [jnp.sum(jnp.where(a == end, a, 0.0)) / jnp.sum(a == end) for end in ends]
    return (means[0] + means[1]) / 2


def _covariance(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.mean((a - jnp.mean(a)) * (b - jnp.mean(b)))


_AGGREGATES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "sum": jnp.sum,
    "avg": jnp.mean,
    "min": jnp.min,
    "max": jnp.max,
    "median": _median,
    "var_pop": lambda a: jnp.mean((a - jnp.mean(a)) ** 2),
    "var": lambda a: jnp.sum((a - jnp.mean(a)) ** 2) / (len(a) - 1),
    "stddev_pop": _deviation(0),
    "stddev": _deviation(1),
}
_PAIRS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "covar_pop": _covariance,
    "regr_slope": lambda a, b: _covariance(a, b) / _covariance(b, b),
    "regr_intercept": lambda a, b: jnp.mean(a) - _covariance(a, b) / _covariance(b, b) * jnp.mean(b),
    "regr_sxx": lambda a, b: len(a) * _covariance(b, b) + 0 * jnp.sum(a),
    "regr_syy": lambda a, b: len(a) * _covariance(a, a) + 0 * jnp.sum(b),
    "regr_avgy": lambda a, b: jnp.mean(a) + 0 * jnp.sum(b),
}
# How many rows there must be for a value.
_LEAST = {"var": 2, "stddev": 2, "regr_slope": 2, "regr_intercept": 2}
WHOLE = [*_AGGREGATES, *_PAIRS]
MOVING = ["sum", "avg", "min", "max", "var_pop", "stddev", "regr_slope", "regr_syy"]
SMOOTH = ["sum", "avg", "var_pop", "covar_pop"]
