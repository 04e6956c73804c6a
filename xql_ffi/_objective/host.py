"""The interface between an objective and the engine that runs its statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from xql_ffi._errors import NotNumericError
from xql_ffi._loss import check_one_column
from xql_ffi._objective.parameters import Relation
from xql_ffi._objective.statements import Kind

if TYPE_CHECKING:
    from xql_ffi._objective.parameters import Chosen


class Host(Protocol):
    """A session whose tables an objective reads."""

    @property
    def loss(self) -> str:
        """The loss, in SQL."""

    def rows(self, relation: str) -> pa.Table:
        """Returns the rows of a relation in their order, with all columns."""

    def rows_read(self, name: str) -> pa.Table:
        """The rows that the loss reads of a table without parameters: those in its place, if it has been replaced."""

    def where(self, relation: str, rows: pa.Table, condition: str) -> Chosen:
        """For which of the rows of a relation a condition is true."""

    def sibling(self, given: Collection[str]) -> Host:
        """Returns a host of its own over the same session, with the rows that are now in place of tables of it.

        Args:
            given: the relations whose rows the new host will be given, and that it therefore has not.
        """

    def prepare(self, loss: object, relations: Sequence[Relation]) -> None:
        """Takes the loss, which it checks, and the relations whose rows are to be given."""

    def take(self, loss: str, relations: Sequence[Relation]) -> None:
        """Takes a loss that is known to be one number, in the place of the one before.

        The session need not have the relations.
        """

    def collect(self, query: str, values: Mapping[str, Mapping[str, pa.Array]]) -> pa.Table:
        """Returns the rows of a query, with these values of the variables of each relation."""

    def check(self, value: float) -> None:
        """Checks the loss, whose value this is where the relations have the rows that they have in the session."""

    def run(self, kind: Kind, tables: Sequence[Mapping[str, Mapping[str, pa.Array]]]) -> pa.Table:
        """Runs a statement, with these values and tangents of the variables of each relation."""

    def replace(self, name: str, rows: pa.Table) -> None:
        """Lets the loss read these rows in place of a table of the session."""

    def update(self, relations: Sequence[Relation], tables: Mapping[str, pa.Table]) -> None:
        """Gives the relations of the session these rows, all of them or none."""


def check_columns(names: Sequence[str], types: Sequence[object]) -> None:
    """Checks that a loss is one number.

    Raises:
        ValueError: it has more columns than one.
        NotNumericError: it is not a number.
    """
    check_one_column(names)
    (kind,) = types
    if isinstance(kind, pa.DataType) and not (
        pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        msg = f"the loss must be a number; its column {names[0]!r} is of the type {kind}"
        raise NotNumericError(msg)


def check_unchanged(relation: str, same: bool) -> None:
    """Raises a `ValueError` if the rows of a relation are not those that an objective was made with."""
    if not same:
        msg = (
            f"{relation} has other rows or columns than when the objective was made, and update would lose them: make "
            "a new objective"
        )
        raise ValueError(msg)


def not_shadowed(relation: str) -> ValueError:
    """Returns the error for a loss that reads a relation in a way that no other rows can be put in its place."""
    return ValueError(
        f"the loss reads {relation} by its name in full or in a view that was made of a DataFrame, where no other rows "
        f"can be put in its place: read it as {relation}, or in views made by CREATE VIEW"
    )


def cast_to(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns and types of a table.

    Raises:
        ValueError: they have other columns, or values that the types have not.
    """
    if sorted(rows.schema.names) != sorted(schema.names):
        msg = f"{name} has the columns {', '.join(map(repr, schema.names))}; the rows have {rows.schema.names}"
        raise ValueError(msg)
    return rows.select(schema.names).cast(schema)
