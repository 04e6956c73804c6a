"""The statements of an objective, over tables that have its parameters under names of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from xql_ffi._expressions import quoted
from xql_ffi._loss import called, in_its_part, in_own_rows, part_of_row, selected_beside, stripped
from xql_ffi._objective.parameters import Relation

Kind = Literal["value", "gradient", "jvp", "hvp"]
# Those in which the parameters move along a direction.
MOVING = ("jvp", "hvp")


@dataclass(frozen=True)
class Names:
    """The names of an objective, with a unique number."""

    tag: str

    @property
    def row(self) -> str:
        """The column that numbers the rows of a relation."""
        return f"row_{self.tag}"

    @property
    def step(self) -> str:
        """The one column of a table of one row, along which the parameters move."""
        return f"step_{self.tag}"

    @property
    def steps(self) -> str:
        """The table with that column."""
        return f"steps_{self.tag}"

    @property
    def loss(self) -> str:
        """The view or table expression that is the loss, and its column."""
        return f"loss_{self.tag}"

    def tangent(self, number: int) -> str:
        """Returns the column by which a variable moves."""
        return f"tangent_{number}_{self.tag}"

    def table(self, number: int) -> str:
        """Returns the table with the rows of a relation."""
        return f"rows_{number}_{self.tag}"

    def other(self, number: int) -> str:
        """Returns the table with rows in the place of a table that has no parameters."""
        return f"other_{number}_{self.tag}"

    def moved(self, number: int) -> str:
        """Returns the view of those rows, moved along the direction."""
        return f"moved_{number}_{self.tag}"

    def read(self, number: int, kind: Kind) -> str:
        """Returns what a statement reads as the rows of a relation: the table, or the view of the moved rows."""
        return self.moved(number) if kind in MOVING else self.table(number)


def with_numbers(
    names: Names, relation: Relation, values: Mapping[str, pa.Array], tangents: Mapping[str, pa.Array]
) -> pa.Table:
    """Returns the table with the rows of a relation: its columns, the numbers of its rows, and how they move."""
    rows = relation.rows
    columns = [values.get(name, rows.column(name)) for name in rows.schema.names]
    fields = [*rows.schema, pa.field(names.row, pa.int64())]
    columns.append(pa.array(range(rows.num_rows), pa.int64()))
    for number, variable in enumerate(relation.variables):
        fields.append(pa.field(names.tangent(number), rows.schema.field(variable).type))
        columns.append(tangents[variable])
    return pa.table(columns, schema=pa.schema(fields))


def moved(names: Names, number: int, relation: Relation, real: str) -> str:
    """Returns the query of the rows of a relation, moved along the direction.

    Args:
        names: what things are called.
        number: the number of the relation.
        relation: the relation.
        real: what Float32 is called.
    """
    columns = []
    for name in relation.rows.schema.names:
        column = quoted(name)
        if name in relation.variables:
            tangent = quoted(names.tangent(relation.variables.index(name)))
            column = f"{column} + {quoted(names.step)} * {tangent}"
            if relation.rows.schema.field(name).type == pa.float32():
                column = f"CAST({column} AS {real})"
        columns.append(f"{column} AS {quoted(name)}")
    columns.append(f"{quoted(names.row)} AS {quoted(names.row)}")
    return f"SELECT {', '.join(columns)} FROM {quoted(names.steps)} CROSS JOIN {quoted(names.table(number))}"


def selected(names: Names, relations: Sequence[Relation], kind: Kind, turns_of: str | None = None) -> str:
    """Returns the value of a loss, or its derivatives by the rows of relations.

        SELECT <value>, coalesce(r0.part, r1.part, ...), coalesce(r1.row, r2.row, ...),
            coalesce(CASE WHEN r1.part IS NOT NULL THEN grad(<loss>, r1.val) END, CASE ...), ...
        FROM ...                                                     as `selected_beside` has it

    Args:
        names: what things are called.
        relations: the relations.
        kind: what is asked for. The value of ``jvp`` is the derivative along the direction, and the derivatives of
            ``hvp`` are those of the gradient.
        turns_of: the recursive query that this is the recursive term of, if it is one.
    """
    loss, step = f"(SELECT {quoted(names.loss)} FROM {quoted(names.loss)})", quoted(names.step)
    value = f"grad({loss}, {step})" if kind == "jvp" else loss
    columns, first, tables = [f"CAST({value} AS DOUBLE) AS {VALUE}"], "", []
    if turns_of is not None:
        columns += [f"r0.{TURN}", f"{called(f'r0.{CALL}')} AS {CALL}"]
        first = f", coalesce(MAX({TURN}), 0) + 1 AS {TURN}, CAST(0 AS DOUBLE) AS {CALL} FROM {turns_of}"
    if has_rows(kind):
        rows, derivatives = [], list[list[str]]()
        for number, relation in enumerate(relations):
            r = f"r{number + 1}"
            rows.append(f"{r}.{quoted(names.row)}")
            for place, variable in enumerate(relation.variables):
                derivative = f"grad({loss}, {r}.{quoted(variable)})"
                if kind == "hvp":
                    derivative = f"grad({derivative}, {step})"
                if place == len(derivatives):
                    derivatives.append([])
                derivatives[place].append(in_own_rows(f"CAST({derivative} AS DOUBLE)", number + 1, names.tag))
            tables.append(quoted(names.read(number, kind)))
        columns += [f"{part_of_row(len(relations), names.tag)} AS {PART}", f"{in_its_part(rows)} AS {ROW}"]
        columns += [f"{in_its_part(each)} AS {by(place)}" for place, each in enumerate(derivatives)]
    selected_from = selected_beside(first, tables, names.tag)
    if kind in MOVING:
        # DataFusion holds the left side of a product, and gives a batch for each of its rows.
        selected_from = f"{quoted(names.steps)} CROSS JOIN {selected_from}"
    return f"SELECT {', '.join(columns)} FROM {selected_from}"


def repeated(names: Names, relations: Sequence[Relation], kind: Kind) -> str:
    """Returns an endless recursive query, each turn of which is `selected`."""
    types = {VALUE: "DOUBLE", TURN: "BIGINT", CALL: "DOUBLE"}
    if has_rows(kind):
        most = max(len(relation.variables) for relation in relations)
        types |= {PART: "BIGINT", ROW: "BIGINT"} | {by(place): "DOUBLE" for place in range(most)}
    columns = ", ".join(f"CAST(NULL AS {of}) AS {name}" for name, of in types.items())
    term = selected(names, relations, kind, TURNS)
    return f"WITH RECURSIVE {TURNS} AS (SELECT {columns} UNION ALL {term}) SELECT * FROM {TURNS}"


def shadowed(query: str, shadows: Mapping[str, str]) -> str:
    """A query that begins with SELECT, with table expressions in the place of tables and views that it reads."""
    tables = ", ".join(f"{head} AS ({body}\n)" for head, body in shadows.items())
    return f"WITH {tables} {query}"


def one_column(names: Names, loss: str) -> str:
    """Returns the loss as a query of one column that is called as `Names` has it."""
    name = quoted(names.loss)
    return f"SELECT {name} FROM ({loss}\n) AS {name}({name})"


def all_columns(query: str) -> str:
    """Returns a query, which may begin with WITH, as one that begins with SELECT."""
    # A derived table of the name of a table expression in the query would be taken for it on DataFusion 55.
    return f"SELECT * FROM ({stripped(query)}\n) AS xql_all_columns"


def looked_through(names: Names, number: int, relation: Relation, without: str | None = None) -> str:
    """Returns the query that a relation is in the loss where it is found out what the loss reads.

    Args:
        names: what things are called.
        number: the number of the relation.
        relation: the relation.
        without: a column that it is to be without.
    """
    columns = [quoted(name) for name in relation.rows.schema.names if name != without] or ["1 AS one"]
    return f"SELECT {', '.join(columns)} FROM {quoted(names.table(number))}"


def read_in_place(names: Names, number: int, relation: Relation, kind: Kind) -> str:
    """Returns the query that a relation is in the loss.

    Of one row it says so: where it is not known, ``data CROSS JOIN parameters`` holds the data.
    """
    query = f"SELECT {', '.join(map(quoted, relation.rows.schema.names))} FROM {quoted(names.read(number, kind))}"
    return f"{query} LIMIT 1" if relation.rows.num_rows == 1 else query


def has_rows(kind: Kind) -> bool:
    """Returns whether a statement has the rows of the relations, after one with the value."""
    return kind in ("gradient", "hvp")


TURNS, TURN, VALUE, CALL = "objective", "turn", "loss", "call"
# The number of the relation that a row of a result is of, from 1 on, and the number of the row in it.
PART, ROW = "part", "row"


def by(place: int) -> str:
    """The column of a result with the derivatives by the variable of a relation that has this place among them."""
    return f"by_{place}"
