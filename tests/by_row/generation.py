"""Random values that a scalar subquery has, and the relations by whose rows they are differentiated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from by_row.plans import Block, Cells, Item, Join, Loop, Node, Read, Relation, Union, Use, Writer, placeholder
from by_row.tables import SINGLE, TABLES
from relations.columns import INDEPENDENT, Column, Dependence, Origins, Scoped
from relations.expressions import AGGREGATES, BARRED, QUANTILES, Expression, Function, call_of, expression
from relations.nodes import Builder
from relations.scopes import Scope
from relations.tables import is_integer
from support.choices import Choices
from support.verdict import CREATE, PLAIN, PREPARE, VIEW

MOST_ROWS = 60
FORMS = ["table", "cte", "view", "derived"]
PLACES = [PLAIN, PLAIN, PLAIN, CREATE, PREPARE, VIEW]
# Computed from one column each, for a column that is passed on and computed from as well has both derivatives.
_COMPUTED = ["{0}", "sin({0})", "{0} * 1.3 + 0.1", "{0} * {0}", "0.5 - {0}"]
# Those that stay in single precision.
_SINGLE = ["{0}", "sin({0})", "{0} * {0}"]
# An outer join without an equality, of which DataFusion 54 repeats rows where its right side has several partitions.
UNEQUAL = "outer join without equality"
_RESTRICTED = ["", "WHERE q.id <> 3", "WHERE {0} IS NOT NULL", "ORDER BY q.id LIMIT 4", "GROUP BY {1}"]
_RANGES = [
    "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING",
    "",
    "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
]


@dataclass(frozen=True)
class Wanted:
    """The columns of a relation by whose cells is differentiated."""

    relation: Relation
    columns: Sequence[str]


@dataclass(frozen=True)
class Value:
    """A query of one row with the columns that `f` is computed from, and what it is differentiated by."""

    use: Use
    expression: Expression
    wanted: Sequence[Wanted]
    place: str
    # Whether the CTEs stand in the subquery, but for those that are relations.
    inside: bool
    # An expression of the value, `m`, and the row's own cell, `x`, or nothing.
    own: str

    def write(self, writer: Writer) -> str:
        """The query with the column `f`, and `e_` where it is carried."""
        carried = f", {self.use.alias}.e_ AS e_" if writer.carries(self.use.node) else ""
        return f"SELECT {self.expression.sql} AS f{carried} FROM {self.use.write(writer)}"

    def reads(self) -> list[Read]:
        """The references by which the value may vary with the variables."""
        relations = [wanted.relation for wanted in self.wanted]
        return [read for read in self.use.node.reads() if read.relation in relations]

    def kinds(self) -> set[str]:
        forms = {f"by {wanted.relation.form}" for wanted in self.wanted}
        several = {"two relations"} if len(self.wanted) > 1 else set()
        several |= {"two columns"} if any(len(wanted.columns) > 1 for wanted in self.wanted) else set()
        own = {"own cell beside the value"} if self.own else set()
        return {*self.use.node.kinds(), self.use.form, self.place, *forms, *several, *own}

    def depends_on(self, relation: Relation, column: str) -> bool:
        """Whether the value is computed from a column of a relation."""
        return any(origin.label == f"{relation.name}.{column}" for origin in self.expression.dependence.on)

    def depends(self) -> bool:
        """Whether the value is computed from one of the variables."""
        return any(self.depends_on(wanted.relation, column) for wanted in self.wanted for column in wanted.columns)

    def single(self) -> bool:
        """Whether it reads a column in single precision."""
        return any("s" in {column.name for column in relation.columns} for relation in self.use.node.relations())


class Generator:
    """Makes one random value."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._numbers = itertools.count(1)
        # What conditions, aggregates and windows are, is as in the plans of forward mode.
        self._functions = Builder(choices)
        self.relations: list[Relation] = []
        self._constants: list[Relation] = []
        self._known: list[Use] = []
        self.about: Origins = frozenset()

    def value(self) -> Value:
        choices = self.choices
        tables = list(TABLES)
        first = choices.of(tables)
        self.relations = [self._relation(first)]
        tables.remove(first)
        if choices.chance(35):
            second = choices.of(tables)
            tables.remove(second)
            self.relations.append(self._relation(second))
        self._constants = [self._table(name) for name in tables]
        wanted = [Wanted(relation, self._columns(relation)) for relation in self.relations]
        self.about = frozenset(
            origin
            for each in wanted
            for column in each.relation.columns
            if column.name in each.columns
            for origin in column.dependence.on
        )
        node: Node = self._read(self.relations[0])
        for _ in range(1 + choices.below(5)):
            node = self._node(node)
        use = self._use(self._one(node))
        scope = [Scoped(f"{use.alias}.{column.name}", column) for column in use.node.columns]
        found = expression(choices, scope, 3, self.about)
        own = choices.of(
            ["", "", "", "m * x", "m - x * x", "sin(m) * x + x", "CASE WHEN x > 0.3 THEN m * x ELSE -m END"]
        )
        return Value(use, found, wanted, choices.of(PLACES), choices.chance(30), own)

    def _columns(self, relation: Relation) -> list[str]:
        names = [column.name for column in relation.floats]
        return names[: 1 + self.choices.below(len(names))] if self.choices.chance(70) else names[-1:]

    # Names

    def _fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _use(self, node: Node) -> Use:
        form = self.choices.of(["subquery", "cte", "view"])
        return Use(node, self._fresh("q"), form, self._fresh(form[0]))

    @staticmethod
    def _scoped(use: Use) -> list[Scoped]:
        return [Scoped(f"{use.alias}.{column.name}", column) for column in use.node.columns]

    def _scope(self, use: Use) -> Scope:
        unique = [f"{use.alias}.{name}" for name in use.node.unique]
        return Scope([], self._scoped(use), unique, use.node.size, [])

    # Relations

    def _table(self, table: str) -> Relation:
        columns = [self._column(table, name) for name in TABLES[table]]
        single = {SINGLE} & set(TABLES[table])
        return Relation(table, "table", "", columns, len(TABLES[table]["id"]), single)

    @staticmethod
    def _column(relation: str, name: str) -> Column:
        if is_integer(name):
            return Column(name, integer=True)
        return Column(name, dependence=Dependence(frozenset({Cells(f"{relation}.{name}")})))

    def _relation(self, table: str) -> Relation:
        """A table, or what computes columns of it."""
        choices = self.choices
        form = choices.of(FORMS)
        if form == "table":
            return self._table(table)
        names = list(TABLES[table])
        floats = [name for name in names if not is_integer(name)]
        restricted = choices.of(_RESTRICTED)
        items = []
        single = set()
        for name in names:
            text = f"q.{name}"
            if not is_integer(name):
                computed = choices.of(_COMPUTED)
                aggregate = choices.of(["sum", "max", "avg"]) if restricted.startswith("GROUP") else ""
                text = computed.format(text)
                text = f"{aggregate}({text})" if aggregate else text
                if name == SINGLE and computed in _SINGLE and aggregate in ("", "max"):
                    single.add(name)
            items.append(f"{text} AS {name}")
        keys = ", ".join(f"q.{name}" for name in names if is_integer(name))
        tail = restricted.format(f"q.{floats[0]}", keys)
        name = self._fresh(f"rel_{form[0]}")
        columns = [self._column(name, column) for column in names]
        text = f"SELECT {', '.join(items)} FROM {table} AS q {tail}".strip()
        return Relation(name, form, text, columns, len(TABLES[table]["id"]), single)

    def _read(self, relation: Relation) -> Read:
        alias = self._fresh("q")
        columns = [
            Column(self._fresh(f"{column.name}_"), dependence=column.dependence, integer=column.integer)
            for column in relation.columns
        ]
        return Read(relation, alias, columns, [columns[0].name], relation.size)

    def _other(self) -> Node:
        """Another reference to a relation of a variable, or a table."""
        relations = [*self.relations[::-1], *self.relations, *self._constants]
        return self._read(self.choices.of(relations))

    # Nodes

    def _node(self, node: Node) -> Node:
        make = self.choices.of(
            [self._project, self._join, self._aggregate, self._window, self._filter, self._join, self._union,
             self._beside, self._distinct, self._limit, self._masked, self._loop]
        )  # fmt: skip
        if node.size > MOST_ROWS:
            make = self.choices.of([self._aggregate, self._limit])
        return make(node)

    def _passed(self, use: Use, *, floats: int = 75) -> tuple[list[Item], list[Column], list[str]]:
        """Items for what makes rows unique, for other integers, and for some floats."""
        choices = self.choices
        kept = [s for s in self._scoped(use) if s.column.name in use.node.unique]
        for scoped in self._scoped(use):
            if scoped not in kept and choices.chance(60 if scoped.column.integer else floats):
                kept.append(scoped)
        if all(scoped.column.integer for scoped in kept):
            kept += [s for s in self._scoped(use) if not s.column.integer][:1]
        return self._items(kept, use)

    def _items(self, kept: Sequence[Scoped], use: Use) -> tuple[list[Item], list[Column], list[str]]:
        columns = [
            Column(
                self._fresh(f"{s.column.name.rstrip('0123456789')}"),
                dependence=s.column.dependence,
                integer=s.column.integer,
            )
            for s in kept
        ]
        items = [Item(s.text, column.name) for s, column in zip(kept, columns, strict=True)]
        unique = [c.name for s, c in zip(kept, columns, strict=True) if s.column.name in use.node.unique]
        return items, columns, unique

    def _computed(self, value: Expression, prefix: str, function: Function | None = None) -> tuple[Item, Column]:
        name = self._fresh(f"{prefix}_")
        integer = function is not None and function.integer
        return Item(value.sql, name), Column(name, dependence=value.dependence, integer=integer)

    def _project(self, node: Node) -> Node:
        use = self._use(node)
        items, columns, unique = self._passed(use)
        for _ in range(1 + self.choices.below(2)):
            item, column = self._computed(expression(self.choices, self._scoped(use), 3, self.about), "c")
            items.append(item)
            columns.append(column)
        return Block("projection", items, use, columns, unique, node.size)

    def _scalar(self) -> Use:
        """A query of one row and one column."""
        node = self._other()
        if self.choices.chance(40):
            node = self._project(node)
        use = self._use(node)
        item, column = self._computed(*self._aggregated(self._scope(use), most=4))
        if column.integer:
            item, column = Item(f"CAST({item.text} AS DOUBLE)", item.name), Column(item.name)
        one = Block("aggregate of all", [item], use, [column], [], 1, keys=())
        return self._use(one)

    def _loop(self, node: Node) -> Node:
        """Two or three iterations, in which floats are computed from those before and from a table."""
        choices = self.choices
        use = self._use(node)
        name, step = self._fresh("loop_"), Column(self._fresh("step_"), integer=True)
        depends = Dependence()
        for column in node.columns:
            depends |= column.dependence
        columns = [
            Column(self._fresh("i_" if column.integer else "c_"), integer=column.integer)
            if column.integer
            else Column(self._fresh("c_"), dependence=depends)
            for column in node.columns
        ]
        before = [Scoped(f"{name}.{column.name}", column) for column in columns]
        beside: list[tuple[Use, str]] = []
        integers = [scoped for scoped in before if scoped.column.integer]
        scope = list(before)
        if integers and self._constants and choices.chance(50):
            # One row at most for each row before, so that it stays one.
            other = self._use(self._read(choices.of(self._constants)))
            beside.append((other, f"{other.alias}.{other.node.unique[0]} = {choices.of(integers).text}"))
            scope += [scoped for scoped in self._scoped(other) if not scoped.column.integer]
        items = []
        for scoped in before:
            text = scoped.text
            if not scoped.column.integer and choices.chance(80):
                text = f"CAST({expression(choices, scope, 2, self.about).sql} AS DOUBLE)"
            items.append(Item(text, scoped.column.name))
        floats = [scoped for scoped in before if not scoped.column.integer]
        where = f"{choices.of(floats).text} > -0.3137" if floats and choices.chance(30) else ""
        by_name = dict(zip(use.names, columns, strict=True))
        is_last = choices.chance(50)
        unique = [by_name[own].name for own in node.unique]
        if unique and not is_last:
            unique.append(step.name)
        count = 2 + choices.below(2)
        size = node.size * (1 if is_last else count + 1)
        return Loop(use, name, step.name, items, [step, *columns], unique, size, count, is_last, where, beside)

    def _beside(self, node: Node) -> Node:
        """A scalar subquery in an expression."""
        use = self._use(node)
        value = self._scalar()
        items, columns, unique = self._passed(use)
        scoped = Scoped(placeholder(value), value.node.columns[0])
        found = expression(
            self.choices, [scoped, *(s for s in self._scoped(use) if not s.column.integer)], 2, self.about
        )
        if placeholder(value) not in found.sql:
            found = Expression(f"({found.sql}) * {scoped.text}", found.dependence | scoped.column.dependence)
        item, column = self._computed(found, "v")
        return Block("scalar subquery", [*items, item], use, [*columns, column], unique, node.size, values=[value])

    def _filter(self, node: Node) -> Node:
        choices = self.choices
        use = self._use(node)
        scope = self._scope(use)
        kind = choices.of(["float", "integer", "null", "exists", "not exists", "in", "not in", "value"])
        values: list[Use] = []
        if kind == "float" or (kind not in ("null", "value") and not scope.integers):
            kind = "float"
            condition = f"{expression(choices, scope.columns, 1).sql} > {choices.of(['-0.4131', '0.2173'])}"
        elif kind == "integer":
            condition = f"{choices.of(scope.integers).text} <= {choices.of([2, 3, 5])}"
        elif kind == "null":
            condition = f"{choices.of(scope.floats).text} IS NOT NULL"
        elif kind == "value":
            values = [self._scalar()]
            condition = f"{choices.of(scope.floats).text} > {placeholder(values[0])} - 0.7411"
        else:
            table, alias = choices.of(list(TABLES)), self._fresh("q")
            key, not_ = choices.of(scope.integers).text, "NOT " if kind.startswith("not") else ""
            if kind.endswith("exists"):
                condition = f"{not_}EXISTS (SELECT 1 FROM {table} AS {alias} WHERE {alias}.id = {key})"
            else:
                column = choices.of([name for name in TABLES[table] if is_integer(name)])
                condition = f"{key} {not_}IN (SELECT {alias}.{column} FROM {table} AS {alias})"
        items, columns, unique = self._passed(use)
        details = [f"filter by {kind}"]
        return Block("filter", items, use, columns, unique, node.size, values=values, where=condition, details=details)

    def _masked(self, node: Node) -> Node:
        """A column that is NaN or infinite in some rows, and taken in the others only."""
        choices = self.choices
        use = self._use(node)
        scope = self._scope(use)
        if not scope.integers:
            return node
        number = choices.of(["NaN", "Infinity"])
        items, columns, unique = self._passed(use)
        mask = Column(self._fresh("mask_"))
        where = f"{choices.of(scope.integers).text} = {choices.of([1, 2, 3])}"
        items.append(Item(f"CASE WHEN {where} THEN CAST('{number}' AS DOUBLE) ELSE 1.25 END", mask.name))
        use = self._use(Block("projection", items, use, [*columns, mask], unique, node.size))
        *known, by = self._scoped(use)
        items, columns, unique = self._items([*known, by], use)
        value = expression(choices, known, 2, self.about)
        item, product = self._computed(Expression(f"({value.sql}) * {by.text}", value.dependence), "c")
        use = self._use(Block("projection", [*items, item], use, [*columns, product], unique, node.size))
        *known, by, taken = self._scoped(use)
        items, columns, unique = self._items(known, use)
        other = choices.of([s for s in known if not s.column.integer])
        otherwise = choices.of(["", "ELSE 0.0", f"ELSE {other.text}"])
        text = f"CASE WHEN {by.text} = 1.25 THEN {taken.text} {otherwise} END"
        item, column = self._computed(Expression(text, taken.column.dependence | other.column.dependence), "c")
        return Block("masked", [*items, item], use, [*columns, column], unique, node.size)

    def _join(self, node: Node) -> Node:
        choices = self.choices
        left = self._use(node)
        detail = ""
        if choices.chance(30):
            right, detail = left.again(self._fresh("q")), "self join"
        elif self._known and choices.chance(20):
            right, detail = choices.of(self._known).again(self._fresh("q")), "one query twice"
        else:
            right = self._use(self._other())
        self._known.append(left)
        a, b = self._scope(left), self._scope(right)
        if detail:
            # The columns of the other reference are to have names of their own.
            items, columns, unique = self._items(self._scoped(right), right)
            right = self._use(Block("projection", items, right, columns, unique, right.node.size))
            b = self._scope(right)
        kinds = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"]
        kind = choices.of(kinds)
        conditions = ["equal", "less", "equal and", "floats"] if a.integers and b.integers else ["floats"]
        condition = "" if kind == "CROSS JOIN" else choices.of(conditions)
        if kind == "FULL JOIN" and condition in ("less", "floats"):
            # Over several partitions, DataFusion 54 shows rows without a partner twice now and then.
            kind = "LEFT JOIN"
        floats = f"{choices.of(a.floats).text} > {choices.of(b.floats).text} - 0.7717"
        on = ""
        size = a.size * b.size
        if condition == "floats":
            on = floats
        elif condition:
            pair = choices.of(a.integers).text, choices.of(b.integers).text
            on = f"{pair[0]} {'<' if condition == 'less' else '='} {pair[1]}"
            if condition == "equal and":
                on += f" AND {floats}"
            size = size if condition == "less" else a.size + b.size
        if size > 2 * MOST_ROWS and kind not in ("LEFT SEMI JOIN", "LEFT ANTI JOIN"):
            return node
        if kind in ("LEFT JOIN", "RIGHT JOIN") and condition in ("less", "floats"):
            detail = UNEQUAL
        half = kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
        columns = [*left.node.columns, *([] if half else right.node.columns)]
        unique = [*left.node.unique, *([] if half else right.node.unique)]
        return Join(kind, left, right, on, columns, unique, a.size if half else size, detail)

    def _aggregated(self, scope: Scope, most: int = 0) -> tuple[Expression, str, Function]:
        """A call of an aggregate function, some with FILTER."""
        choices = self.choices
        function = choices.of(AGGREGATES[: most or (len(AGGREGATES) if scope.unique else 15)])
        if not most and choices.chance(8):
            function = choices.of(QUANTILES)
        if not most and choices.chance(1):
            function = choices.of(BARRED)
        arguments = [expression(choices, scope.columns, 2, self.about) for _ in range(function.arity)]
        found = call_of(function, arguments, ", ".join(scope.unique))
        if choices.chance(25):
            # By groups, DataFusion 54 takes a condition that is NULL for true in `first_value` and `last_value`.
            condition = self._condition(scope, never_null="_value" in function.name)
            found = Expression(f"{found.sql} FILTER (WHERE {condition})", found.dependence)
        return found, "a", function

    def _condition(self, scope: Scope, *, never_null: bool = False) -> str:
        integer = scope.integers and self.choices.chance(50)
        column = self.choices.of(scope.integers if integer else scope.floats).text
        condition = f"{column} <> 2" if integer else f"{column} < 1.1531"
        return f"{condition} AND {column} IS NOT NULL" if never_null else condition

    def _aggregate(self, node: Node) -> Node:
        choices = self.choices
        use = self._use(node)
        scope = self._scope(use)
        keys: list[Scoped] = []
        kinds = choices.of(["integer", "both", "float", "none", "integer"])
        if kinds in ("integer", "both") and scope.integers:
            keys.append(choices.of(scope.integers))
        if kinds in ("float", "both"):
            keys.append(choices.of(scope.floats))
        items, columns, _ = self._items(keys, use)
        unique = [column.name for column in columns]
        for _ in range(1 + choices.below(3)):
            item, column = self._computed(*self._aggregated(scope))
            items.append(item)
            columns.append(column)
        if all(column.integer for column in columns):
            item, column = self._computed(*self._aggregated(scope, most=4))
            items.append(item)
            columns.append(column)
            if column.integer:
                return node
        total = bool(keys) and choices.chance(15)
        if total:
            # The group of all rows has more of them than that of a NULL key.
            columns.append(Column(self._fresh("rows_"), integer=True))
            items.append(Item("count(1)", columns[-1].name))
            unique.append(columns[-1].name)
        having = choices.of(["", "", "", "count(1) > 1", f"sum({scope.floats[0].text}) > -0.9137"]) if keys else ""
        details = [f"grouped by {kinds}", *(["having"] if having else []), *(["grouping sets"] if total else [])]
        texts = [key.text for key in keys]
        size = node.size if keys else 1
        return Block(
            "aggregate", items, use, columns, unique, size, keys=texts, total=total, having=having, details=details
        )

    def _window(self, node: Node) -> Node:
        choices = self.choices
        use = self._use(node)
        scope = self._scope(use)
        items, columns, unique = self._passed(use)
        details = []
        for _ in range(1 + choices.below(2)):
            if scope.integers and choices.chance(25):
                function = choices.of(AGGREGATES[:4])
                by, frame = choices.of(scope.integers).text, choices.of(_RANGES)
                value = call_of(function, [expression(choices, scope.columns, 2, self.about)])
                value = Expression(f"{value.sql} OVER (ORDER BY {by} {frame})", value.dependence)
                details.append(f"window {frame.split()[0].lower() if frame else 'to the last peer'}")
            else:
                value, function = self._functions.windowed(scope)
                details.append("window")
            if function.name in ("min", "max"):
                # Where a frame that slides has NULLs only, DataFusion 54 keeps the value of the frame before.
                counted = value.sql.replace(function.name, "count", 1)
                value = Expression(f"CASE WHEN {counted} > 0 THEN {value.sql} END", value.dependence)
            item, column = self._computed(value, "w", function)
            items.append(item)
            columns.append(column)
        return Block("windows", items, use, columns, unique, node.size, details=details)

    def _union(self, node: Node) -> Node:
        choices = self.choices
        uses = [self._use(node), self._use(self._other())]
        scopes = [self._scope(use) for use in uses]
        count = min(len(scope.integers) for scope in scopes)
        width = 1 + choices.below(min(len(scope.floats) for scope in scopes))
        part = self._fresh("part_")
        names = [self._fresh("u_") for _ in range(count + width)]
        parts = []
        for number, (use, scope) in enumerate(zip(uses, scopes, strict=True)):
            kept = scope.integers[:count] + scope.floats[:width]
            if not count or not {*scope.unique} <= {s.text for s in kept}:
                return node
            # DataFusion 54 takes the order of what is constant in each part for the order of all.
            items = [Item(f"CASE WHEN {kept[0].text} < -5 THEN -1 ELSE {number} END", part)]
            items += [Item(s.text, name) for s, name in zip(kept, names, strict=True)]
            columns = [
                Column(part, integer=True),
                *(
                    Column(name, dependence=s.column.dependence, integer=s.column.integer)
                    for s, name in zip(kept, names, strict=True)
                ),
            ]
            parts.append(Block("part", items, use, columns, [], scope.size))
        columns = [
            Column(a.name, dependence=a.dependence | b.dependence, integer=a.integer)
            for a, b in zip(parts[0].columns, parts[1].columns, strict=True)
        ]
        return Union(parts, columns, [column.name for column in columns], sum(part.size for part in parts))

    def _distinct(self, node: Node) -> Node:
        """DISTINCT over columns that do not tell all rows apart."""
        use = self._use(node)
        scope = self._scope(use)
        kept = self.choices.some(scope.integers, 40) + self.choices.some(scope.floats, 60)
        if not any(not s.column.integer for s in kept):
            kept.append(self.choices.of(scope.floats))
        items, columns, _ = self._items(kept, use)
        return Block("distinct", items, use, columns, [column.name for column in columns], node.size, distinct=True)

    def _limit(self, node: Node) -> Node:
        choices = self.choices
        use = self._use(node)
        scope = self._scope(use)
        first = choices.of([s.text for s in scope.columns])
        order = ", ".join([f"{first}{choices.of(['', ' DESC', ' NULLS FIRST'])}", *scope.unique])
        count = 3 + choices.below(6)
        tail = f"ORDER BY {order} LIMIT {count}{choices.of(['', ' OFFSET 1'])}"
        items, columns, unique = self._passed(use)
        return Block("sort, limit", items, use, columns, unique, min(count, node.size), tail=tail)

    def _one(self, node: Node) -> Node:
        """One row of a query: aggregates of all its rows, or the first."""
        use = self._use(node)
        scope = self._scope(use)
        if self.choices.chance(10) and scope.unique:
            kept = [s for s in scope.columns if not s.column.integer]
            items, columns, _ = self._items(kept, use)
            tail = f"ORDER BY {', '.join(scope.unique)} LIMIT 1"
            return Block("the first row", items, use, columns, [], 1, tail=tail)
        items, columns = [], []
        for _ in range(1 + self.choices.below(3)):
            found, prefix, function = self._aggregated(scope)
            if function.integer:
                found = Expression(f"CAST({found.sql} AS DOUBLE)", INDEPENDENT)
            item, column = self._computed(found, prefix)
            items.append(item)
            columns.append(column)
        return Block("aggregate of all", items, use, columns, [], 1, keys=())


def random_value(choices: Choices) -> Value:
    """A random value."""
    return Generator(choices).value()
