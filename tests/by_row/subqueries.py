"""Random expressions over the rows of a table, with subqueries that read the table as well."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.choices import Choices

# All floats are apart from one another, and from the numbers that conditions compare them with.
ROWS = {
    "k": [1, 2, 3, 4, 5, 6, 7],
    "g": [0, 0, 1, 1, 1, 2, None],
    "s": [0, 1, 0, 1, 1, 0, 1],
    "x": [1.25, -0.75, 2.5, 0.625, -1.375, 3.125, 0.375],
    "val": [0.53, -1.47, 2.11, 0.89, -0.31, 1.73, -2.03],
}
OTHERS = {"k": [1, 2, 2, 4, 6, 9], "s": [0, 1, 1, 0, 0, 1], "y": [0.7, -1.1, 1.9, 0.4, -2.2, 1.3]}

_AGGREGATES = (
    *("SUM({})", "AVG({})", "MAX({})", "MIN({})", "COUNT({})", "VAR_POP({})", "STDDEV({})", "VAR_SAMP({})"),
    *("COVAR_POP({}, {})", "REGR_SLOPE({}, {})", "CORR({}, {})", "REGR_SXY({}, {})"),
)
# How rows {0} of a subquery are those of a row {1} around it.
_KEYS = (
    *("{0}.g = {1}.g", "{0}.k = {1}.k", "{0}.s = {1}.s", "{0}.g = {1}.g AND {0}.s = {1}.s", "{0}.k = {1}.k + 1"),
    *("{0}.g = {1}.s", "{0}.s = {1}.s AND {0}.x > 0"),
)


@dataclass(frozen=True)
class Statement:
    """An expression with subqueries, and what is around its derivative."""

    # Over a row of `m`; `{other}` is what another reference to it reads, which is a variable of its own.
    expression: str
    source: str
    # The relation is a CTE that computes the variable, instead of a table.
    is_computed: bool
    operator: str
    kinds: frozenset[str]

    def query(self, *, derivative: bool, moved: str = "") -> str:
        """The statement, of the derivative or of the value with each cell {val} `moved`."""
        names = {"other": "m" if derivative else "base"}
        value = self.expression.format(**names)
        if derivative:
            value = self.operator.format(value)
        relation = ""
        if self.is_computed or not derivative:
            relation = f"WITH m AS (SELECT k, g, s, x, val * 1{moved} AS val FROM base) "
        return f"{relation}SELECT m.k, {value} AS d FROM {self.source.format(**names)} ORDER BY m.k"


@dataclass
class Writer:
    """Writes a statement by choices."""

    choices: Choices
    kinds: set[str] = field(default_factory=set)
    _names: int = 0

    def statement(self) -> Statement:
        source = self._source()
        expression = self._value("m", 2)
        if "(SELECT" not in expression:
            expression = f"{expression} * {self._scalar('m', 2)}"
        if "lateral" in self.kinds:
            expression = f"({expression}) * coalesce(beside.l, 1)"
        operator = self.choices.of(("grad({}, m.val)", "vjp({}, m.val, 1.0)", "jvp({}, m.val, 1.0)"))
        is_computed = self.choices.chance(25)
        return Statement(expression, source, is_computed, operator, frozenset(self.kinds))

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _source(self) -> str:
        source = "m"
        kind = self.choices.of(("table", "table", "join", "lateral"))
        if kind == "join":
            source = "m JOIN n ON m.k = n.k"
        elif kind == "lateral":
            name = self._name()
            keys = self.choices.of(_KEYS[:4]).format(name, "m")
            source = f"m, LATERAL (SELECT SUM({name}.val * {name}.x) AS l FROM {{other}} {name} WHERE {keys}) AS beside"
        self.kinds.add(kind)
        condition = self._condition("m", 1) if self.choices.chance(30) else ""
        return f"{source} WHERE {condition}" if condition else source

    def _value(self, row: str, depth: int) -> str:
        """A value of a row."""
        kind = self.choices.of(("val", "scalar", "product", "sum", "case", "coalesce", "sin", "x"))
        if depth == 0 or kind in ("val", "x"):
            return f"{row}.{'x' if kind == 'x' else 'val'}"
        if kind == "scalar":
            return self._scalar(row, depth)
        if kind in ("product", "sum"):
            sign = "*" if kind == "product" else "+"
            return f"({self._value(row, depth - 1)} {sign} {self._value(row, depth - 1)})"
        if kind == "sin":
            return f"sin({self._value(row, depth - 1)})"
        self.kinds.add(kind)
        value, other = self._value(row, depth - 1), self._value(row, depth - 1)
        if kind == "coalesce":
            return f"coalesce({self._scalar(row, depth)}, {other})"
        return f"CASE WHEN {self._comparison(row)} THEN {value} ELSE {other} END"

    def _comparison(self, row: str) -> str:
        """What a row's value is compared with, which moving cells a little does not change."""
        value = self.choices.of((f"{row}.x", f"{row}.val", "scalar"))
        if value == "scalar":
            value = self._scalar(row, 1)
            self.kinds.add("compared")
        return f"{value} > {self.choices.of(('0.2137', '-0.8113', '1.0391'))}"

    def _scalar(self, row: str, depth: int) -> str:
        """A scalar subquery that reads the table."""
        name = self._name()
        aggregate = self.choices.of(_AGGREGATES)
        self.kinds.add(aggregate.partition("(")[0])
        source, nested = f"m {name}", ""
        if depth > 1 and self.choices.chance(25):
            self.kinds.add("depth two")
            of = self._name()
            source = f"(SELECT {of}.*, {self._scalar(of, depth - 1)} AS nested FROM m {of}) AS {name}"
            nested = f"{name}.nested * "
        elif self.choices.chance(20):
            self.kinds.add("joined in it")
            source = f"m {name} JOIN n n{name} ON n{name}.k = {name}.k"
            nested = f"n{name}.y * "
        operands = (f"{name}.val", f"{name}.val * {name}.x", f"{name}.val * {name}.val", f"exp({name}.val / 4)")
        value = aggregate.format(nested + self.choices.of(operands), f"{name}.x")
        conditions = []
        if self.choices.chance(85):
            self.kinds.add("correlated")
            conditions.append(self.choices.of(_KEYS).format(name, row))
        if depth > 1 and self.choices.chance(25):
            conditions.append(self._condition(name, 0))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        value = self.choices.of(("{}", "{} + 1", "coalesce({}, 0.5)", "2 * {}")).format(value)
        return f"(SELECT {value} FROM {source}{where})"

    def _condition(self, row: str, depth: int) -> str:
        """A condition with a subquery, which says which rows there are."""
        kind = self.choices.of(("EXISTS", "NOT EXISTS", "IN", "NOT IN", "scalar"))
        self.kinds.add(kind)
        name = self._name()
        keys = self.choices.of(_KEYS[:4]).format(name, row)
        if kind in ("IN", "NOT IN"):
            return f"{row}.k {kind} (SELECT {name}.k FROM m {name} WHERE {name}.val > 0.1013)"
        if kind == "scalar":
            return f"{row}.k >= (SELECT MIN({name}.k) FROM m {name} WHERE {keys})"
        return f"{kind} (SELECT 1 FROM m {name} WHERE {keys} AND {name}.val > {self.choices.of(('0.1013', '1.8027'))})"
