"""Columns: what they are computed from, and where those that can be a variable start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


class Origin:
    """The place where a column starts: one reference to a table, or the item of a SELECT list that computes it.

    Two references to one table have two origins with one label.
    """

    def __init__(self, label: str) -> None:
        self.label = label

    def __repr__(self) -> str:
        return self.label


Origins = frozenset[Origin]


@dataclass(frozen=True)
class Cell:
    """One cell of a column where it starts, by what its row is known by, and by how much it is moved."""

    row: tuple[tuple[str, float | None], ...]
    amount: float

    def written(self, names: Mapping[str, str]) -> str:
        """The amount in the row of the cell, and 0 in others. `names` are what tells rows apart, as written there."""
        tests = ["true"]
        for name, value in self.row:
            tests.append(f"({names[name]} IS NOT DISTINCT FROM {'NULL' if value is None else repr(value)})")
        return f"CASE WHEN {' AND '.join(tests)} THEN {self.amount!r} ELSE 0.0 END"


# By how much the columns that start at these places are moved, or a cell of them.
Shift = Mapping[Origin, float | Cell]

NOWHERE: Origins = frozenset()


@dataclass(frozen=True)
class Dependence:
    """What a value is computed from."""

    on: Origins = NOWHERE
    # What it is computed from by way of a function that has no derivative, and the name of that function.
    barred: frozenset[tuple[Origin, str]] = frozenset()

    def __or__(self, other: Dependence) -> Dependence:
        return Dependence(self.on | other.on, self.barred | other.barred)

    def through(self, function: str) -> Dependence:
        """That of a function without a derivative."""
        return replace(self, barred=self.barred | {(origin, function) for origin in self.on})


INDEPENDENT = Dependence()


@dataclass(frozen=True)
class Column:
    """A column that a query offers. One that has no origins cannot be a variable."""

    name: str
    origins: Origins = NOWHERE
    dependence: Dependence = INDEPENDENT
    integer: bool = False


@dataclass(frozen=True)
class Scoped:
    """A column as it is written where it is in scope."""

    text: str
    column: Column


def moved(text: str, origins: Origins, shift: Shift, row: Mapping[str, str]) -> str:
    """An expression, moved if it is where a shifted column starts. `row` is what tells its row apart."""
    for origin in origins:
        amount = shift.get(origin)
        if isinstance(amount, Cell):
            text = f"({text}) + ({amount.written(row)})"
        elif amount is not None:
            text = f"({text}) + ({amount!r})"
    return text
