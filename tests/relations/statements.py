"""The statement at the top of a random plan: a derivative of one of its expressions by one of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relations.columns import Column, Origin, Origins, Scoped, Shift
from relations.expressions import AGGREGATES, BARRED, QUANTILES, Expression, call_of, expression
from relations.nodes import Builder, build
from relations.queries import Item, Select, Writer
from relations.scopes import Scope
from support.choices import Choices
from support.verdict import CREATE, INSERT, PLAIN, PREPARE, VIEW

VALUE, DERIVATIVE = "f", "d"
# How the statement is carried out.


@dataclass(frozen=True)
class Variable:
    """What is differentiated by, and the number that the derivative by it is multiplied with."""

    text: str
    column: Column
    factor: str = "1.0"


@dataclass(frozen=True)
class Call:
    """A call: in SQL, of what order, by what. Of the first order it is the sum of the derivatives by the variables."""

    kind: str
    sql: str
    variables: Sequence[Variable]

    @property
    def second_order(self) -> bool:
        return self.kind == "second order"

    @property
    def own_cell(self) -> bool:
        """Whether it is by the row's own cell, which through windows differs from that by all rows together."""
        return self.kind == "own cell"


@dataclass(frozen=True)
class Statement:
    """A query with a value, its derivative, and what makes its rows unique."""

    block: Select
    value: Expression
    call: Call
    position: str
    # Whether the plan below has a derivative as a column.
    nested: bool

    def written(self, derivative: str) -> tuple[dict[str, str], str]:
        """The views to make, and the query with `derivative` in the place of the derivative."""
        writer = Writer()
        query = self._block([Item(self.value.sql, VALUE), Item(derivative, DERIVATIVE)]).write(writer)
        return writer.views, f"{writer.whole(query)} {self._order}"

    def primal(self, shift: Shift) -> str:
        """The query with its value and the factors, when the columns of these origins are moved."""
        items = [Item(self.value.sql, VALUE)]
        if self.position != "inside":
            items += [Item(v.factor, f"t{number}") for number, v in enumerate(self.call.variables)]
        if self.call.own_cell:
            items.append(Item(self.call.variables[0].text, "own"))
        return f"{self._block(items).write(Writer(shift))} {self._order}"

    def _block(self, items: Sequence[Item]) -> Select:
        return replace(self.block, items=[*self.block.items, *items])

    @property
    def _order(self) -> str:
        return f"ORDER BY {', '.join(self.block.unique)}" if self.block.unique else ""

    @property
    def integers(self) -> int:
        return sum(column.integer for column in self.block.columns)

    def barred(self) -> set[str]:
        """The functions without a derivative through which the value depends on a variable."""
        origins = {origin for variable in self.call.variables for origin in variable.column.origins}
        return {function for origin, function in self.value.dependence.barred if origin in origins}

    def other_references(self) -> Origins:
        """Where the column of a variable starts by other references, if the value depends on these instead."""
        found: set[Origin] = set()
        on = self.value.dependence.on
        named_at_all = {origin for variable in self.call.variables for origin in variable.column.origins}
        for variable in self.call.variables:
            named = variable.column.origins
            if not named & on:
                labels = {origin.label for origin in named}
                others = on if self.call.second_order else on - named_at_all
                found |= {origin for origin in others if origin.label in labels}
        return frozenset(found)

    def other_references_of_branches(self) -> bool:
        """Whether the value depends on another reference to the column of a variable, or on both.

        Of a union, a branch may depend on the one and the next one on the other.
        """
        named = [variable.column.origins for variable in self.call.variables]
        return any(
            {o.label for o in origins} & {o.label for o in self.value.dependence.on - origins} for origins in named
        )

    def by_way_of_named(self) -> Origins:
        """What the variables are computed from: a value that depends on it may do so by way of them alone."""
        return frozenset().union(*(variable.column.dependence.on for variable in self.call.variables))

    def common_sources(self) -> bool:
        """Whether a variable is computed from what the value is computed from, and the value not from it."""
        on = self.value.dependence.on
        labels = {origin.label for origin in on}
        return any(
            not variable.column.origins & on and labels & {o.label for o in variable.column.dependence.on}
            for variable in self.call.variables
        )


def statement(choices: Choices) -> Statement:
    """A random statement."""
    builder = Builder(choices)
    query = build(builder)
    scope = builder.over(query, joins=query.size < 40)
    form = choices.of(["plain", "plain", "aggregate", "average of calls", "window", "group key"])
    variables = _variables(choices, scope)
    block, value = _top(builder, form, scope, variables)
    windows = form == "window" or "window" in query.kinds()
    if form == "average of calls":
        # Only a factor that is a constant can be drawn out of the average.
        call = _call(choices, value.sql, variables, second=not builder.derived, windows=windows, average=True)
        call = replace(call, sql=f"avg({call.sql})")
        value = Expression(f"avg({value.sql})", value.dependence)
    else:
        call = _call(choices, value.sql, variables, second=not builder.derived, windows=windows)
    position = choices.of([PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, VIEW, CREATE, INSERT, PREPARE])
    return Statement(block, value, call, position, builder.derived)


def _top(builder: Builder, form: str, scope: Scope, variables: Sequence[Variable]) -> tuple[Select, Expression]:
    """The query block that the call stands in, and the expression that it differentiates."""
    choices = builder.choices
    about = variables[0].column.origins
    varying = [s for s in scope.floats if s.text in {variable.text for variable in variables}]
    if form == "window":
        value, _ = builder.windowed(_about(scope, variables[0]), constant=choices.chance(10))
        return _block(builder, form, scope), value
    if form == "aggregate":
        function = choices.of(AGGREGATES[: choices.of([4, len(AGGREGATES)])])
        if choices.chance(5):
            function = choices.of(BARRED)
        elif choices.chance(8):
            function = choices.of(QUANTILES)
        arguments = [expression(choices, scope.columns, 2, about) for _ in range(function.arity)]
        value = call_of(function, arguments, ", ".join(scope.unique))
        return _grouped(builder, form, scope, choices.some(scope.integers, 20) + varying), value
    value = expression(choices, scope.columns, 3, about)
    if form == "group key":
        block = _grouped(builder, form, scope, [*scope.integers[:1], *varying], value.sql)
        if choices.chance(50):
            factor = expression(choices, scope.columns, 0)
            value = Expression(f"({value.sql}) * avg({factor.sql})", value.dependence | factor.dependence)
        return block, value
    if form == "average of calls":
        return _grouped(builder, form, scope, choices.some(scope.integers, 40)), value
    return _block(builder, form, scope), value


def _about(scope: Scope, variable: Variable) -> Scope:
    """The scope with only those floats that depend on the variable, if there are others than itself."""
    origins = variable.column.origins
    kept = [s for s in scope.columns if s.column.integer or s.column.dependence.on & origins]
    return replace(scope, columns=kept) if any(not s.column.integer for s in kept) else scope


def _variables(choices: Choices, scope: Scope) -> list[Variable]:
    """One or two columns to differentiate by, the first preferably one from which others are computed."""
    far = [s for s in scope.floats if any(_computed_from(other.column, s.column) for other in scope.floats)]
    found = [choices.of(far if far and choices.chance(85) else scope.floats)]
    others = [s for s in scope.floats if not s.column.origins & found[0].column.origins]
    if others:
        found.append(choices.of(others))
    return [Variable(s.text, s.column) for s in found]


def _computed_from(column: Column, source: Column) -> bool:
    return bool(column.dependence.on & source.origins and not column.origins & source.origins)


def _block(builder: Builder, kind: str, scope: Scope) -> Select:
    items, columns, unique = builder.passed(scope, builder.choices.some(scope.floats, 50))
    details = [*scope.details, f"{kind} at the top"]
    return Select("top", items, scope.source, "", columns, unique, scope.size, details=details)


def _grouped(builder: Builder, kind: str, scope: Scope, keys: Sequence[Scoped], *more: str) -> Select:
    scope = replace(scope, columns=list(keys), unique=[key.text for key in keys])
    items, columns, unique = builder.passed(scope, [])
    rolled = [key.text for key in keys if key.column.integer] if builder.choices.chance(25) else []
    by = [text for text in scope.unique if text not in rolled] + list(more)
    details = [*scope.details, f"{kind} at the top"]
    if rolled:
        number = builder.fresh("set_")
        items.append(Item(f"grouping({', '.join(rolled)})", number))
        columns.append(Column(number, integer=True))
        unique.append(number)
        by.append(f"ROLLUP ({', '.join(rolled)})")
        details.append("grouping sets at the top")
    tail = f"GROUP BY {', '.join(by)}" if by else ""
    return Select("top", items, scope.source, tail, columns, unique, scope.size, details=details)


def _call(
    choices: Choices,
    value: str,
    variables: Sequence[Variable],
    *,
    second: bool,
    windows: bool,
    average: bool = False,
) -> Call:
    """A derivative of a value. Where there are windows it is by all rows together, or by the row's own cell."""
    x = variables[0]
    kinds = ["grad", "grad", "jvp", "vjp"]
    if len(variables) > 1:
        kinds.append("jvp of two")
    if second:
        kinds += ["second order"]
    if windows and not average:
        kinds += ["own cell"] * len(kinds)
    kind = choices.of(kinds)
    # Along what differs from row to row, each row that a window reads moves by its own.
    constant = average or windows
    factors = ["0.7", "1.0"] if constant else ["0.7", x.text, f"{variables[-1].text} * 2.0"]
    if kind in ("jvp", "vjp"):
        factor = choices.of(factors)
        function = "jvp" if windows else kind
        return Call(kind, f"{function}({value}, {x.text}, {factor})", [replace(x, factor=factor)])
    if kind == "jvp of two":
        both = [replace(variable, factor=choices.of(factors)) for variable in variables[:2]]
        pairs = ", ".join(f"{variable.text}, {variable.factor}" for variable in both)
        return Call(kind, f"jvp({value}, {pairs})", both)
    if kind == "own cell":
        return Call(kind, f"grad({value}, {x.text})", [x])
    if kind == "second order":
        y = choices.of([x, variables[-1]])
        return Call(kind, _together(_together(value, x, windows), y, windows), [x, y])
    return Call(kind, _together(value, x, windows), [x])


def _together(value: str, x: Variable, windows: bool) -> str:
    return f"jvp({value}, {x.text}, 1.0)" if windows else f"grad({value}, {x.text})"
