"""Statements of a size: the same without derivatives, and with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from datafusion import DataFrame, SessionContext, col, lit
from datafusion import functions as f

import xql_ffi

Columns = Mapping[str, list[float]]


@dataclass(frozen=True)
class Shape:
    """A family of statements over tables, by its size."""

    tables: Callable[[int], Mapping[str, Columns]]
    without: Callable[[int], str]
    derived: Callable[[int], str]


def _x(_: int) -> Mapping[str, Columns]:
    return {"t": {"x": [0.5, 1.25], "y": [2.0, 3.0]}}


def _of(expression: Callable[[int], str]) -> Shape:
    """A shape of one expression of x over the table t."""
    return Shape(
        _x, lambda n: f"SELECT {expression(n)} AS v FROM t", lambda n: f"SELECT grad({expression(n)}, x) AS d FROM t"
    )


def _nested(step: str, first: str = "x") -> Callable[[int], str]:
    head, tail = step.split("{}")
    return lambda n: head * n + first + tail * n


def _in_halves(n: int) -> str:
    """A sum of some n nodes, in halves: DataFusion itself takes the square of the length of `a + b + c + ...`."""

    def total(first: int, count: int) -> str:
        if count == 1:
            # With the sum above it, five nodes and two columns or literals more.
            return f"sin(x * {first}.5) * y"
        half = count // 2
        return f"({total(first, half)} + {total(first + half, count - half)})"

    return total(0, max(n // 7, 1))


def _conditions(n: int) -> str:
    return " AND ".join(["y > 1"] * n)


def _weights(n: int) -> Mapping[str, Columns]:
    return {"t": {f"w{i}": [i / n, 1.0] for i in range(n)}}


def _select(call: str) -> Callable[[int], str]:
    return lambda n: f"SELECT {', '.join(call.format(i) for i in range(n))} FROM t"


def _ctes(last: str) -> Callable[[int], str]:
    def statement(n: int) -> str:
        steps = ", ".join(f"c{i} AS (SELECT x, y, sin(v) * y + x AS v FROM c{i - 1})" for i in range(1, n + 1))
        return f"WITH c0 AS (SELECT x, y, x * y AS v FROM t), {steps} SELECT {last} FROM c{n}"

    return statement


def _layers(last: str) -> Callable[[int], str]:
    """A network whose weights are rows, a matrix for each layer."""

    def statement(n: int) -> str:
        layers = ", ".join(
            f"h{i} AS (SELECT w.out AS unit, tanh(SUM(w.val * h{i - 1}.v)) AS v FROM h{i - 1} JOIN w "
            f"ON w.inp = h{i - 1}.unit AND w.layer = {i} GROUP BY w.out)"
            for i in range(1, n + 1)
        )
        return f"WITH h0 AS (SELECT unit, v FROM given), {layers}, l AS (SELECT SUM(v * v) AS l FROM h{n}) {last}"

    return statement


def _network(n: int) -> Mapping[str, Columns]:
    rows = [(layer, inp, out) for layer in range(1, n + 1) for inp in range(3) for out in range(3)]
    return {
        "given": {"unit": [0, 1, 2], "v": [0.5, -0.25, 1.0]},
        "w": {
            "layer": [layer for layer, _, _ in rows],
            "inp": [inp for _, inp, _ in rows],
            "out": [out for _, _, out in rows],
            "val": [0.3 * (inp - out) + 0.5 for _, inp, out in rows],
        },
    }


SHAPES = {
    # Deep.
    "functions in one another": _of(_nested("sin({})")),
    "Horner's scheme": _of(_nested("({} * x + 1.5)")),
    "CASE in one another": _of(_nested("CASE WHEN y > 1 THEN {} ELSE y END")),
    "parentheses": _of(_nested("({})", "x * x")),
    # Wide.
    "terms of a sum": _of(lambda n: " + ".join(f"{i} * x" for i in range(n))),
    "nodes of a sum in halves": _of(_in_halves),
    "factors of a product": _of(lambda n: " * ".join(["x"] * n)),
    "branches of CASE": _of(
        lambda n: "CASE " + " ".join(f"WHEN y < {i} THEN x * {i}" for i in range(n)) + " ELSE x END"
    ),
    "arguments of greatest": _of(lambda n: f"greatest({', '.join(f'x * {i}' for i in range(n))})"),
    "conditions": _of(lambda n: "CASE WHEN " + " AND ".join(f"y > {i}" for i in range(n)) + " THEN x * x ELSE x END"),
    "conditions of WHERE": Shape(
        _x,
        lambda n: f"SELECT x * x AS v FROM t WHERE {_conditions(n)}",
        lambda n: f"SELECT grad(x * x, x) AS d FROM t WHERE {_conditions(n)}",
    ),
    "columns of expressions": Shape(
        _x, _select("sin(x * {0}.5) * y + cos(x) AS v{0}"), _select("grad(sin(x * {0}.5) * y + cos(x), x) AS d{0}")
    ),
    # Columns, calls, relations.
    "columns of a table": Shape(
        _weights,
        lambda n: f"SELECT *, w0 * w{n - 1} AS v FROM t",
        lambda n: f"SELECT *, grad(w0 * w{n - 1}, w0) AS d FROM t",
    ),
    "calls": Shape(_weights, _select("w{0} * w{0} AS v{0}"), _select("grad(w{0} * w{0}, w{0}) AS d{0}")),
    "CTEs one on another": Shape(_x, _ctes("v"), _ctes("grad(v, x) AS d")),
    "layers by row": Shape(
        _network,
        _layers("SELECT l FROM l"),
        _layers("SELECT layer, inp, out, grad((SELECT l FROM l), val) AS d FROM w"),
    ),
}


def _deep(ctx: SessionContext, n: int) -> DataFrame:
    expression = col("x")
    for _ in range(n):
        expression = f.sin(expression)
    return ctx.table("t").select(xql_ffi.grad(expression, "x").alias("d"))


def _long(ctx: SessionContext, n: int) -> DataFrame:
    expression = col("x")
    for i in range(n):
        expression = expression + col("x") * lit(float(i))
    return ctx.table("t").select(xql_ffi.grad(expression, "x").alias("d"))


def _gradient(ctx: SessionContext, n: int) -> DataFrame:
    names = [f"w{i}" for i in range(n)]
    return ctx.table("t").select(*xql_ffi.gradient(col(names[0]) * col(names[-1]), names))


def _frames(ctx: SessionContext, n: int) -> DataFrame:
    frame = ctx.sql("SELECT x, y, x * y AS v FROM t")
    for _ in range(n):
        frame = frame.select(col("x"), col("y"), (f.sin(col("v")) * col("y") + col("x")).alias("v"))
    return frame.select(xql_ffi.grad(col("v"), "x").alias("d"))


# The same by the DataFrame API: over the tables of a shape.
FRAMES: dict[str, tuple[str, Callable[[SessionContext, int], DataFrame]]] = {
    "functions in one another": ("functions in one another", _deep),
    "terms of a sum": ("terms of a sum", _long),
    "variables of a gradient": ("calls", _gradient),
    "frames one on another": ("CTEs one on another", _frames),
}


def schemas(shape: Shape, n: int) -> dict[str, pa.Schema]:
    """The tables as text expansion takes them."""
    return {name: pa.table(columns).schema for name, columns in shape.tables(n).items()}
