"""Random well-typed expressions, and smaller ones of which they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

from hypothesis import strategies as st

from conformance.language import (
    CASTS,
    CONDITIONS,
    DOUBLE,
    KINKED,
    PIECEWISE_CONSTANT,
    SINGLE,
    SMOOTH,
    TRUTH,
    Operation,
)
from conformance.values import Comparisons, Value, constant

# Columns by name: type and whether they may be NULL.
COLUMNS: dict[str, tuple[Any, bool]] = {
    "x": (DOUBLE, False),
    "y": (DOUBLE, False),
    "z": (DOUBLE, True),
    "s": (SINGLE, False),
    "t": (SINGLE, True),
}
Row = Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression of SQL and its meaning."""

    sql: str
    dtype: Any
    operation: Operation | None = None
    operands: tuple[Expression, ...] = ()

    def __repr__(self) -> str:
        return self.sql

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it reads."""
        found = {name for operand in self.operands for name in operand.columns}
        return tuple(name for name in COLUMNS if name in found or name == self.sql)

    @cached_property
    def single(self) -> bool:
        """Whether single precision takes part."""
        return self.dtype == SINGLE or any(operand.single for operand in self.operands)

    def evaluate(self, row: Row, comparisons: Comparisons) -> Value:
        """Its value in JAX, each sub-expression that occurs more than once evaluated once."""
        return self._evaluate(row, comparisons, {})

    def _evaluate(self, row: Row, comparisons: Comparisons, known: dict[str, Value]) -> Value:
        if self.sql not in known:
            if self.operation:
                operands = [operand._evaluate(row, comparisons, known) for operand in self.operands]
                value = self.operation.apply(comparisons, operands)
            elif self.sql in row:
                value = row[self.sql]
            else:
                value = Value(constant(_number(self.sql), self.dtype), plain=True)
            known[self.sql] = value
        return known[self.sql]

    def smaller(self) -> Iterator[Expression]:
        """Simpler expressions of the same type: parts of it, and itself with a part replaced by a part of that."""
        for operand in self.operands:
            if operand.dtype == self.dtype:
                yield operand
        if self.operation:
            if self.dtype != TRUTH:
                yield column("x" if self.dtype == DOUBLE else "s")
            for number, operand in enumerate(self.operands):
                for replacement in operand.smaller():
                    operands = (*self.operands[:number], replacement, *self.operands[number + 1 :])
                    yield apply(self.operation, operands)


def _number(sql: str) -> float:
    return float(sql.removeprefix("CAST(").removesuffix(" AS REAL)").strip("()"))


def column(name: str) -> Expression:
    return Expression(name, COLUMNS[name][0])


def literal(value: float, dtype: Any) -> Expression:
    sql = f"({value})" if value < 0 else str(value)
    return Expression(sql if dtype == DOUBLE else f"CAST({value} AS REAL)", dtype)


def apply(operation: Operation, operands: tuple[Expression, ...]) -> Expression:
    truth = any(operation is condition for condition in CONDITIONS)
    dtype = TRUTH if truth else operation.type_of([operand.dtype for operand in operands])
    return Expression(f"({operation.sql.format(*operands)})", dtype, operation, operands)


_OPERATIONS = {o.sql: o for o in [*SMOOTH, *CASTS, *PIECEWISE_CONSTANT, *CONDITIONS, *KINKED]}


def build(sql: str, *operands: Expression | float) -> Expression:
    """The operation with this template; a number becomes a literal of the type of the operand beside it."""
    dtype = next(operand.dtype for operand in operands if isinstance(operand, Expression))
    given = (operand if isinstance(operand, Expression) else literal(operand, dtype) for operand in operands)
    return apply(_OPERATIONS[sql], tuple(given))


# Ways of bringing any operand to where a function is defined and not too steep, and leaving it as it is.
GUARDS: dict[str, list[Callable[[Expression], Expression]]] = {
    "": [lambda e: e],
    "positive": [
        lambda e: build("{0} + {1}", build("{0} * {0}", e), 0.5),
        lambda e: build("{0} + {1}", build("abs({0})", e), 0.25),
        lambda e: build("{0} + {1}", 1.5, build("cos({0})", e)),
        lambda e: e,
    ],
    "away": [
        lambda e: build("{0} + {1}", build("{0} * {0}", e), 0.5),
        lambda e: build("{0} + {1}", 2.5, e),
        lambda e: e,
    ],
    "unit": [
        lambda e: build("{0} * {1}", 0.9, build("sin({0})", e)),
        lambda e: build("tanh({0})", e),
        lambda e: build("{0} / {1}", e, build("{0} + {1}", build("abs({0})", e), 1.25)),
        lambda e: e,
    ],
    "small": [
        lambda e: build("sin({0})", e),
        lambda e: build("{0} / 4", e),
        lambda e: build("atan({0})", e),
        lambda e: e,
    ],
    # A base of 0 has the logarithm -inf, which leaves second derivatives to chance.
    "base": [
        lambda e: build("{0} + {1}", build("abs({0})", e), 1.5),
        lambda e: build("{0} + {1}", build("tanh({0})", e), 2.5),
    ],
    "argument": [
        lambda e: build("{0} + {1}", build("{0} * {0}", e), 0.5),
        lambda e: build("{0} + {1}", 1.5, build("cos({0})", e)),
        lambda e: e,
    ],
    "exponent": [
        lambda e: build("sin({0})", e),
        lambda e: build("{0} / 4", e),
        lambda e: e,
    ],
    "above one": [
        lambda e: build("{0} + {1}", build("{0} * {0}", e), 1.5),
        lambda e: build("{0} + {1}", 2.5, build("sin({0})", e)),
        lambda e: e,
    ],
}
NUMBERS = [0.5, 2.0, 3.0, 1.25, -0.75, -2.0, 1.0, 0.0, 10.0, 0.001]

# The shares of the kinds of operations, and of the types of columns and literals.
FAMILIES = [SMOOTH] * 12 + [KINKED] * 5 + [PIECEWISE_CONSTANT] + [CASTS]
MIXTURES = [(DOUBLE,)] * 3 + [(SINGLE,)] + [(DOUBLE, SINGLE)]


class _Growth:
    """One expression while it is drawn."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.types = draw(st.sampled_from(MIXTURES))
        # What has been drawn is used again now and then.
        self.pool: list[Expression] = []

    def number(self, operations: int) -> Expression:
        if not operations:
            return self.leaf()
        family = [o for o in self.draw(st.sampled_from(FAMILIES)) if o.always in (None, *self.types)]
        grown = self.operation(self.draw(st.sampled_from(family or SMOOTH[:10])), operations)
        self.pool.append(grown)
        return grown

    def operation(self, operation: Operation, operations: int) -> Expression:
        operands = []
        rest = operations - 1
        for kind, domain in zip_longest(operation.operands, operation.domains, fillvalue=""):
            share = self.draw(st.integers(0, rest))
            rest -= share
            if kind == "c":
                operands.append(self.condition(share))
            else:
                operand = self.number(share)
                if domain in ("exponent", "argument") and not operand.columns:
                    # DataFusion takes power(NULL, 0) for 1 if it sees the 0, and log(NULL, 1) for 0.
                    operand = self.column()
                operands.append(self.draw(st.sampled_from(GUARDS[domain]))(operand))
        return apply(operation, tuple(operands))

    def condition(self, operations: int) -> Expression:
        simple = [condition for condition in CONDITIONS if "c" not in condition.operands]
        return self.operation(self.draw(st.sampled_from(CONDITIONS if operations else simple)), max(operations, 1))

    def leaf(self) -> Expression:
        kind = self.draw(st.sampled_from(["column"] * 6 + ["literal"] * 2 + ["pool"] * 2))
        if kind == "pool" and self.pool:
            return self.draw(st.sampled_from(self.pool))
        if kind == "literal":
            return literal(self.draw(st.sampled_from(NUMBERS)), self.draw(st.sampled_from(self.types)))
        return self.column()

    def column(self) -> Expression:
        return column(self.draw(st.sampled_from([name for name, (dtype, _) in COLUMNS.items() if dtype in self.types])))


@st.composite
def expressions(draw: st.DrawFn, *, operations: int = 7) -> Expression:
    """Expressions of at most so many operations, not counting those that keep operands in their domains."""
    return _Growth(draw).number(draw(st.integers(1, operations)))
