"""Columns to differentiate by, and the names of derivatives."""

from __future__ import annotations

import re
from collections.abc import Sequence

from datafusion import Expr, col

Columns = str | Expr | Sequence[str | Expr]
# The parts of the name of a relation: of its catalog and schema, where they are named, and its own.
Path = tuple[str, ...]
_PART = re.compile(r'"(?:[^"]|"")*"|[^".]+')


def column(named: object) -> Expr:
    """Returns a column, by its name or as it is.

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
    """Returns the columns by the names that their derivatives bear.

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


def paths(wrt: Columns) -> list[tuple[Path, str]]:
    """The columns, each behind the parts of the name of its relation, of which it has none if that is not named.

    >>> paths(["w.val", 'public."my.table"."V"'])
    [(('w',), 'val'), (('public', 'my.table'), 'V')]

    Raises:
        TypeError: one of them is not a column.
        ValueError: there is none, or one twice, or two would bear one name.
    """
    listed = [wrt] if isinstance(wrt, str | Expr) else list(wrt)
    return [_path(*each) for each in zip(listed, named_columns(wrt).values(), strict=True)]


def _path(named: str | Expr, column: Expr) -> tuple[Path, str]:
    """Returns the parts of the name of a relation, and a column of it."""
    relation, name = column.to_variant().relation(), column.to_variant().name()
    # DataFusion says of a name in parts the parts with points between them, and not where a part has a point itself.
    parts = _PART.findall(named) if isinstance(named, str) else ()
    said = [part[1:-1].replace('""', '"') if part.startswith('"') else part.lower() for part in parts]
    if relation is not None and ".".join(said) == f"{relation}.{name}":
        return tuple(said[:-1]), name
    return () if relation is None else tuple(relation.split(".")), name


def check_distinct(names: Sequence[str]) -> None:
    """Raises a `ValueError` if two derivatives would bear one name."""
    for name in names:
        if names.count(name) > 1:
            msg = (
                f"two derivatives would be called d_{name}: rename a column first, "
                "df.with_column_renamed(name, new_name), or take them in two calls"
            )
            raise ValueError(msg)
