"""The queries of views, as table expressions in the place of the views."""

from __future__ import annotations

from collections.abc import Mapping

from xql_ffi._expressions import quoted
from xql_ffi._loss import stripped
from xql_ffi._text.views import MADE, Path, named_in


def in_place_of(views: Mapping[Path, str], loss: str) -> dict[str, str]:
    """The queries of those views that a loss names, or that these name, by their names as heads of table expressions.

    Each is after those that it reads.

    Args:
        views: the statements that made them, or their queries.
        loss: the loss.
    """
    left = named_in(loss, views)
    heads: dict[str, str] = {}
    while left:
        below = {path: len(named_in(query, left).keys() - {path}) for path, query in left.items()}
        path = min(left, key=below.__getitem__)
        query = left.pop(path)
        made = MADE.match(query)
        columns = made[1] if made and made[1] else ""
        heads[quoted(path[-1]) + columns] = stripped(query[made.end() :] if made else query)
    return heads
