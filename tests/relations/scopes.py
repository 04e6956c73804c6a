"""What random queries are made of: their sources, FROM, and the columns that they pass on and compute."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from relations.columns import Column, Dependence, Origin, Scoped
from relations.expressions import AGGREGATES, Expression, Function, call_of, expression
from relations.queries import From, Item, Named, Query, Select, Values, scan
from relations.tables import TABLES
from support.choices import Choices

MOST_ROWS = 120


@dataclass
class Scope:
    """FROM, and what is in scope after it."""

    source: list[From]
    columns: list[Scoped]
    unique: list[str]
    size: int
    details: list[str]

    @property
    def floats(self) -> list[Scoped]:
        return [scoped for scoped in self.columns if not scoped.column.integer]

    @property
    def integers(self) -> list[Scoped]:
        return [scoped for scoped in self.columns if scoped.column.integer]


class Blocks:
    """Makes the parts of the query blocks of one plan."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._numbers = itertools.count(1)
        self.derived = False

    def fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    # Sources

    def source(self) -> Query:
        if self.choices.chance(12):
            return self._values()
        return scan(self.choices.of(list(TABLES)))

    def _values(self) -> Query:
        rows = [["1", "0.7193"], ["2", "CAST(NULL AS DOUBLE)"], ["3", "-1.1371"], ["4", "0.7193"]]
        kept = rows[: 1 + self.choices.below(len(rows))]
        # Equal lists are equal plans, as those of two references to one CTE are.
        origins = frozenset({Origin(f"values.{len(kept)}")})
        columns = [Column("n", integer=True), Column("a", origins, Dependence(origins))]
        return Values(kept, columns, ["n"], len(kept))

    # FROM

    def named(self, query: Query) -> Named:
        form = self.choices.of(["subquery", "cte", "view"])
        return Named(query, self.fresh("q"), form, self.fresh(form[0]))

    def again(self, named: Named) -> Named:
        """Another reference to the same CTE, view or table, whose columns are others."""
        other = copy.deepcopy(named)
        other.alias = self.fresh("q")
        return other

    def over(self, query: Query, *, joins: bool = True) -> Scope:
        """A query in FROM, alone or joined with another."""
        scope = self.alone(self.named(query))
        if joins and query.size <= MOST_ROWS // 2 and self.choices.chance(35):
            return self._joined(scope)
        return scope

    def alone(self, named: Named) -> Scope:
        columns = [Scoped(f"{named.alias}.{column.name}", column) for column in named.query.columns]
        unique = [f"{named.alias}.{name}" for name in named.query.unique]
        return Scope([From(named)], columns, unique, named.query.size, [])

    def _joined(self, left: Scope) -> Scope:
        choices = self.choices
        if choices.chance(20):
            return self._lateral(left)
        first = left.source[0].named
        right = self.alone(self.again(first) if choices.chance(25) else self.named(self.source()))
        kind = choices.of(["JOIN", "CROSS JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        size = left.size * right.size
        details = [kind.lower()] + (["self join"] if right.source[0].named.query.kind == first.query.kind else [])
        if (kind == "CROSS JOIN" and size <= MOST_ROWS) or not left.integers or not right.integers:
            joined = From(right.source[0].named, "CROSS JOIN")
        else:
            kind = "JOIN" if kind == "CROSS JOIN" else kind
            on = f"ON {choices.of(left.integers).text} = {choices.of(right.integers).text}"
            if choices.chance(20):
                on += f" AND {choices.of(left.floats).text} > {choices.of(right.floats).text} - 0.7717"
            joined = From(right.source[0].named, kind, on)
            size = left.size + right.size
        columns, unique = left.columns + right.columns, left.unique + right.unique
        return Scope([*left.source, joined], columns, unique, size, details)

    def beside(self, left: Scope, right: Scope) -> Scope:
        """Every row of the one with every row of the other."""
        source = [*left.source, From(right.source[0].named, "CROSS JOIN")]
        columns, unique = left.columns + right.columns, left.unique + right.unique
        return Scope(source, columns, unique, left.size * right.size, ["cross join"])

    def _lateral(self, left: Scope) -> Scope:
        """LATERAL, which may read columns of the query before it in its conditions."""
        choices = self.choices
        if not left.integers:
            return left
        inner = self.alone(Named(self.source(), self.fresh("q")))
        where = f"WHERE {choices.of(inner.integers).text} = {choices.of(left.integers).text}"
        if choices.chance(50):
            inner_items, columns, unique = self.passed(inner, inner.floats)
            if choices.chance(50):
                where += f" AND {choices.of(inner.floats).text} <= {choices.of(left.floats).text} + 0.5113"
            size = left.size + inner.size
        else:
            arguments = [expression(choices, inner.columns, 1)]
            column, item = self.computed(call_of(AGGREGATES[choices.below(4)], arguments), "s")
            inner_items, columns, unique, size = [item], [column], [], left.size
        query = Select("lateral", inner_items, inner.source, where, columns, unique, size)
        alias = self.fresh("l")
        join, on = choices.of(
            [("CROSS JOIN LATERAL", ""), ("JOIN LATERAL", "ON TRUE"), ("LEFT JOIN LATERAL", "ON TRUE")]
        )
        outer = self.alone(Named(query, alias))
        return Scope(
            [*left.source, From(outer.source[0].named, join, on)],
            left.columns + outer.columns,
            left.unique + outer.unique,
            size,
            [join.lower()],
        )

    # SELECT lists

    def _names(self, texts: Sequence[str]) -> list[str]:
        """The names of the columns, some changed, none twice."""
        taken: set[str] = set()
        names = []
        for text in texts:
            name = text.rpartition(".")[2]
            if name in taken or self.choices.chance(15):
                name = self.fresh(f"{name.rstrip('0123456789_')}_")
            taken.add(name)
            names.append(name)
        return names

    def passed(self, scope: Scope, floats: Sequence[Scoped]) -> tuple[list[Item], list[Column], list[str]]:
        """Items for what makes rows unique, some other integers, and these floats."""
        kept = [s for s in scope.columns if s.text in scope.unique]
        kept += [s for s in self.choices.some(scope.integers, 60) if s not in kept]
        kept += [s for s in floats if s not in kept]
        names = self._names([scoped.text for scoped in kept])
        columns = [
            Column(name, s.column.origins, s.column.dependence, s.column.integer)
            for name, s in zip(names, kept, strict=True)
        ]
        items = [Item(s.text, name) for s, name in zip(kept, names, strict=True)]
        return items, columns, [name for s, name in zip(kept, names, strict=True) if s.text in scope.unique]

    def computed(self, value: Expression, prefix: str, function: Function | None = None) -> tuple[Column, Item]:
        name = self.fresh(prefix)
        if function and function.integer:
            return Column(name, integer=True), Item(value.sql, name)
        if value.passed:
            return Column(name, value.passed.origins, value.passed.dependence), Item(value.sql, name)
        origins = frozenset({Origin(name)})
        dependence = Dependence(value.dependence.on | origins, value.dependence.barred)
        return Column(name, origins, dependence), Item(value.sql, name, origins)

    def block(
        self, kind: str, scope: Scope, computed: Sequence[tuple[Column, Item]], tail: str = "", size: int = 0
    ) -> Select:
        """A query block that passes columns on and adds others."""
        items, columns, unique = self.passed(scope, self.choices.some(scope.floats, 75) or scope.floats[:1])
        items += [item for _, item in computed]
        columns += [column for column, _ in computed]
        return Select(kind, items, scope.source, tail, columns, unique, size or scope.size, details=scope.details)
