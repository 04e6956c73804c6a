"""The columns of a query that is written anew: they are called as in the host, and have its types."""

from __future__ import annotations

import re

from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.host import Host
from xql_ffi._text.dialects.host_scope import HostScope
from xql_ffi._text.dialects.reading import CALL

# What grouping(...) may be.
_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"))


class Columns:
    """The columns of a statement."""

    def __init__(self, host: Host, known: HostScope, tree: exp.Expr, without: str) -> None:
        """Those of a query, and of the same without calls."""
        self._host = host
        self._known = known
        self._items = _items(tree)
        # The names of the host's own by the numbers of the columns.
        self.named: dict[int, str] = {}
        # The names and types in the host, as far as it can be asked.
        self._described: list[tuple[str, str]] | None = None
        if known.described is not None:
            try:
                self._described = known.described(without)
            except Exception:  # the statement may read a table that it is yet to make
                self._described = None

    def name(self, tree: exp.Expr) -> None:
        """Gives the columns of a query that is written anew the names that they have in the host.

        Raises:
            HostError: it is not known what the host calls one.
        """
        written = _items(tree)
        if not self._host.names_freely:
            for item in written:
                if isinstance(item, exp.Alias) and not re.fullmatch(r"\w+", item.alias):
                    item.replace(item.this)
            return
        for number, item in self._numbered(len(written)):
            if isinstance(item, (exp.Alias, exp.Column, exp.Star)) or _has_call(item):
                continue
            if self._described is None:
                shown = self._host.text(item)
                msg = (
                    f"the column {shown} has a name of {self._host.name}'s own, which is not known where a derivative "
                    f"sees through relations: write {shown} AS ..."
                )
                raise HostError(msg)
            self.named[number] = self._described[number][0]
            column = self._host.identifier(self.named[number])
            written[number].replace(exp.alias_(written[number].unalias().copy(), column))

    def typed(self, tree: exp.Expr) -> str:
        """The text of a query that is written anew, whose columns have the types that they have without derivatives.

        Raises:
            HostError: one has another.
        """
        text = self._host.text(tree, pretty=True)
        if self._described is None or self._known.described is None:
            return text
        called = {number for number, item in self._numbered(len(self._described)) if _has_call(item)}
        found = zip(self._described, self._known.described(text), strict=True)
        written, is_same = _items(tree), True
        for number, ((name, wanted), (_, given)) in enumerate(found):
            if wanted == given or number in called:
                continue
            if not {wanted, given} <= _INTEGERS:
                msg = (
                    f"the column {name} is {wanted}, and would be {given} beside a derivative that sees through "
                    f"relations: write CAST(... AS {wanted})"
                )
                raise HostError(msg)
            item = written[number]
            item.replace(
                exp.alias_(exp.cast(item.unalias().copy(), wanted, dialect=self._host.syntax), item.alias_or_name)
            )
            is_same = False
        return text if is_same else self._host.text(tree, pretty=True)

    def _numbered(self, width: int) -> list[tuple[int, exp.Expr]]:
        """The items whose numbers among the columns are known: those before the first and behind the last `*`."""
        stars = [number for number, item in enumerate(self._items) if item.is_star]
        first, last = (stars[0], stars[-1]) if stars else (len(self._items), len(self._items))
        ahead = list(enumerate(self._items[:first]))
        behind = self._items[last + 1 :]
        return ahead + [(width - len(behind) + number, item) for number, item in enumerate(behind)]


def _items(tree: exp.Expr) -> list[exp.Expr]:
    """Returns the items of the first `SELECT` of a query."""
    while isinstance(tree, (exp.SetOperation, exp.Subquery, exp.Paren)):
        tree = tree.this
    return tree.selects if isinstance(tree, exp.Select) else []


def _has_call(item: exp.Expr) -> bool:
    return any(CALL in node.meta for node in item.find_all(exp.Anonymous))
