"""The first value of a group in an order, where a host has no such aggregate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp

# What the value is, what the rows are ordered by, and which of them count.
First: TypeAlias = Callable[[exp.Expr, list[exp.Ordered], exp.Where | None], exp.Expr | None]


def by_extreme(value: exp.Expr, keys: list[exp.Ordered], condition: exp.Where | None) -> exp.Expr | None:
    """``max_by(value, key)``, or ``min_by``."""
    is_descending = bool(keys[0].args.get("desc"))
    if any(bool(key.args.get("desc")) != is_descending for key in keys):
        return None
    fields = [part for number, key in enumerate(keys) for part in (exp.Literal.string(f"k{number}"), key.this.copy())]
    key = keys[0].this if len(keys) == 1 else exp.Anonymous(this="named_struct", expressions=fields)
    called = exp.Anonymous(this="max_by" if is_descending else "min_by", expressions=[value, key])
    return called if condition is None else exp.Filter(this=called, expression=condition)


def nowhere(_value: exp.Expr, _keys: list[exp.Ordered], _condition: exp.Where | None) -> exp.Expr | None:
    """Refuses it."""
    return None


def by_array(value: exp.Expr, keys: list[exp.Ordered], condition: exp.Where | None) -> exp.Expr | None:
    """``(array_agg(value ORDER BY keys))[1]``."""
    called: exp.Expr = exp.Anonymous(this="array_agg", expressions=[exp.Order(this=value, expressions=keys)])
    called = called if condition is None else exp.Filter(this=called, expression=condition)
    return exp.Bracket(this=exp.Paren(this=called), expressions=[exp.Literal.number(1)], offset=1)


def by_limited_array(value: exp.Expr, keys: list[exp.Ordered], condition: exp.Where | None) -> exp.Expr | None:
    """``array_agg(value ORDER BY keys LIMIT 1)[OFFSET(0)]``, with rows that do not count behind all others."""
    if condition is not None:
        counts = condition.this
        value = exp.Case(ifs=[exp.If(this=counts.copy(), true=value)])
        behind = exp.Case(ifs=[exp.If(this=counts.copy(), true=exp.Literal.number(0))], default=exp.Literal.number(1))
        keys = [exp.Ordered(this=behind, nulls_first=True), *keys]
    ordered = exp.Limit(this=exp.Order(this=value, expressions=keys), expression=exp.Literal.number(1))
    called = exp.Anonymous(this="array_agg", expressions=[ordered])
    offset = exp.Anonymous(this="offset", expressions=[exp.Literal.number(0)])
    return exp.Bracket(this=called, expressions=[offset])
