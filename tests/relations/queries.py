"""Queries as trees, written as SQL: as they are, or with some of their columns moved where these start.

Written as they are, CTEs and views are referred to by name, and recursion is recursion. Written with a shift, every
reference is a subquery of its own, since only one of two references may be moved, and recursion is unrolled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relations.columns import NOWHERE, Column, Dependence, Origin, Origins, Shift, moved
from relations.tables import TABLES, is_integer
from support.ctes import with_ctes


class Writer:
    """Writes a query, and keeps the CTEs and views that it refers to, each once."""

    def __init__(self, shift: Shift | None = None, views: dict[str, str] | None = None) -> None:
        self.shift: Shift = shift or {}
        self.plain = shift is None
        self.ctes: dict[str, str] = {}
        self.recursive = False
        self.views: dict[str, str] = {} if views is None else views

    def whole(self, query: str) -> str:
        """The query, after the CTEs that it refers to."""
        return with_ctes(query, self.ctes, recursive=self.recursive)


class Query(ABC):
    """A query and what it offers. `unique` are columns by which its rows can be told apart."""

    kind: str
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int

    @abstractmethod
    def write(self, writer: Writer) -> str:
        """The query as SQL."""

    @abstractmethod
    def inputs(self) -> Sequence[Query]:
        """The queries it reads."""

    def kinds(self) -> Iterator[str]:
        yield self.kind
        for query in self.inputs():
            yield from query.kinds()

    def starting(self, origin: Origin) -> tuple[Query, str] | None:
        """The query in which a column starts, and its name there."""
        for name, origins in self.started_here():
            if origin in origins:
                return self, name
        return next(filter(None, (query.starting(origin) for query in self.inputs())), None)

    @abstractmethod
    def started_here(self) -> Iterator[tuple[str, Origins]]:
        """The columns that may start here."""


@dataclass
class Scan(Query):
    """A table."""

    table: str
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    kind: str = "scan"

    def write(self, writer: Writer) -> str:
        row = {name: name for name in self.unique}
        listed = [f"{moved(c.name, c.origins, writer.shift, row)} AS {c.name}" for c in self.columns]
        return f"SELECT {', '.join(listed)} FROM {self.table}"

    def inputs(self) -> Sequence[Query]:
        return ()

    def started_here(self) -> Iterator[tuple[str, Origins]]:
        for column in self.columns:
            yield column.name, column.origins


@dataclass
class Values(Query):
    """VALUES."""

    rows: Sequence[Sequence[str]]
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    kind: str = "values"

    def write(self, writer: Writer) -> str:
        rows = []
        for row in self.rows:
            number = {self.unique[0]: row[0]}
            written = [moved(v, c.origins, writer.shift, number) for v, c in zip(row, self.columns, strict=True)]
            rows.append(f"({', '.join(written)})")
        return f"SELECT * FROM (VALUES {', '.join(rows)}) AS v({', '.join(c.name for c in self.columns)})"

    def inputs(self) -> Sequence[Query]:
        return ()

    def started_here(self) -> Iterator[tuple[str, Origins]]:
        for column in self.columns:
            yield column.name, column.origins


@dataclass
class Named:
    """A query under a name in FROM."""

    query: Query
    alias: str
    # How it is written: "subquery", "cte" or "view".
    form: str = "subquery"
    name: str = ""

    def write(self, writer: Writer) -> str:
        if not writer.plain:
            return f"({self.query.write(writer)}) AS {self.alias}"
        if isinstance(self.query, Scan):
            return f"{self.query.table} AS {self.alias}"
        if self.form == "cte":
            if self.name not in writer.ctes:
                text = self.query.write(writer)
                writer.ctes[self.name] = text
            return f"{self.name} AS {self.alias}"
        if self.form == "view":
            if self.name not in writer.views:
                inner = Writer(views=writer.views)
                text = inner.whole(self.query.write(inner))
                writer.views[self.name] = text
            return f"{self.name} AS {self.alias}"
        return f"({self.query.write(writer)}) AS {self.alias}"


@dataclass
class From:
    """An entry of FROM: what joins it to those before, and on what condition."""

    named: Named
    join: str = ""
    on: str = ""

    def write(self, writer: Writer) -> str:
        return f"{self.join} {self.named.write(writer)} {self.on}".strip()


@dataclass
class Item:
    """An item of a SELECT list. What computes a column of its own is an origin."""

    text: str
    name: str
    origins: Origins = NOWHERE

    def write(self, writer: Writer, row: Mapping[str, str]) -> str:
        return f"{moved(self.text, self.origins, writer.shift, row)} AS {self.name}"


@dataclass
class Select(Query):
    """A query block."""

    kind: str
    items: Sequence[Item]
    source: Sequence[From]
    tail: str
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    distinct: bool = False
    details: Sequence[str] = field(default_factory=list)

    def write(self, writer: Writer) -> str:
        row = {item.name: item.text for item in self.items if item.name in self.unique}
        listed = ", ".join(item.write(writer, row) for item in self.items)
        source = " ".join(entry.write(writer) for entry in self.source)
        return f"SELECT {'DISTINCT ' if self.distinct else ''}{listed} FROM {source} {self.tail}".strip()

    def inputs(self) -> Sequence[Query]:
        return [entry.named.query for entry in self.source]

    def started_here(self) -> Iterator[tuple[str, Origins]]:
        for item in self.items:
            yield item.name, item.origins

    def kinds(self) -> Iterator[str]:
        yield from self.details
        yield from super().kinds()


@dataclass
class Union(Query):
    """UNION ALL or UNION."""

    kind: str
    parts: Sequence[Query]
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int

    def write(self, writer: Writer) -> str:
        return f" {self.kind.upper()} ".join(part.write(writer) for part in self.parts)

    def inputs(self) -> Sequence[Query]:
        return self.parts

    def started_here(self) -> Iterator[tuple[str, Origins]]:
        yield from ()


@dataclass
class Recursion(Query):
    """A recursive CTE that steps a number of times. What its term changes starts here."""

    static: Select
    name: str
    steps: int
    items: Sequence[Item]
    joined: Sequence[From]
    columns: Sequence[Column]
    unique: Sequence[str]
    size: int
    started: Origins
    kind: str = "recursive"

    def write(self, writer: Writer) -> str:
        if writer.plain:
            writer.recursive = True
            term = self._term(self.name, writer)
            writer.ctes[self.name] = f"{self.static.write(writer)} UNION ALL {term}"
            return f"SELECT {', '.join(column.name for column in self.columns)} FROM {self.name}"
        levels = [f"{self.name}_0 AS ({self.static.write(writer)})"]
        for level in range(self.steps):
            levels.append(f"{self.name}_{level + 1} AS ({self._term(f'{self.name}_{level}', writer)})")
        union = " UNION ALL ".join(f"SELECT * FROM {self.name}_{level}" for level in range(self.steps + 1))
        row = {name: name for name in self.unique}
        listed = ", ".join(Item(c.name, c.name, self.started & c.origins).write(writer, row) for c in self.columns)
        return f"WITH {', '.join(levels)} SELECT {listed} FROM ({union}) AS q"

    def _term(self, before: str, writer: Writer) -> str:
        listed = ", ".join(item.write(writer, {}) for item in self.items)
        joined = " ".join(entry.write(writer) for entry in self.joined)
        return f"SELECT {listed} FROM {before} AS q {joined} WHERE q.{self.columns[0].name} < {self.steps}"

    def inputs(self) -> Sequence[Query]:
        return [self.static, *(entry.named.query for entry in self.joined)]

    def started_here(self) -> Iterator[tuple[str, Origins]]:
        for column in self.columns:
            yield column.name, column.origins & self.started


def scan(table: str) -> Scan:
    """A reference to a table."""
    columns = []
    for name in TABLES[table]:
        if is_integer(name):
            columns.append(Column(name, integer=True))
        else:
            origins = frozenset({Origin(f"{table}.{name}")})
            columns.append(Column(name, origins, Dependence(origins)))
    return Scan(table, columns, ["id"], len(TABLES[table]["id"]))
