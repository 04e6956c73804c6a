"""A loss: a query of one row and one column, in SQL or as a DataFrame, and rows that are selected beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from datafusion import SQLOptions

from xql_ffi._engine import is_engine
from xql_ffi._errors import VariableError, untagged
from xql_ffi._expressions import shown
from xql_ffi._session_proxy import logical_plan, sharing

# DataFusion executes DDL and DML when they are planned.
QUERY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)


def frame_of(session: Any, loss: object) -> Any:
    """Returns the DataFrame that a loss is.

    Raises:
        TypeError: it is neither SQL nor a DataFrame.
    """
    with sharing():
        frame = session.sql(loss, options=QUERY) if isinstance(loss, str) else loss
    # xarray-sql has DataFrames of its own, around those of DataFusion.
    if not hasattr(frame, "into_view"):
        msg = f"the loss must be a query in SQL or a DataFrame; {shown(loss)} is neither"
        raise TypeError(msg)
    return frame


@contextmanager
def viewed(session: Any, frame: Any, tag: str) -> Iterator[str]:
    """Gives a query a name in a session for as long as statements read it, which errors do not show.

    Args:
        session: the session.
        frame: the query.
        tag: what the name ends with, which nothing else has.
    """
    name = f"loss_{tag}"
    session.register_view(name, frame)
    try:
        yield name
    except Exception as error:
        if (said := untagged(str(error))) == str(error):
            raise
        raise type(error)(said) from None
    finally:
        session.deregister_table(name)


def stripped(query: str) -> str:
    """Returns a query without the semicolon and the space around it, as it stands in parentheses."""
    return query.strip().rstrip("; \t\r\n")


def check_one_column(names: Sequence[str]) -> None:
    """Raises a `ValueError` if a loss has not one column."""
    if len(names) != 1:
        msg = f"the loss must be one value; the query has the columns {', '.join(map(repr, names))}: select one"
        raise ValueError(msg)


_SCAN = re.compile(r"^\s*TableScan: (?P<table>.+?)(?P<read>(?:,? (?:\w+_filters|projection|fetch)=.*)?)$", re.MULTILINE)
_PROJECTION = re.compile(r" projection=\[(.*?)\](?:, |$)")


def called(column: str) -> str:
    """What a query selects so that its recursive queries are planned as those of derivatives are.

    What mends the recursive queries of DataFusion 54 does so in statements that have a call.
    """
    return f"grad({column}, {column})" if is_engine() else column


def scans(plan: str) -> list[str]:
    """Returns the tables that an optimized plan, as it is shown, scans."""
    return [found["table"] for found in _SCAN.finditer(plan)]


def plan_with_scans(frame: Any) -> str:
    """Returns the plan of a query as it is shown, with the tables that it scans: optimized, unless that hides tables.

    A CTE that several others read is computed apart, and the optimized plan shows a scan of it.
    """
    plan = logical_plan(frame)
    return plan if "SubplanScan:" in plan else frame.optimized_logical_plan().display_indent()


def may_read(plan: str, table: str, column: str) -> bool:
    """Returns whether an optimized plan, as it is shown, may read a column of a table, be it in a condition alone."""
    for found in _SCAN.finditer(plan):
        # What derivatives have added shows nothing of what it reads.
        if found["table"].startswith("∂"):
            return True
        if f".{found['table']}".endswith(f".{table}"):
            projection = _PROJECTION.search(found["read"])
            if projection is None or re.search(rf"(?<!\w){re.escape(column)}(?!\w)", found["read"]):
                return True
    return False


def unread(name: str) -> VariableError:
    """Returns the error for a parameter that a loss does not read."""
    return VariableError(
        f"the loss does not read {name}: its derivative would be 0 at every point, and an optimizer would leave it as "
        "it is. Name the columns that the loss reads, or let the loss read this one by this name"
    )


def in_its_part(expressions: Sequence[str]) -> str:
    """Returns the value of the table to which a row belongs, from the values of all tables in `selected_beside`.

    The planner computes of such a column in the rows of each table what it has from that.
    """
    return f"coalesce({', '.join(expressions)})" if len(expressions) > 1 else expressions[0]


def in_own_rows(expression: str, number: int, tag: str) -> str:
    """Returns an expression in the rows of a table, and NULL in those of the others.

    A derivative by what a loss does not read is 0 in all rows.
    """
    return f"CASE WHEN {part(number, tag)} IS NOT NULL THEN {expression} END"


def part(number: int, tag: str) -> str:
    """The column by which `selected_beside` keeps the rows of a table apart: 0 for the value, then the tables."""
    return f"r{number}.part_{number}_{tag}"


def part_of_row(count: int, tag: str) -> str:
    """Returns the expression for the number of the table to which a row belongs."""
    return in_its_part([part(number, tag) for number in range(count + 1)])


def selected_beside(first: str, tables: Sequence[str], tag: str) -> str:
    """Returns the FROM clause of a query that has a value, and then the rows of one table after those of another.

    No two parts have a row in common, so that a join has all rows, and one node of the plan asks for all of them, in
    which the planner sees what they have in common. The joins are a balanced tree: in a chain each would have the
    columns of all before it. Of two keys one is never NULL.

        ((SELECT 0 AS part_0) r0
            FULL JOIN (SELECT *, 1 AS part_1 FROM w1) r1 ON r0.part_0 = r1.part_1)
        FULL JOIN (SELECT *, 2 AS part_2 FROM w2) r2 ON r0.part_0 = r2.part_2

    Args:
        first: what the row of the value has beside ``part_0``, as it follows it in a query.
        tables: the tables, in quotes where names need them.
        tag: what the names of the parts end with, which nothing else has.
    """
    parts = [f"(SELECT 0 AS part_0_{tag}{first}) r0"]
    for number, table in enumerate(tables, start=1):
        parts.append(f"(SELECT *, {number} AS part_{number}_{tag} FROM {table}) r{number}")

    def joined(begin: int, end: int) -> str:
        if end - begin == 1:
            return parts[begin]
        middle = (begin + end + 1) // 2
        key = part(middle, tag)
        # Where both sides are NULL, DataFusion 54 compares each row with each.
        key = key if end - middle == 1 else f"coalesce({key}, -1)"
        condition = f"{part(begin, tag)} = {key}"
        return f"({joined(begin, middle)} FULL JOIN {joined(middle, end)} ON {condition})"

    return joined(0, len(parts))
