"""Queries as trees, written as SQL in three ways.

As they are, with relations, CTEs and views by name. With one cell of a relation moved, for differences. And with one
*reference* to a relation moved along a direction, `x + e * v`, where `e` is the 0 of a table of one row: `e` is then
carried up through all nodes as one more column, so that forward mode differentiates by it. Where rows come from no row
of that reference (an outer join has extended them, another branch of a union has them), `e` is a constant 0.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from relations.columns import Column, Origin
from support.ctes import with_ctes

STEP = "e_"


class Cells(Origin):
    """The cells of a column of a relation; the same for all references to it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Cells:
        return self


@dataclass(frozen=True)
class Relation:
    """A table, view, CTE or derived table. Its first column is unique; `text` computes it unless it is a table."""

    name: str
    form: str
    text: str
    columns: Sequence[Column]
    size: int
    # Its columns in single precision.
    single: Collection[str] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Relation:
        return self

    @property
    def floats(self) -> list[Column]:
        return [column for column in self.columns if not column.integer]


@dataclass(frozen=True)
class Cell:
    """A cell by its row and column, and how far it is moved; or those of several rows."""

    relation: Relation
    rows: Sequence[int]
    column: str
    step: float


@dataclass(frozen=True)
class Direction:
    """One reference that is moved, in these columns, by the columns of the table `directions`, times a factor."""

    read: Read
    columns: Sequence[str]
    factor: float


class Writer:
    """Writes a query, and keeps the CTEs and views that it refers to, each once."""

    def __init__(self, moved: Cell | Direction | None = None) -> None:
        self.cell = moved if isinstance(moved, Cell) else None
        self.direction = moved if isinstance(moved, Direction) else None
        self.plain = moved is None
        self.ctes: dict[str, str] = {}
        self.views: dict[str, str] = {}

    def relation(self, relation: Relation) -> str:
        """A relation in FROM, without an alias."""
        if relation.form == "derived":
            return f"({relation.text})"
        if relation.form == "cte":
            self.ctes.setdefault(relation.name, relation.text)
        if relation.form == "view":
            self.views.setdefault(relation.name, relation.text)
        return relation.name

    def carries(self, node: Node) -> bool:
        """Whether a node has the column by which forward mode differentiates."""
        return self.direction is not None and any(read is self.direction.read for read in node.reads())

    def whole(self, query: str) -> str:
        """The query, after the CTEs that it refers to."""
        return with_ctes(query, self.ctes)


class Node(ABC):
    """A query and what it offers. The names of its columns are those of no other. `unique` tell its rows apart."""

    kind: str
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int

    @abstractmethod
    def write(self, writer: Writer) -> str:
        """The query as SQL, with `e_` as its last column where it carries it."""

    @abstractmethod
    def uses(self) -> Sequence[Use]:
        """What it reads, and what may vary its columns first."""

    def reads(self) -> Iterator[Read]:
        """The references by which its columns may vary."""
        for use in self.uses():
            yield from use.node.reads()

    def relations(self) -> Iterator[Relation]:
        """All relations that it reads."""
        for use in self.uses():
            yield from use.node.relations()

    def kinds(self) -> Iterator[str]:
        yield self.kind
        for use in self.uses():
            yield use.form
            yield from use.node.kinds()


@dataclass
class Use:
    """A query in FROM: a subquery, a CTE or a view."""

    node: Node
    alias: str
    form: str
    name: str

    def again(self, alias: str) -> Use:
        """Another reference to it."""
        other = copy.deepcopy(self)
        other.alias = alias
        return other

    def named(self, writer: Writer) -> str:
        """What stands for it in FROM, without an alias."""
        if not writer.plain or self.form == "subquery":
            return f"({self.node.write(writer)})"
        if self.form == "view" and all(relation.form != "cte" for relation in self.node.relations()):
            inner = Writer()
            text = inner.whole(self.node.write(inner))
            for name, view in inner.views.items():
                writer.views.setdefault(name, view)
            writer.views.setdefault(self.name, text)
        else:
            text = self.node.write(writer)
            writer.ctes.setdefault(self.name, text)
        return self.name

    def write(self, writer: Writer) -> str:
        return f"{self.named(writer)} AS {self.alias}"

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.node.columns]


@dataclass(eq=False)
class Read(Node):
    """A reference to a relation."""

    relation: Relation
    alias: str
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    kind: str = "read"

    def write(self, writer: Writer) -> str:
        direction = writer.direction if writer.carries(self) else None
        items = []
        for own, column in zip(self.relation.columns, self.columns, strict=True):
            text = f"{self.alias}.{own.name}"
            cell = writer.cell
            if cell and cell.relation == self.relation and cell.column == own.name:
                row = f"{self.alias}.{self.relation.columns[0].name}"
                rows = ", ".join(map(str, cell.rows))
                text = f"CASE WHEN {row} IN ({rows}) THEN {text} + ({cell.step!r}) ELSE {text} END"
            if direction and own.name in direction.columns:
                number = direction.columns.index(own.name)
                text = f"{text} + ({direction.factor!r}) * e.{STEP} * v.v{number}"
                text = f"CAST({text} AS REAL)" if own.name in self.relation.single else text
            items.append(f"{text} AS {column.name}")
        source = f"{writer.relation(self.relation)} AS {self.alias}"
        if direction:
            items.append(f"e.{STEP} AS {STEP}")
            source += (
                f" JOIN directions AS v ON v.id = {self.alias}.{self.relation.columns[0].name} CROSS JOIN eps AS e"
            )
        return f"SELECT {', '.join(items)} FROM {source}"

    def uses(self) -> Sequence[Use]:
        return ()

    def reads(self) -> Iterator[Read]:
        yield self

    def relations(self) -> Iterator[Relation]:
        yield self.relation

    def kinds(self) -> Iterator[str]:
        yield f"read {self.relation.form}"


@dataclass(frozen=True)
class Item:
    """An item of a SELECT list."""

    text: str
    name: str


@dataclass(eq=False)
class Block(Node):
    """SELECT over one query, beside scalar subqueries that are columns of its rows."""

    kind: str
    items: Sequence[Item]
    use: Use
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    # By their texts, queries of one row.
    values: Sequence[Use] = ()
    where: str = ""
    # What is grouped by; none if there are no groups.
    keys: Sequence[str] | None = None
    # Whether all rows are a group as well, beside the groups by the keys.
    total: bool = False
    having: str = ""
    tail: str = ""
    distinct: bool = False
    details: Sequence[str] = field(default_factory=list)

    def write(self, writer: Writer) -> str:
        items = [f"{item.text} AS {item.name}" for item in self.items]
        source = self.use.write(writer)
        keys = list(self.keys or [])
        carried = self.use.alias if writer.carries(self.use.node) else ""
        replaced: dict[str, str] = {}
        for value in self.values:
            (name,) = value.names
            if writer.carries(value.node):
                source += f" CROSS JOIN {value.write(writer)}"
                replaced[placeholder(value)] = f"{value.alias}.{name}"
                carried = value.alias
            else:
                replaced[placeholder(value)] = f"(SELECT {value.alias}.{name} FROM {value.write(writer)})"
        if carried:
            items.append(f"{carried}.{STEP} AS {STEP}")
            if self.keys is not None:
                keys.append(f"{carried}.{STEP}")
        parts = [f"SELECT {'DISTINCT ' if self.distinct else ''}{', '.join(items)} FROM {source}"]
        parts += [f"WHERE {self.where}"] if self.where else []
        if self.total:
            beside = f"{carried}.{STEP}" if carried else ""
            parts.append(f"GROUP BY GROUPING SETS (({', '.join(keys)}), ({beside}))")
        elif keys:
            parts.append(f"GROUP BY {', '.join(keys)}")
        parts += [f"HAVING {self.having}"] if self.having else []
        text = " ".join([*parts, self.tail]).strip()
        for mark, value_text in replaced.items():
            text = text.replace(mark, value_text)
        return text

    def uses(self) -> Sequence[Use]:
        return [self.use, *self.values]

    def kinds(self) -> Iterator[str]:
        yield from self.details
        yield from super().kinds()


def placeholder(value: Use) -> str:
    """What stands for a scalar subquery in an expression until it is written."""
    return f"<{value.alias}>"


@dataclass(eq=False)
class Join(Node):
    """A join of two queries, whose columns are those of both, or of the left one only."""

    kind: str
    left: Use
    right: Use
    on: str
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    detail: str = ""

    def write(self, writer: Writer) -> str:
        on_left, on_right = writer.carries(self.left.node), writer.carries(self.right.node) and not self._is_half
        if on_right and self.kind in ("LEFT JOIN", "FULL JOIN"):
            first = self._select(writer, self.right.alias, "RIGHT JOIN" if self.kind == "FULL JOIN" else "JOIN")
            return f"{first} UNION ALL {self._alone(writer, self.left, self.right)}"
        if on_left and self.kind in ("RIGHT JOIN", "FULL JOIN"):
            first = self._select(writer, self.left.alias, "LEFT JOIN" if self.kind == "FULL JOIN" else "JOIN")
            return f"{first} UNION ALL {self._alone(writer, self.right, self.left)}"
        carried = self.left.alias if on_left else self.right.alias if on_right else ""
        return self._select(writer, carried, self.kind)

    def _select(self, writer: Writer, carried: str, kind: str) -> str:
        sides = [self.left] if self._is_half else [self.left, self.right]
        items = [f"{side.alias}.{name} AS {name}" for side in sides for name in side.names]
        items += [f"{carried}.{STEP} AS {STEP}"] if carried else []
        on = f" ON {self.on}" if self.on else ""
        return f"SELECT {', '.join(items)} FROM {self.left.write(writer)} {kind} {self.right.write(writer)}{on}"

    def _alone(self, writer: Writer, own: Use, other: Use) -> str:
        """The rows of one side to which the other, which is moved, has none."""
        still = Writer()
        still.plain = False
        items = [
            f"{own.alias}.{name}" if side is own else "NULL" for side in (self.left, self.right) for name in side.names
        ]
        listed = ", ".join([*items, "0.0"])
        text = f"SELECT {listed} FROM {own.write(still)} LEFT ANTI JOIN {other.write(still)} ON {self.on}"
        writer.ctes.update(still.ctes)
        return text

    @property
    def _is_half(self) -> bool:
        return self.kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")

    def uses(self) -> Sequence[Use]:
        return [self.left, self.right]

    def reads(self) -> Iterator[Read]:
        for use in [self.left] if self._is_half else [self.left, self.right]:
            yield from use.node.reads()

    def kinds(self) -> Iterator[str]:
        if self.detail:
            yield self.detail
        yield from super().kinds()


@dataclass(eq=False)
class Loop(Node):
    """A recursive query whose first rows are those of a query, and whose iterations compute rows from those before."""

    use: Use
    # What the rows before are called, and the number of the iteration among their columns.
    name: str
    step: str
    # What an iteration computes each column of the query by.
    items: Sequence[Item]
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    count: int
    # Whether the last iteration alone is seen, and which rows have one after them.
    is_last: bool
    where: str = ""
    # What the rows before are beside, and a condition.
    beside: Sequence[tuple[Use, str]] = ()
    kind: str = "recursion"

    def write(self, writer: Writer) -> str:
        names = [item.name for item in self.items]
        floats = {column.name for column in self.columns if not column.integer}

        def first(own: str, name: str) -> str:
            text = f"{self.use.alias}.{own}"
            return f"CAST({text} AS DOUBLE) AS {name}" if name in floats else f"{text} AS {name}"

        start = [first(own, name) for own, name in zip(self.use.names, names, strict=True)]
        carried = writer.carries(self.use.node)
        end = [f", {self.use.alias}.{STEP} AS {STEP}", f", {self.name}.{STEP}"] if carried else ["", ""]
        beside = "".join(f" JOIN {use.write(writer)} ON {on}" for use, on in self.beside)
        computed = ", ".join(f"{item.text} AS {item.name}" for item in self.items)
        where = f"{self.name}.{self.step} < {self.count}" + (f" AND {self.where}" if self.where else "")
        # Without a reader outside, DataFusion 54 loses columns that the iterations themselves read.
        kept = f"concat({', '.join(names)}) <> 'none'" + (f" AND {self.step} = {self.count}" if self.is_last else "")
        listed = ", ".join([self.step, *names, *([STEP] if carried else [])])
        return (
            f"SELECT {listed} FROM (WITH RECURSIVE {self.name} AS ("
            f"SELECT 0 AS {self.step}, {', '.join(start)}{end[0]} FROM {self.use.write(writer)} UNION ALL "
            f"SELECT {self.name}.{self.step} + 1, {computed}{end[1]} FROM {self.name}{beside} WHERE {where}) "
            f"SELECT {listed} FROM {self.name} WHERE {kept}) AS {self.name}_all"
        )

    def uses(self) -> Sequence[Use]:
        return [self.use, *(use for use, _ in self.beside)]

    def reads(self) -> Iterator[Read]:
        yield from self.use.node.reads()

    def kinds(self) -> Iterator[str]:
        yield "recursion, last step" if self.is_last else "recursion, every step"
        yield from ["recursion that stops by its values"] if self.where else []
        yield from super().kinds()


@dataclass(eq=False)
class Union(Node):
    """UNION ALL of two blocks."""

    parts: Sequence[Block]
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    kind: str = "union all"

    def write(self, writer: Writer) -> str:
        texts = []
        for part in self.parts:
            text = part.write(writer)
            if writer.carries(self) and not writer.carries(part):
                text = f"SELECT *, 0.0 AS {STEP} FROM ({text}) AS constants"
            texts.append(text)
        return " UNION ALL ".join(texts)

    def uses(self) -> Sequence[Use]:
        return [part.use for part in self.parts]
