"""The first value of a group in an order, or a later one, where a host has no such aggregate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp

# What the value is, what the rows are ordered by, which of them count, and which one has it, the first being 1.
First: TypeAlias = Callable[[exp.Expr, list[exp.Ordered], exp.Where | None, int], exp.Expr | None]


def by_extreme(value: exp.Expr, keys: list[exp.Ordered], condition: exp.Where | None, number: int) -> exp.Expr | None:
    """``max_by(value, key)``, or ``min_by``."""
    is_descending = bool(keys[0].args.get("desc"))
    if number != 1 or any(bool(key.args.get("desc")) != is_descending for key in keys):
        return None
    fields = [part for number, key in enumerate(keys) for part in (exp.Literal.string(f"k{number}"), key.this.copy())]
    key = keys[0].this if len(keys) == 1 else exp.Anonymous(this="named_struct", expressions=fields)
    called = exp.Anonymous(this="max_by" if is_descending else "min_by", expressions=[value, key])
    return called if condition is None else exp.Filter(this=called, expression=condition)


def nowhere(_value: exp.Expr, _keys: list[exp.Ordered], _condition: exp.Where | None, _number: int) -> exp.Expr | None:
    """Refuses it."""
    return None


def by_aggregate(value: exp.Expr, keys: list[exp.Ordered], condition: exp.Where | None, number: int) -> exp.Expr | None:
    """``first(value ORDER BY keys)``, and for a later one as `by_array`."""
    if number != 1:
        return by_array(value, keys, condition, number)
    called = exp.Anonymous(this="first", expressions=[exp.Order(this=value, expressions=keys)])
    return called if condition is None else exp.Filter(this=called, expression=condition)


def by_array(value: exp.Expr, keys: list[exp.Ordered], condition: exp.Where | None, number: int) -> exp.Expr | None:
    """``(array_agg(value ORDER BY keys))[number]``."""
    called: exp.Expr = exp.Anonymous(this="array_agg", expressions=[exp.Order(this=value, expressions=keys)])
    called = called if condition is None else exp.Filter(this=called, expression=condition)
    return exp.Bracket(this=exp.Paren(this=called), expressions=[exp.Literal.number(number)], offset=1)


def by_limited_array(
    value: exp.Expr, keys: list[exp.Ordered], condition: exp.Where | None, number: int
) -> exp.Expr | None:
    """``array_agg(value ORDER BY keys LIMIT 1)[OFFSET(0)]``, with rows that do not count behind all others."""
    if number != 1:
        return None
    if condition is not None:
        counts = condition.this
        value = exp.Case(ifs=[exp.If(this=counts.copy(), true=value)])
        behind = exp.Case(ifs=[exp.If(this=counts.copy(), true=exp.Literal.number(0))], default=exp.Literal.number(1))
        keys = [exp.Ordered(this=behind, nulls_first=True), *keys]
    ordered = exp.Limit(this=exp.Order(this=value, expressions=keys), expression=exp.Literal.number(1))
    called = exp.Anonymous(this="array_agg", expressions=[ordered])
    offset = exp.Anonymous(this="offset", expressions=[exp.Literal.number(0)])
    return exp.Bracket(this=called, expressions=[offset])
