"""Random queries over other queries: one function for each kind of node."""

from __future__ import annotations

import re

from relations.columns import NOWHERE, Column, Dependence, Origin, Scoped
from relations.expressions import (
    AGGREGATES,
    BARRED,
    GROWING,
    ORDERED,
    QUANTILES,
    SLIDING,
    Expression,
    Function,
    call_of,
    expression,
)
from relations.queries import From, Item, Named, Query, Recursion, Select, Union, scan
from relations.scopes import MOST_ROWS, Blocks, Scope
from relations.tables import TABLES


class Builder(Blocks):
    """Builds one random plan."""

    def model(self) -> Query:
        """Data beside parameters, and a value computed from both: what is fitted by gradient descent."""
        scope = self.alone(self.named(self.source()))
        parameters = self.alone(Named(scan("p"), self.fresh("q")))
        scope = self.beside(scope, parameters)
        value = expression(self.choices, scope.columns, 3, parameters.floats[0].column.origins)
        return self.block("projection", scope, [self.computed(value, "c")])

    def project(self, query: Query) -> Query:
        scope = self.over(query)
        computed = []
        for _ in range(1 + self.choices.below(2)):
            computed.append(self.computed(self._expression(scope), "c"))
        if self.choices.chance(12) and scope.integers:
            computed.append(self._correlated(scope))
        return self.block("projection", scope, computed)

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
        table = scan(self.choices.of(list(TABLES)))
        inner = self.alone(Named(table, self.fresh("q")))
        value = call_of(AGGREGATES[self.choices.below(4)], [expression(self.choices, inner.columns, 1)])
        where = f"{self.choices.of(inner.integers).text} = {self.choices.of(scope.integers).text}"
        query = f"SELECT {value.sql} FROM {table.table} AS {inner.source[0].named.alias} WHERE {where}"
        return self.computed(Expression(f"({query})", value.dependence), "s")

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
        block = self.block("filter", scope, [], f"WHERE {condition}")
        block.details = [*block.details, f"filter by {kind}"]
        return block

    def limit(self, query: Query) -> Query:
        choices = self.choices
        scope = self.over(query)
        # After common subexpressions, DataFusion 54 takes another column than the key of the groups for their key.
        grouped = not {"aggregate", "distinct", "union"}.isdisjoint(query.kinds())
        first = choices.of(scope.unique if grouped and scope.unique else [s.text for s in scope.columns])
        order = ", ".join([f"{first}{choices.of(['', ' DESC', ' NULLS FIRST'])}", *scope.unique])
        count = 3 + choices.below(6)
        offset = choices.of(["", " OFFSET 1"])
        return self.block("sort, limit", scope, [], f"ORDER BY {order} LIMIT {count}{offset}", min(count, scope.size))

    def distinct(self, query: Query) -> Query:
        """DISTINCT over columns that do not tell all rows apart."""
        scope = self.over(query)
        kept = (self.choices.some(scope.integers, 40) + self.choices.some(scope.floats, 60)) or scope.floats[:1]
        if not any(not s.column.integer for s in kept):
            kept.append(self.choices.of(scope.floats))
        scope.unique = [s.text for s in kept]
        scope.columns = kept
        items, columns, unique = self.passed(scope, [])
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
        block = self.block("unnest", scope, [item], size=2 * scope.size)
        block.unique = [*block.unique, name]
        return block

    def union(self, query: Query) -> Query:
        """UNION ALL with a number for the part, or UNION; the columns of the parts are brought to one list."""
        choices = self.choices
        all_ = choices.chance(60)
        scopes = [self.over(query, joins=False), self.over(self.source(), joins=False)]
        count = min(len(scope.integers) for scope in scopes)
        width = 1 + choices.below(min(len(scope.floats) for scope in scopes))
        parts: list[Select] = []
        names = [self.fresh("c") for _ in range(count + width)]
        for number, scope in enumerate(scopes):
            kept = scope.integers[:count] + scope.floats[:width]
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
        computed, has_quantile = [], False
        for _ in range(1 + choices.below(2)):
            function = choices.of(BARRED) if choices.chance(4) else choices.of(AGGREGATES)
            if choices.chance(8):
                function, has_quantile = choices.of(QUANTILES), True
            computed.append(self.computed(self.aggregated(scope, function), "a", function))
        scope.columns = keys
        scope.unique = [key.text for key in keys]
        tail = f"GROUP BY {', '.join(scope.unique)}" if keys else ""
        if not keys:
            name = self.fresh("one_")
            computed.append((Column(name, integer=True), Item("count(1)", name)))
        items, columns, unique = self.passed(scope, [s for s in keys if not s.column.integer])
        if keys and not has_quantile and choices.chance(20):
            # The number of the set tells keys that it rolls up from those that are NULL.
            listed, number = ", ".join(scope.unique), self.fresh("set_")
            tail = f"GROUP BY {choices.of(['ROLLUP', 'CUBE'])} ({listed})"
            computed.append((Column(number, integer=True), Item(f"grouping({listed})", number)))
            unique.append(number)
            scope.details = [*scope.details, "grouping sets"]
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
        value = call_of(function, arguments, ", ".join(scope.unique))
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
            computed.append(self.computed(value, "w", function))
        return self.block("window", scope, computed)

    def windowed(self, scope: Scope, *, constant: bool = True) -> tuple[Expression, Function]:
        """A call of a window function, one that may vary unless a constant will do."""
        choices = self.choices
        order = ", ".join(scope.unique or [s.text for s in scope.columns])
        growing = ["", f"ORDER BY {order}", f"ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"]
        sliding = [f"ORDER BY {order} ROWS BETWEEN {frame}" for frame in _FRAMES]
        kind = choices.of(["growing", "ordered", "sliding"])
        if kind == "growing":
            function, frame = choices.of(GROWING), choices.of(growing)
            if not frame and choices.chance(15):
                function = choices.of(QUANTILES[:2])
        elif kind == "sliding":
            function, frame = choices.of(SLIDING), choices.of(sliding)
        else:
            function, frame = choices.of(ORDERED if constant else ORDERED[:4]), growing[1]
        if "value" in function.name and not frame:
            frame = growing[1]
        arguments = [expression(choices, scope.columns, 2) for _ in range(function.arity)]
        value = call_of(function, arguments)
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
        """A recursive CTE whose term changes one or two columns and passes the others on.

        Not over groups, the keys of which DataFusion 54 believes to be unique in all iterations together.
        """
        if not {"aggregate", "distinct", "union"}.isdisjoint(query.kinds()):
            return query
        choices = self.choices
        scope = self.over(query, joins=False)
        items, columns, unique = self.passed(scope, scope.floats)
        floats = [column for column in columns if not column.integer]
        name, step = self.fresh("r"), self.fresh("step_")
        static = Select("static term", [Item("0", step), *items], scope.source, "", columns, unique, scope.size)
        inside = [Scoped(f"q.{column.name}", column) for column in columns]
        joined: list[From] = []
        if choices.chance(30):
            other = self.alone(Named(scan("p"), self.fresh("q")))
            one = f"{other.unique[0]} = 1"
            joined = [From(other.source[0].named, "JOIN", f"ON {one}")]
            inside += other.floats[:1]
        changed = {choices.of(floats[::-1]).name for _ in range(1 + choices.below(2))}
        updates = {c.name: expression(choices, inside, 2) for c in floats if c.name in changed}
        # A column may depend on all that it does only after some steps.
        known = {f"q.{column.name}": column.dependence for column in columns}
        for _ in updates:
            for target, update in updates.items():
                for s in inside:
                    if re.search(rf"\b{re.escape(s.text)}\b", update.sql):
                        known[f"q.{target}"] |= known.get(s.text, s.column.dependence)
        term = [Item(f"q.{step} + 1", step)]
        out = [Column(step, integer=True)]
        started = NOWHERE
        for column in columns:
            if column.name in updates:
                text = f"0.5 * q.{column.name} + 0.3 * ({updates[column.name].sql})"
                term.append(Item(text, column.name))
                origins = frozenset({Origin(f"{name}.{column.name}")})
                started |= origins
                out.append(Column(column.name, origins, known[f"q.{column.name}"] | Dependence(origins)))
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
    query = builder.model() if choices.chance(50) else builder.project(builder.source())
    for _ in range(1 + choices.below(5)):
        node = Builder.project if choices.chance(30) else choices.of(NODES)
        if query.size > MOST_ROWS:
            node = choices.of([Builder.aggregate, Builder.limit])
        query = node(builder, query)
    return query
