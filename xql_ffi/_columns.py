"""Columns to differentiate by, and what derivatives are called."""

from __future__ import annotations

from collections.abc import Sequence

from datafusion import Expr, col

Columns = str | Expr | Sequence[str | Expr]


def column(named: object) -> Expr:
    """A column, by its name or as it is.

    Raises:
        TypeError: it is not a column.
    """
    if isinstance(named, str):
        return col(named)
    if isinstance(named, Expr) and named.variant_name() == "Column":
        return named
    msg = (
        f"a variable must be a column, by name or as col(name); {named!r} is not one. To differentiate by an "
        "expression, compute it first, df.with_column(name, ...)"
    )
    raise TypeError(msg)


def named_columns(wrt: Columns) -> dict[str, Expr]:
    """The columns by the names that their derivatives bear.

    Raises:
        TypeError: one of them is not a column.
        ValueError: there is none, or one twice, or two would bear one name.
    """
    listed = [wrt] if isinstance(wrt, str | Expr) else list(wrt)
    if not listed:
        msg = "name at least one column to differentiate by"
        raise ValueError(msg)
    columns = [column(named) for named in listed]
    full = [(column.to_variant().relation(), column.to_variant().name()) for column in columns]
    for named, name in zip(columns, full, strict=True):
        if full.count(name) > 1:
            msg = f"the column {named.canonical_name()} is given more than once: name each to differentiate by once"
            raise ValueError(msg)
    short = [name for _, name in full]
    names = [
        name if relation is None or short.count(name) == 1 else f"{relation.replace('.', '_')}_{name}"
        for relation, name in full
    ]
    check_distinct(names)
    return dict(zip(names, columns, strict=True))


def check_distinct(names: Sequence[str]) -> None:
    """Raises a `ValueError` if two derivatives would bear one name."""
    for name in names:
        if names.count(name) > 1:
            msg = (
                f"two derivatives would be called d_{name}: rename a column first, "
                "df.with_column_renamed(name, new_name), or take them in two calls"
            )
            raise ValueError(msg)
