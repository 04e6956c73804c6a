"""The ways in which a relation can be given: tables, views, CTEs, and what looks like another relation but is none."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from datafusion import SessionContext

from by_row.models import Data, Rows, quoted
from support.choices import Choices


@dataclass(frozen=True)
class Table:
    """A table in memory, or a file of which a view is a frame."""

    name: str
    columns: Sequence[str]
    keys: int
    rows: Rows
    # Whether columns without NULL are declared so, and whether the floats are in single precision.
    strict: bool = False
    single: bool = False

    def arrow(self) -> pa.Table:
        fields, arrays = [], []
        for number, name in enumerate(self.columns):
            values = [row[number] for row in self.rows]
            type_ = pa.int64() if number < self.keys else pa.float32() if self.single else pa.float64()
            fields.append(pa.field(name, type_, nullable=not self.strict or None in values))
            arrays.append(pa.array(values, type_))
        return pa.table(arrays, schema=pa.schema(fields))


@dataclass(frozen=True)
class Action:
    """What is done to a session before a statement: in words of SQL for those who read it, and as it is done."""

    shown: str
    do: Callable[[SessionContext], object]


def sql(text: str) -> Action:
    """A statement."""
    return Action(text, lambda ctx: ctx.sql(text).collect())


def stored(table: Table) -> Action:
    """A table in memory, in two parts."""

    def do(ctx: SessionContext) -> None:
        batches = table.arrow().to_batches(max_chunksize=max(1, len(table.rows) // 2))
        ctx.register_record_batches(table.name, [[batch] for batch in batches])

    return Action(f"CREATE TABLE {quoted(table.name)} AS {listed(table)}", do)


def frame(table: Table) -> Action:
    """A view that is a frame over a file, which has no name in the plan."""

    def do(ctx: SessionContext) -> None:
        with tempfile.NamedTemporaryFile(suffix=".csv", delete=False) as file:
            pyarrow.csv.write_csv(table.arrow(), file.name)
        ctx.register_view(table.name, ctx.read_csv(file.name, schema=table.arrow().schema))
        _FILES.append(file.name)

    return Action(f"-- register_view({table.name!r}, read_csv(...)) of\n-- {listed(table)}", do)


_FILES: list[str] = []


def remove_files() -> None:
    """Removes the files of all frames."""
    while _FILES:
        Path(_FILES.pop()).unlink(missing_ok=True)


def listed(table: Table) -> str:
    """A table as VALUES with the names and types of its columns."""
    rows = ", ".join(f"({', '.join('NULL' if v is None else repr(v) for v in row)})" for row in table.rows)
    items = ", ".join(
        f"CAST(column{number} AS {'BIGINT' if number <= table.keys else 'DOUBLE'}) AS {quoted(name)}"
        for number, name in enumerate(table.columns, 1)
    )
    return f"SELECT {items} FROM (VALUES {rows}) AS v"


@dataclass(frozen=True)
class Given:
    """How a relation is given: what binds its name, and what it takes. `text` is nothing for a table."""

    name: str
    kind: str
    form: str
    text: str
    setup: Sequence[Action]


class Forms:
    """Gives relations in random ways."""

    def __init__(self, choices: Choices, *, single: bool) -> None:
        self._choices = choices
        self._single = single

    def _made(self, name: str, data: Data, rows: Rows, *more: str) -> Table:
        columns = [*data.keys, *more, *data.floats]
        return Table(name, columns, len(data.keys) + len(more), rows, self._choices.chance(50), self._single)

    def table(self, data: Data, name: str) -> Table:
        """A table with the rows of a relation."""
        return self._made(name, data, data.rows)

    def given(self, data: Data, name: str, *, form: str = "", base: str = "") -> Given:
        """A relation under a name. Two of one form and one base are of one text."""
        form = form or self._choices.of(self._possible(data))
        make: Callable[[Data, str, str], Given] = getattr(self, f"_{form.replace(' ', '_')}")
        return make(data, name, base or f"{name}_base")

    def _possible(self, data: Data) -> list[str]:
        unique = len({row[: len(data.keys)] for row in data.rows}) == len(data.rows)
        forms = ["table", "view", "cte", "computed", "values", "computed view", "union", "filtered", "limit", "frame"]
        forms += ["distinct", "table", "shadow", "schema"] if len(set(data.rows)) == len(data.rows) else []
        forms += ["grouped", "greatest", "first", "distinct"] if unique else []
        forms += ["series", "series"] if data.line else []
        return forms

    # Where the columns are passed on

    def _stored(self, data: Data, base: str, rows: Rows | None = None) -> Action:
        return stored(self._made(base, data, data.rows if rows is None else rows))

    def _table(self, data: Data, name: str, base: str) -> Given:
        return Given(name, "table", "table", "", [self._stored(data, name)])

    def _schema(self, data: Data, name: str, base: str) -> Given:
        """A table under the same name as others, in a schema of its own."""
        schema = f"own_{name.lower()}".replace("∂", "d").replace(" ", "_")
        table = self._made("things", data, data.rows)
        setup = [sql(f"CREATE SCHEMA {schema}"), sql(f"CREATE TABLE {schema}.things AS {listed(table)}")]
        return Given(f"{schema}.things", "table", "schema", "", setup)

    def _view(self, data: Data, name: str, base: str) -> Given:
        text = f"SELECT * FROM {quoted(base)} AS q"
        return Given(name, "view", "view", text, [self._stored(data, base), _as_view(name, text)])

    def _cte(self, data: Data, name: str, base: str) -> Given:
        text = f"SELECT {_items(data)} FROM {quoted(base)} AS q"
        return Given(name, "cte", "cte", text, [self._stored(data, base)])

    def _shadow(self, data: Data, name: str, base: str) -> Given:
        """A CTE under the name of the table that it reads."""
        return replace(self._cte(data, name, name), form="shadow")

    def _union(self, data: Data, name: str, base: str) -> Given:
        half = len(data.rows) // 2
        if not half:
            return self._cte(data, name, base)
        bases = f"{base}_1", f"{base}_2"
        parts = [f"SELECT {_items(data)} FROM {quoted(each)} AS q" for each in bases]
        setup = [self._stored(data, bases[0], data.rows[:half]), self._stored(data, bases[1], data.rows[half:])]
        return Given(name, "cte", "union", " UNION ALL ".join(parts), setup)

    def _filtered(self, data: Data, name: str, base: str) -> Given:
        others = [(-99, *row[1:]) for row in data.rows[:2]]
        text = f"SELECT {_items(data)} FROM {quoted(base)} AS q WHERE q.{quoted(data.keys[0])} > -50"
        return Given(name, "cte", "filtered", text, [self._stored(data, base, [*data.rows, *others])])

    def _limit(self, data: Data, name: str, base: str) -> Given:
        others = [(10**6, *row[1:]) for row in data.rows[:2]]
        order = ", ".join(f"q.{quoted(key)}" for key in data.keys)
        text = f"SELECT {_items(data)} FROM {quoted(base)} AS q ORDER BY {order} LIMIT {len(data.rows)}"
        return Given(name, "cte", "limit", text, [self._stored(data, base, [*data.rows, *others])])

    def _frame(self, data: Data, name: str, base: str) -> Given:
        table = replace(self._made(name, data, data.rows), strict=False, single=False)
        return Given(name, "table", "frame", "", [frame(table)])

    def _distinct(self, data: Data, name: str, base: str) -> Given:
        text = f"SELECT DISTINCT {_items(data)} FROM {quoted(base)} AS q"
        return Given(name, "cte", "distinct", text, [self._stored(data, base, [*data.rows, *data.rows[::-2]])])

    def _first(self, data: Data, name: str, base: str) -> Given:
        """The first of several rows of a key, as one removes what is there twice."""
        again = [(*row[: len(data.keys)], 2, *[0.5] * len(data.floats)) for row in data.rows[:2]]
        rows = [(*row[: len(data.keys)], 1, *row[len(data.keys) :]) for row in data.rows]
        keys = ", ".join(f"q.{quoted(key)}" for key in data.keys)
        inner = (
            f"SELECT {_items(data)}, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY q.copy) AS rn "
            f"FROM {quoted(base)} AS q"
        )
        text = f"SELECT {_items(data)} FROM ({inner}) AS q WHERE q.rn = 1"
        table = self._made(base, data, [*again, *rows], "copy")
        return Given(name, "cte", "first", text, [stored(table)])

    # Where they are computed

    def _values(self, data: Data, name: str, base: str) -> Given:
        return Given(name, "cte", "values", listed(self._made(name, data, data.rows)), [])

    def _computed(self, data: Data, name: str, base: str) -> Given:
        text = f"SELECT {_items(data, 'q.{0} * 2.0')} FROM {quoted(base)} AS q"
        return Given(name, "cte", "computed", text, [self._stored(data, base, halves(data))])

    def _computed_view(self, data: Data, name: str, base: str) -> Given:
        given = self._computed(data, name, base)
        return replace(given, kind="view", form="computed view", setup=[*given.setup, _as_view(name, given.text)])

    def _grouped(self, data: Data, name: str, base: str) -> Given:
        keys = ", ".join(f"q.{quoted(key)}" for key in data.keys)
        text = f"SELECT {_items(data, 'SUM(q.{0})')} FROM {quoted(base)} AS q GROUP BY {keys}"
        return Given(name, "cte", "grouped", text, [self._stored(data, base, [*halves(data), *halves(data)])])

    def _greatest(self, data: Data, name: str, base: str) -> Given:
        keys = ", ".join(f"q.{quoted(key)}" for key in data.keys)
        text = f"SELECT {_items(data, 'MAX(q.{0})')} FROM {quoted(base)} AS q GROUP BY {keys}"
        lower = [
            tuple(v if n < len(data.keys) or v is None else v - 1.0 for n, v in enumerate(row)) for row in data.rows
        ]
        return Given(name, "cte", "greatest", text, [self._stored(data, base, [*lower, *data.rows])])

    def _series(self, data: Data, name: str, base: str) -> Given:
        assert data.line is not None
        slope, offset = data.line
        key, value = quoted(data.keys[0]), quoted(data.floats[0])
        text = (
            f"SELECT q.value AS {key}, CAST(q.value AS DOUBLE) * {slope!r} + ({offset!r}) AS {value} "
            f"FROM generate_series({data.rows[0][0]}, {data.rows[-1][0]}) AS q"
        )
        return Given(name, "cte", "series", text, [])


def halves(data: Data) -> Rows:
    """The rows with half of their floats."""
    return [tuple(v if n < len(data.keys) or v is None else v / 2 for n, v in enumerate(row)) for row in data.rows]


def _items(data: Data, computed: str = "q.{0}") -> str:
    items = [f"q.{quoted(key)}" for key in data.keys]
    return ", ".join([*items, *(f"{computed.format(quoted(name))} AS {quoted(name)}" for name in data.floats)])


def _as_view(name: str, text: str) -> Action:
    return sql(f"CREATE VIEW {quoted(name)} AS {text}")
