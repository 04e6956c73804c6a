"""Random queries over other queries: one function for each kind of node."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from relations.choices import Choices
from relations.columns import INDEPENDENT, NOWHERE, Column, Dependence, Origin, Scoped
from relations.expressions import (
    AGGREGATES,
    BARRED,
    GROWING,
    ORDERED,
    SLIDING,
    Expression,
    Function,
    call,
    expression,
)
from relations.queries import From, Item, Named, Query, Recursion, Select, Union, Values, scan
from relations.tables import TABLES

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


class Builder:
    """Builds one random plan."""

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
        origins = frozenset({Origin(self.fresh("values."))})
        rows = [["1", "0.7193"], ["2", "CAST(NULL AS DOUBLE)"], ["3", "-1.1371"], ["4", "0.7193"]]
        kept = rows[: 1 + self.choices.below(len(rows))]
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
        scope = self._alone(self.named(query))
        if joins and query.size <= MOST_ROWS // 2 and self.choices.chance(35):
            return self._joined(scope)
        return scope

    def _alone(self, named: Named) -> Scope:
        columns = [Scoped(f"{named.alias}.{column.name}", column) for column in named.query.columns]
        unique = [f"{named.alias}.{name}" for name in named.query.unique]
        return Scope([From(named)], columns, unique, named.query.size, [])

    def _joined(self, left: Scope) -> Scope:
        choices = self.choices
        if choices.chance(20):
            return self._lateral(left)
        first = left.source[0].named
        right = self._alone(self.again(first) if choices.chance(25) else self.named(self.source()))
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

    def _lateral(self, left: Scope) -> Scope:
        """LATERAL, which may read columns of the query before it in its conditions."""
        choices = self.choices
        if not left.integers:
            return left
        inner = self._alone(Named(self.source(), self.fresh("q")))
        where = f"WHERE {choices.of(inner.integers).text} = {choices.of(left.integers).text}"
        if choices.chance(50):
            inner_items, columns, unique = self._passed(inner, inner.floats)
            if choices.chance(50):
                where += f" AND {choices.of(inner.floats).text} <= {choices.of(left.floats).text} + 0.5113"
            size = left.size + inner.size
        else:
            arguments = [expression(choices, inner.columns, 1)]
            column, item = self._computed(call(AGGREGATES[choices.below(4)], arguments), "s")
            inner_items, columns, unique, size = [item], [column], [], left.size
        query = Select("lateral", inner_items, inner.source, where, columns, unique, size)
        alias = self.fresh("l")
        join, on = choices.of([("CROSS JOIN LATERAL", ""), ("JOIN LATERAL", "ON TRUE"), ("LEFT JOIN LATERAL", "ON TRUE")])
        outer = self._alone(Named(query, alias))
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

    def _passed(self, scope: Scope, floats: Sequence[Scoped]) -> tuple[list[Item], list[Column], list[str]]:
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

    def _computed(self, value: Expression, prefix: str, function: Function | None = None) -> tuple[Column, Item]:
        name = self.fresh(prefix)
        if function and function.integer:
            return Column(name, integer=True), Item(value.sql, name)
        if value.passed:
            return Column(name, value.passed.origins, value.passed.dependence), Item(value.sql, name)
        origins = frozenset({Origin(name)})
        dependence = Dependence(value.dependence.on | origins, value.dependence.barred)
        return Column(name, origins, dependence), Item(value.sql, name, origins)

    def _block(
        self, kind: str, scope: Scope, computed: Sequence[tuple[Column, Item]], tail: str = "", size: int = 0
    ) -> Select:
        """A query block that passes columns on and adds others."""
        items, columns, unique = self._passed(scope, self.choices.some(scope.floats, 75) or scope.floats[:1])
        items += [item for _, item in computed]
        columns += [column for column, _ in computed]
        return Select(kind, items, scope.source, tail, columns, unique, size or scope.size, details=scope.details)

    # Nodes

    def project(self, query: Query) -> Query:
        scope = self.over(query)
        computed = []
        for _ in range(1 + self.choices.below(2)):
            computed.append(self._computed(self._expression(scope), "c"))
        if self.choices.chance(12) and scope.integers:
            computed.append(self._correlated(scope))
        return self._block("projection", scope, computed)

    def _expression(self, scope: Scope) -> Expression:
        """An expression, or, once in a plan, a derivative of one."""
        choices = self.choices
        value = expression(choices, scope.columns, 3)
        if self.derived or not choices.chance(12):
            return value
        variables = [s for s in scope.floats if s.column.origins and s.column.origins <= value.dependence.on]
        variables = [s for s in variables if not any(o in s.column.origins for o, _ in value.dependence.barred)]
        if not variables:
            return value
        self.derived = True
        return Expression(f"grad({value.sql}, {choices.of(variables).text})", value.dependence)

    def _correlated(self, scope: Scope) -> tuple[Column, Item]:
        """A correlated scalar subquery."""
        inner = self._alone(Named(scan(self.choices.of(list(TABLES))), self.fresh("q")))
        value = call(AGGREGATES[self.choices.below(4)], [expression(self.choices, inner.columns, 1)])
        entry = inner.source[0].named
        where = f"{self.choices.of(inner.integers).text} = {self.choices.of(scope.integers).text}"
        table = f"{entry.query.kind == 'scan' and entry.query.table} AS {entry.alias}"  # type: ignore[attr-defined]
        return self._computed(Expression(f"(SELECT {value.sql} FROM {table} WHERE {where})", value.dependence), "s")

    def filter(self, query: Query) -> Query:
        choices = self.choices
        scope = self.over(query)
        kind = choices.of(["float", "integer", "null", "exists", "in"])
        if kind == "float" or not scope.integers:
            condition = f"{expression(choices, scope.columns, 1).sql} > {choices.of(['-0.4131', '0.2173'])}"
        elif kind == "integer":
            condition = f"{choices.of(scope.integers).text} <= {choices.of([2, 3, 5])}"
        elif kind == "null":
            condition = f"{choices.of(scope.floats).text} IS NOT NULL"
        else:
            table, alias = choices.of(list(TABLES)), self.fresh("q")
            key = choices.of(scope.integers).text
            negation = choices.of(["", "NOT "])
            if kind == "exists":
                condition = f"{negation}EXISTS (SELECT 1 FROM {table} AS {alias} WHERE {alias}.id = {key})"
            else:
                condition = f"{key} {negation}IN (SELECT {alias}.id FROM {table} AS {alias})"
            kind = f"{negation}{kind}".lower()
        block = self._block("filter", scope, [], f"WHERE {condition}")
        block.details = [*block.details, f"filter by {kind}"]
        return block

    def limit(self, query: Query) -> Query:
        choices = self.choices
        scope = self.over(query)
        first = choices.of(scope.columns).text
        order = ", ".join([f"{first}{choices.of(['', ' DESC', ' NULLS FIRST'])}", *scope.unique])
        count = 3 + choices.below(6)
        offset = choices.of(["", " OFFSET 1"])
        return self._block("sort, limit", scope, [], f"ORDER BY {order} LIMIT {count}{offset}", min(count, scope.size))

    def distinct(self, query: Query) -> Query:
        """DISTINCT over columns that do not tell all rows apart."""
        scope = self.over(query)
        kept = (self.choices.some(scope.integers, 40) + self.choices.some(scope.floats, 60)) or scope.floats[:1]
        if not any(not s.column.integer for s in kept):
            kept.append(self.choices.of(scope.floats))
        scope.unique = [s.text for s in kept]
        scope.columns = kept
        items, columns, unique = self._passed(scope, [])
        return Select(
            "distinct", items, scope.source, "", columns, unique, scope.size, distinct=True, details=scope.details
        )

    def unnest(self, query: Query) -> Query:
        """Not over groups, the keys of which DataFusion 54 believes to be unique after UNNEST as well."""
        if not {"aggregate", "distinct", "union"}.isdisjoint(query.kinds()):
            return query
        scope = self.over(query, joins=False)
        name = self.fresh("e")
        item = (Column(name, integer=True), Item("unnest(make_array(1, 2))", name))
        block = self._block("unnest", scope, [item], size=2 * scope.size)
        block.unique = [*block.unique, name]
        return block

    def union(self, query: Query) -> Query:
        """UNION ALL with a number for the part, or UNION; the columns of the parts are brought to one list."""
        choices = self.choices
        all_ = choices.chance(60)
        scopes = [self.over(query, joins=False), self.over(self.source(), joins=False)]
        counts = [min(len(kind(s)) for s in scopes) for kind in (lambda s: s.integers, lambda s: s.floats)]
        width = 1 + choices.below(counts[1]) if counts[1] else 0
        parts: list[Select] = []
        names = [self.fresh("c") for _ in range(counts[0] + width)]
        for number, scope in enumerate(scopes):
            kept = scope.integers[: counts[0]] + scope.floats[:width]
            items = [Item(s.text, name) for s, name in zip(kept, names, strict=True)]
            columns = [
                Column(n, s.column.origins, s.column.dependence, s.column.integer)
                for s, n in zip(kept, names, strict=True)
            ]
            if all_:
                items.insert(0, Item(str(number), "part"))
                columns.insert(0, Column("part", integer=True))
                for text in scope.unique:
                    if text not in [s.text for s in kept]:
                        return query
            parts.append(Select("part", items, scope.source, "", columns, [], scope.size))
        columns = [
            Column(a.name, a.origins | b.origins, a.dependence | b.dependence, a.integer)
            for a, b in zip(parts[0].columns, parts[1].columns, strict=True)
        ]
        kind = "union all" if all_ else "union"
        size = sum(part.size for part in parts)
        return Union(kind, parts, columns, [column.name for column in columns], size)

    def aggregate(self, query: Query) -> Query:
        choices = self.choices
        scope = self.over(query)
        keys = self._keys(scope)
        computed = []
        for _ in range(1 + choices.below(2)):
            function = choices.of(BARRED) if choices.chance(4) else choices.of(AGGREGATES)
            computed.append(self._computed(self.aggregated(scope, function), "a", function))
        scope.columns = keys
        scope.unique = [key.text for key in keys]
        tail = f"GROUP BY {', '.join(scope.unique)}" if keys else ""
        if not keys:
            name = self.fresh("one_")
            computed.append((Column(name, integer=True), Item("count(1)", name)))
        items, columns, unique = self._passed(scope, [s for s in keys if not s.column.integer])
        items += [item for _, item in computed]
        columns += [column for column, _ in computed]
        if all(column.integer for column in columns):
            return query
        return Select("aggregate", items, scope.source, tail, columns, unique, scope.size, details=scope.details)

    def _keys(self, scope: Scope) -> list[Scoped]:
        choices = self.choices
        kinds = choices.of(["integer", "both", "float", "none"])
        keys = []
        if kinds in ("integer", "both") and scope.integers:
            keys.append(choices.of(scope.integers))
        if kinds in ("float", "both"):
            keys.append(choices.of(scope.floats))
        return keys

    def aggregated(self, scope: Scope, function: Function) -> Expression:
        """A call of an aggregate function, some with FILTER."""
        choices = self.choices
        arguments = [expression(choices, scope.columns, 2) for _ in range(function.arity)]
        value = call(function, arguments, ", ".join(scope.unique))
        if choices.chance(25):
            return Expression(f"{value.sql} FILTER (WHERE {self._condition(scope)})", value.dependence)
        return value

    def _condition(self, scope: Scope) -> str:
        if scope.integers and self.choices.chance(50):
            return f"{self.choices.of(scope.integers).text} <> 2"
        return f"{self.choices.of(scope.floats).text} < 1.1531"

    def window(self, query: Query) -> Query:
        scope = self.over(query)
        computed = []
        for _ in range(1 + self.choices.below(2)):
            value, function = self.windowed(scope)
            computed.append(self._computed(value, "w", function))
        return self._block("window", scope, computed)

    def windowed(self, scope: Scope) -> tuple[Expression, Function]:
        """A call of a window function."""
        choices = self.choices
        order = ", ".join(scope.unique or [s.text for s in scope.columns])
        growing = ["", f"ORDER BY {order}", f"ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"]
        sliding = [f"ORDER BY {order} ROWS BETWEEN {frame}" for frame in _FRAMES]
        kind = choices.of(["growing", "ordered", "sliding"])
        if kind == "growing":
            function, frame = choices.of(GROWING), choices.of(growing)
        elif kind == "sliding":
            function, frame = choices.of(SLIDING), choices.of(sliding)
        else:
            function, frame = choices.of(ORDERED), growing[1]
        if "value" in function.name and not frame:
            frame = growing[1]
        arguments = [expression(choices, scope.columns, 2) for _ in range(function.arity)]
        value = call(function, arguments)
        filtered = ""
        if kind != "ordered" and "value" not in function.name and choices.chance(20):
            filtered = f" FILTER (WHERE {self._condition(scope)})"
        nulls = ""
        if ("value" in function.name or function.name in ("lag", "lead")) and choices.chance(20):
            nulls = " IGNORE NULLS"
        partition = f"PARTITION BY {choices.of(scope.integers).text} " if scope.integers and choices.chance(50) else ""
        sql = f"{value.sql}{filtered}{nulls} OVER ({partition}{frame})"
        return Expression(sql, value.dependence), function

    def recursion(self, query: Query) -> Query:
        """A recursive CTE whose term changes one or two columns and passes the others on."""
        choices = self.choices
        scope = self.over(query, joins=False)
        items, columns, unique = self._passed(scope, scope.floats)
        floats = [column for column in columns if not column.integer]
        name, step = self.fresh("r"), self.fresh("step_")
        static = Select("static term", [Item("0", step), *items], scope.source, "", columns, unique, scope.size)
        inside = [Scoped(f"q.{column.name}", column) for column in columns]
        joined: list[From] = []
        details: list[str] = []
        if choices.chance(30):
            other = self._alone(Named(scan("p"), self.fresh("q")))
            one = f"{other.unique[0]} = 1"
            joined, details = [From(other.source[0].named, "JOIN", f"ON {one}")], ["join in a recursive term"]
            inside += other.floats[:1]
        changed = {choices.of(floats[::-1]).name for _ in range(1 + choices.below(2))}
        updates = {c.name: expression(choices, inside, 2) for c in floats if c.name in changed}
        # A column may depend on all that it does after some steps.
        known = {column.name: column.dependence for column in columns}
        for _ in updates:
            scoped = [Scoped(s.text, Column(s.column.name, dependence=known.get(s.column.name, s.column.dependence)))
                      for s in inside]  # fmt: skip
            for target, update in updates.items():
                for s in scoped:
                    if s.text in update.sql:
                        known[target] |= s.column.dependence
        term = [Item(f"q.{step} + 1", step)]
        out = [Column(step, integer=True)]
        started = NOWHERE
        for column in columns:
            if column.name in updates:
                text = f"0.5 * q.{column.name} + 0.3 * ({updates[column.name].sql})"
                term.append(Item(text, column.name))
                origins = frozenset({Origin(f"{name}.{column.name}")})
                started |= origins
                out.append(Column(column.name, origins, known[column.name] | Dependence(origins)))
            else:
                term.append(Item(f"q.{column.name}", column.name))
                out.append(column)
        steps = 1 + choices.below(3)
        return Recursion(static, name, steps, term, joined, out, [step, *unique], scope.size * (steps + 1), started)


_FRAMES = ["1 PRECEDING AND CURRENT ROW", "1 PRECEDING AND 1 FOLLOWING", "CURRENT ROW AND 2 FOLLOWING"]
NODES = [
    Builder.project,
    Builder.filter,
    Builder.aggregate,
    Builder.window,
    Builder.union,
    Builder.limit,
    Builder.recursion,
    Builder.distinct,
    Builder.unnest,
]


def build(builder: Builder) -> Query:
    """A source, and two to six nodes over it. A projection follows, if none has computed anything."""
    choices = builder.choices
    query = builder.project(builder.source())
    for _ in range(1 + choices.below(5)):
        node = Builder.project if choices.chance(30) else choices.of(NODES)
        if query.size > MOST_ROWS:
            node = choices.of([Builder.aggregate, Builder.limit])
        query = node(builder, query)
    return query


__all__ = ["INDEPENDENT", "Builder", "Scope", "build"]
