"""Several statements as one query, which computes once what they have in common.

```sql
WITH <tables as they are now>, <table expressions that several statements have>,
    sweep AS MATERIALIZED (
        SELECT <part>, <columns of the tables>, coalesce(grad(<loss>, r1.val), grad(<loss>, r2.val)) FROM ...),
    q1 AS (<the first statement, which reads the derivatives by its table in sweep>), q2 AS (...)
SELECT 1 AS part, <columns> FROM q1 UNION ALL SELECT 2, <columns> FROM q2
```

The derivatives by the rows of several tables are one node of the plan, so that the planner sees what they have in
common.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from xql_ffi._expressions import quoted
from xql_ffi._loss import in_its_part, part_of_row, selected_beside
from xql_ffi._prepared.reading import Call, Cte, Read, calls, names_in, words
from xql_ffi._text.dialects.edits import Edit, edited

PART = "part"


def at(place: int) -> str:
    """Returns the column of a result with this place."""
    return f"c{place}"


class Places:
    """Columns of several tables in those of one, where columns of one kind stand in one place."""

    def __init__(self) -> None:
        self._places: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def of(self, kinds: Sequence[object]) -> list[int]:
        """Returns the places of the columns of a table, which are of these kinds."""
        nth = [kinds[:number].count(kind) for number, kind in enumerate(kinds)]
        return [self._places.setdefault(key, len(self._places)) for key in zip(kinds, nth, strict=True)]


@dataclass(frozen=True)
class Combined:
    """Statements with what they have in common apart.

    Attributes:
        heads: common table expressions that all statements may read, by their names.
        statements: the statements, in their order.
        sweep: the name of the one with the derivatives that are computed together, if there are any.
    """

    heads: Mapping[str, str]
    statements: Sequence[str]
    sweep: str | None = None

    def read_by(self, text: str) -> dict[str, str]:
        """Those of the common table expressions that a text names, or that these name, in their order."""
        read, ahead = set[str](), [text]
        while ahead:
            words = names_in(ahead.pop())
            for name in self.heads.keys() - read:
                if name.lower() in words:
                    read.add(name)
                    ahead.append(self.heads[name])
        return {name: head for name, head in self.heads.items() if name in read}


def apart(statements: Sequence[Read]) -> Combined:
    """Statements as they are."""
    return Combined({}, [statement.text for statement in statements])


def combined(
    statements: Sequence[Read], tables: Mapping[str, pa.Schema], shadows: Collection[str], tag: str
) -> Combined:
    """Statements whose common table expressions are apart from them, and whose derivatives are computed together.

    Args:
        statements: the statements.
        tables: the columns of the tables that are read as they are now.
        shadows: the names of these and of views, before which no table expression of a statement may be.
        tag: what names end with, which nothing else has.
    """
    common = _common(statements, shadows)
    columns = {name: schema.names for name, schema in tables.items()}
    found = []
    for statement in statements:
        shared = [cte.span for cte in statement.ctes if cte.name in common]
        own = list(statement.own)
        for name in {cte.name for cte in statement.ctes} & common.keys():
            own.remove(name)
        asked = calls(statement, columns, own)
        found.append([call for call in asked if not any(begin <= call.span[0] < end for begin, end in shared)])
    sweep = Sweep([call for each in found for call in each], tables, tag)
    written = [_without(statement, common, sweep, each) for statement, each in zip(statements, found, strict=True)]
    return Combined(common | sweep.heads(), written, sweep.name)


def _common(statements: Sequence[Read], shadows: Collection[str]) -> dict[str, str]:
    """Returns the table expressions that mean the same in each statement which names them, by their names."""
    common: dict[str, Cte] = {}
    for statement in statements:
        for cte in statement.ctes:
            common.setdefault(cte.name, cte)
    for name in list(common):
        if name in shadows or not all(_agrees(statement, common[name]) for statement in statements):
            del common[name]
    # What reads one that only a statement has is of that statement as well.
    while True:
        others = {cte.name for statement in statements for cte in statement.ctes} - common.keys()
        reading = [name for name, cte in common.items() if cte.names() & others]
        if not reading:
            return {name: cte.text for name, cte in common.items()}
        for name in reading:
            del common[name]


def _agrees(statement: Read, cte: Cte) -> bool:
    own = [each for each in statement.ctes if each.name == cte.name]
    if own:
        return [words(each.text) for each in own] == [words(cte.text)]
    return cte.name.lower() not in statement.names


def _without(statement: Read, common: Collection[str], sweep: Sweep, found: Sequence[Call]) -> str:
    """Returns a statement that reads the common table expressions, and its derivatives in the sweep."""
    edits = [Edit(*call.span, sweep.derivative(call)) for call in found]
    edits += [Edit(*item, sweep.read(call)) for item, call in {call.item: call for call in found}.items()]

    def part(begin: int, end: int) -> str:
        inside = [Edit(each.start - begin, each.end - begin, each.text) for each in edits if begin <= each.start < end]
        return edited(statement.text[begin:end], inside)

    own = [part(*cte.span) for cte in statement.ctes if cte.name not in common]
    body = part(statement.body, len(statement.text))
    return f"WITH {', '.join(own)} {body}" if own else body


class Sweep:
    """The derivatives by the rows of several tables, beside these."""

    def __init__(self, found: Sequence[Call], tables: Mapping[str, pa.Schema], tag: str) -> None:
        self._tables, self._tag = tables, tag
        # By table the subqueries and the columns, each pair once.
        self._asked: dict[str, dict[Key, Call]] = {}
        for call in found:
            self._asked.setdefault(call.table, {}).setdefault(_key(call), call)
        places = Places()
        self._places = {name: places.of(self._kinds(name)) for name in self._asked}
        self.name = f"sweep_{tag}" if found else None

    def _kinds(self, name: str) -> list[object]:
        schema = self._tables[name]
        kinds: list[object] = [field.type if is_plain(field) else (name, field.name) for field in schema]
        return kinds + [(value, schema.field(column).type) for value, column in self._asked[name]]

    def derivative(self, call: Call) -> str:
        """Returns the column that replaces a call where `read` is read."""
        return f"{call.alias}.{self._derivative(call)}"

    def _derivative(self, call: Call) -> str:
        return f"d{list(self._asked[call.table]).index(_key(call))}_{self._tag}"

    def read(self, call: Call) -> str:
        """Returns a table with the derivatives by its rows, in FROM."""
        schema, asked = self._tables[call.table], self._asked[call.table]
        names = [quoted(name) for name in schema.names] + [f"d{number}_{self._tag}" for number in range(len(asked))]
        columns = ", ".join(
            f"{at(place)} AS {name}" for place, name in zip(self._places[call.table], names, strict=True)
        )
        number = list(self._asked).index(call.table) + 1
        return f"(SELECT {columns} FROM {self.name} WHERE {PART} = {number}) AS {call.alias}"

    def heads(self) -> dict[str, str]:
        """Returns the table expression with all of it, if there is any."""
        if self.name is None:
            return {}
        columns: dict[int, list[str]] = {}
        for number, (name, asked) in enumerate(self._asked.items(), start=1):
            expressions = [f"r{number}.{quoted(column)}" for column in self._tables[name].names]
            expressions += [f"grad({call.value}, r{number}.{quoted(call.column)})" for call in asked.values()]
            for place, expression in zip(self._places[name], expressions, strict=True):
                columns.setdefault(place, []).append(expression)
        selected = [f"{part_of_row(len(self._asked), self._tag)} AS {PART}"]
        selected += [f"{in_its_part(each)} AS {at(place)}" for place, each in columns.items()]
        source = selected_beside("", [quoted(name) for name in self._asked], self._tag)
        return {self.name: f"{self.name} AS MATERIALIZED (SELECT {', '.join(selected)} FROM {source})"}


Key = tuple[tuple[tuple[object, str], ...], str]


def _key(call: Call) -> Key:
    return words(call.value), call.column


def is_plain(field: pa.Field) -> bool:
    """Returns whether a column of several tables is of this type if each of theirs is."""
    of = field.type
    return not field.metadata and (pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of))
