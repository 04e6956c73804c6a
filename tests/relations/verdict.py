"""Runs statements in a session with the functions and finds what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext

from relations.columns import Cell, Origin, Origins, Shift
from relations.queries import Writer
from relations.statements import DERIVATIVE, VALUE, Statement
from relations.tables import add_plan_tables
from support import differences, verdict
from support.compare import same_value
from support.differences import Estimate, Sampled
from support.errors import is_failure, is_panic
from support.findings import Finding
from support.sessions import session
from support.verdict import PLAIN, VIEW, placed, short

TOLERANCE = 1e-8
# By variable, the values of what the derivative by it is multiplied with.
Factors = list[list[float | None]]
# Differences that are less certain are not used.
_USABLE = 1e-6
# What tells a row apart.
Row = tuple[tuple[str, float | None], ...]
# A column with more cells is not moved cell by cell.
_MOST_CELLS = 12
# Kinds of nodes that make rows one, in which cells of one value are one.
_MERGING = ("aggregate", "distinct", "union", "group key", "average")
# What refusals of derivatives by the row's own cell say.
_BEYOND = ("by the row's own", "in one window", "to a window")
# What DataFusion 54 says of plans that it has made itself. Its physical plan takes `coalesce(x, 0)` for nullable, the
# logical one for not, if `x` is read elsewhere too, as by a derivative: of `x IS NOT NULL` and `x` it makes columns.
# And LEFT JOIN LATERAL has other columns when it is no longer LATERAL, which a window above it does not know:
# `SELECT exp(x), exp(x) + 1, sum(y) OVER (ORDER BY id) FROM d LEFT JOIN LATERAL (...) ON TRUE`.
_FAULTS = (
    "Physical input schema should be the same",
    "Mismatch between schema and batches",
    "Window schema has wrong number of fields",
)


def found_in(statement: Statement, kind: str, detail: str) -> Finding:
    """What is wrong with a statement."""
    return Finding(kind, detail, statement.position, *statement.written(statement.call.sql))


class Judge(verdict.Judge[Statement]):
    """Compares statements with the differences of their values; counts what it has compared."""

    def __init__(self, register: Callable[[SessionContext], SessionContext]) -> None:
        super().__init__()
        self._called = _with_plan_tables()
        register(self._called)
        self._plain = _with_plan_tables()

    def judge(self, statement: Statement) -> Finding | None:
        """The first thing found wrong."""
        try:
            base, factors = self._sampled(statement, [0.0] * len(statement.call.variables))
        except BaseException as error:
            if not is_failure(error):
                raise
            self.cannot(error)
            return None
        try:
            found = self._run(statement, statement.call.sql)
        except Exception as error:
            return self._refused(statement, base, error)
        except BaseException as panic:
            if not is_panic(panic):
                raise
            return found_in(statement, "panic", str(panic))
        if statement.barred():
            return found_in(statement, "not refused", f"{statement.barred()} has no derivative")
        others = statement.other_references() - statement.by_way_of_named()
        if others and not statement.call.second_order:
            estimate = differences.first(lambda steps: self._at(statement, [others], steps)[0], base, 0, 1)
            certain = np.isfinite(estimate.error) & (np.abs(estimate.value) > 1e-6)
            if certain.any():
                return found_in(statement, "other reference", f"a value depends on another reference to {others}")
            self.counts["dependent on another reference in form only"] += 1
        return self._leak(statement, base, found) or self._compare(statement, base, factors, found.table)

    def _sampled(self, statement: Statement, steps: Sequence[float]) -> tuple[Sampled, Factors]:
        """The value of the statement, and its factors, when the variables are moved."""
        return self._at(statement, [variable.column.origins for variable in statement.call.variables], steps)

    def _at(self, statement: Statement, moved: Sequence[Origins], steps: Sequence[float]) -> tuple[Sampled, Factors]:
        shift: dict[Origin, float] = {}
        for origins, step in zip(moved, steps, strict=True):
            for origin in origins:
                shift[origin] = shift.get(origin, 0.0) + step
        return self._shifted(statement, shift)

    def _shifted(self, statement: Statement, shift: Shift) -> tuple[Sampled, Factors]:
        ctx = self._called if statement.nested else self._plain
        table = _arranged(ctx.sql(statement.primal(shift)).to_arrow_table(), statement)
        value = table[VALUE]
        width = len(statement.block.columns)
        numbers = np.array([np.nan if v is None else float(v) for v in value.to_pylist()], dtype=float)
        factors = [table.column(i).to_pylist() for i in range(width + 1, table.num_columns)]
        return Sampled(numbers, np.array(value.is_null(), dtype=bool), _integers(table, statement)), factors

    def _run(self, statement: Statement, derivative: str, ctx: SessionContext | None = None) -> Result:
        """The result of a statement, which is carried out as it says, and the columns that it declares."""
        ctx = ctx or self._called
        views, query = statement.written(derivative)
        _, plain = statement.written("CAST(NULL AS DOUBLE)")
        try:
            for name, text in views.items():
                ctx.sql(f"CREATE OR REPLACE VIEW {name} AS {text}").collect()
            with placed(ctx, query, statement.position, plain) as frame:
                return Result(frame, statement)
        finally:
            for name in reversed(views):
                ctx.sql(f"DROP VIEW IF EXISTS {name}").collect()

    def _refused(self, statement: Statement, base: Sampled, error: Exception) -> Finding | None:
        """Whether it was right to refuse."""
        message = str(error)
        barred = statement.barred()
        if barred and any(function in message for function in barred):
            self.counts["refused, and rightly: no derivative"] += 1
            return None
        if statement.other_references():
            self.counts["refused, and rightly: another reference"] += 1
            return None
        if message.startswith("in branch ") and statement.other_references_of_branches():
            self.counts["refused, and rightly: another reference in a branch"] += 1
            return None
        if statement.call.own_cell and any(says in message for says in _BEYOND):
            self.counts["refused: windows by the row's own cell"] += 1
            return None
        if "a subquery in it reads the rows" in message:
            self.counts["refused: a subquery below that reads the rows of the variable"] += 1
            return None
        if statement.common_sources() and "does not vary with" in message:
            self.counts["refused: independent, but of common sources"] += 1
            return None
        if any(says in message for says in _FAULTS):
            self.cannot("a plan of its own")
            return None
        try:
            self._run(statement, statement.value.sql)
        except Exception as error:
            if "project index" not in str(error):
                self.cannot(error)
                return None
            return found_in(statement, "fails without a call", str(error)[:500])
        return found_in(statement, "refused", message[:700])

    def _leak(self, statement: Statement, base: Sampled, found: Result) -> Finding | None:
        """Whether all but the derivative is as it is without the derivative."""
        try:
            expected = self._run(statement, statement.value.sql)
        except Exception as error:
            self.cannot(error)
            return None
        # What is stored or prepared is nullable as the optimizer finds, which knows more of shorter expressions.
        declared = statement.position in (PLAIN, VIEW)
        own, others = (
            [(field.name, field.type, declared and field.nullable) for field in schema if field.name != DERIVATIVE]
            for schema in (found.declared, expected.declared)
        )
        if own != others:
            return found_in(statement, "leak", f"columns {own}\ninstead of {others}")
        own, others = (
            [field.type for field in table.schema if field.name != DERIVATIVE]
            for table in (found.table, expected.table)
        )
        if own != others:
            return found_in(statement, "leak", f"types {own} instead of {others}")
        derivative = {schema.field(DERIVATIVE).type for schema in (found.table.schema, found.declared)}
        if derivative != {pa.float64()}:
            return found_in(statement, "leak", f"the derivative is {derivative}")
        # DataFusion 54 plans what reads a recursive query by the static term alone, and leaves out what NULLs of later
        # iterations need, such as `coalesce` and `IS NOT NULL`. With a call it knows better.
        recursive = "recursive" in statement.block.kinds()
        missing = expected.table.num_rows - found.table.num_rows
        if recursive and missing > 0 and " IS NOT NULL" in statement.written(statement.value.sql)[1]:
            self.counts["rows with NULL of a recursive term that DataFusion takes for not NULL"] += 1
            return None
        if missing:
            detail = f"{found.table.num_rows} rows instead of {expected.table.num_rows}"
            return found_in(statement, "leak", detail)
        for name in expected.table.schema.names:
            if name == DERIVATIVE:
                continue
            pairs = zip(found.table[name].to_pylist(), expected.table[name].to_pylist(), strict=True)
            for number, pair in enumerate(pairs):
                if recursive and pair[1] is None:
                    self.counts["NULL of a recursive term that DataFusion takes for not NULL"] += 1
                    continue
                if not same_value(*pair, rel=1e-9, abs_=1e-12):
                    return found_in(statement, "leak", f"{name} in row {number} is {pair[0]} instead of {pair[1]}")
        return None

    def _compare(self, statement: Statement, base: Sampled, factors: Factors, found: pa.Table) -> Finding | None:
        if _integers(found, statement) != base.rows:
            # Also without the derivative, when the parts of the plan are CTEs and not written out: DataFusion 54 takes
            # other rows for OFFSET over UNION ALL.
            self.cannot("other rows by CTEs")
            return None
        derivative = found[DERIVATIVE]
        null = np.array(derivative.is_null(), dtype=bool)
        value_null = np.array(found[VALUE].is_null(), dtype=bool)
        if not statement.call.second_order:
            for factor in factors[: len(statement.call.variables)]:
                value_null = value_null | np.array([t is None for t in factor], dtype=bool)
        # A correlation of what is constant is what rounding makes of it, in another order of the rows something else.
        values = np.array([np.nan if v is None else float(v) for v in found[VALUE].to_pylist()], dtype=float)
        with np.errstate(invalid="ignore"):
            close = np.abs(values - base.values) <= 1e-11 * np.maximum(1, np.abs(base.values))
        reproduced = close | (values == base.values) | (np.isnan(values) & np.isnan(base.values))
        reproduced &= np.array(found[VALUE].is_null(), dtype=bool) == base.null
        inexact = (null != value_null) & reproduced
        if inexact.any():
            row = int(np.argmax(inexact))
            detail = f"row {row}: the derivative is {derivative[row]}, the value {found[VALUE][row]}"
            return found_in(statement, "NULL", detail)
        estimate = self._estimate(statement, base, factors)
        actual = np.array([np.nan if v is None else v for v in derivative.to_pylist()], dtype=float)
        size = np.maximum(1, np.abs(estimate.value))
        usable = ~null & reproduced & (estimate.error <= _USABLE * size)
        self.counts["rows compared"] += int(usable.sum())
        self.counts["rows not compared"] += int((~null & ~usable).sum())
        with np.errstate(invalid="ignore"):
            wrong = usable & ~(np.abs(actual - estimate.value) <= TOLERANCE * size + 10 * estimate.error)
        if wrong.any() and np.isnan(actual[wrong]).all() and "corr(" in str(statement.written(statement.value.sql)):
            # Of equal values, corr is what rounding makes of it, such as -1, and its derivative is NaN.
            self.cannot("corr of values equal up to rounding")
            return None
        if wrong.any():
            row = int(np.argmax(wrong))
            detail = (
                f"row {row} of {int(wrong.sum())} wrong of {int(usable.sum())} compared: {actual[row]!r} instead of "
                f"{estimate.value[row]!r} +- {estimate.error[row]:.1g}\n{found.slice(row, 1).to_pylist()}"
            )
            return found_in(statement, "wrong", detail)
        if (~null).any():
            self.counts["plans of which differences tell " + ("something" if usable.any() else "nothing")] += 1
        telling = usable & (np.abs(estimate.value) > 1e-6)
        if telling.any():
            self.counts["plans with a derivative that is not 0"] += 1
            kinds = {statement.call.kind, statement.position, *statement.block.kinds()}
            self.right.update(kinds | ({"derivative of a derivative below"} if statement.nested else set()))
        return None

    def _estimate(self, statement: Statement, base: Sampled, factors: Factors) -> Estimate:
        def evaluate(steps: Sequence[float]) -> Sampled:
            return self._sampled(statement, steps)[0]

        try:
            if statement.call.own_cell:
                return self._by_cell(statement, base, factors)
            if statement.call.second_order:
                return differences.second(evaluate, base)
            value, error = np.zeros(len(base.values)), np.zeros(len(base.values))
            for index in range(len(statement.call.variables)):
                estimate = differences.first(evaluate, base, index, len(statement.call.variables))
                factor = np.array([np.nan if t is None else t for t in factors[index]], dtype=float)
                with np.errstate(invalid="ignore"):
                    value = value + factor * estimate.value
                    error = error + np.abs(factor) * estimate.error
            return Estimate(value, np.where(np.isnan(error), np.inf, error))
        except Exception as error:
            self.counts[f"no differences: {short(error)}"] += 1
            nothing = np.full(len(base.values), np.nan)
            return Estimate(nothing, np.full(len(base.values), np.inf))

    def _by_cell(self, statement: Statement, base: Sampled, factors: Factors) -> Estimate:
        """The derivative of each row by the cell that its variable is: the one with which it moves."""
        found = differences.nothing(base)
        own = np.array([np.nan if value is None else value for value in factors[-1]], dtype=float)
        for origin in statement.call.variables[0].column.origins:
            for row in self._cells(statement, origin):

                def evaluate(steps: Sequence[float], origin: Origin = origin, row: Row = row) -> Sampled:
                    return self._shifted(statement, {origin: Cell(row, steps[0])})[0]

                _, moved = self._shifted(statement, {origin: Cell(row, 2.0**-8)})
                if len(moved[-1]) != len(own):
                    continue
                values = np.array([np.nan if value is None else value for value in moved[-1]], dtype=float)
                with np.errstate(invalid="ignore"):
                    has = np.abs(values - own) > 2.0**-10
                if has.any():
                    estimate = differences.first(evaluate, base, 0, 1)
                    found = Estimate(
                        np.where(has, estimate.value, found.value), np.where(has, estimate.error, found.error)
                    )
        return found

    def _cells(self, statement: Statement, origin: Origin) -> list[Row]:
        """What tells the rows apart in which a column starts; nothing where the cell of a row cannot be told by it."""
        start = statement.block.starting(origin)
        if start is None:
            return []
        query, name = start
        if query.kind == "recursive" or "distinct" in query.kind or (query.size > 1 and not query.unique):
            return []
        listed = ", ".join([*query.unique, name])
        text = f"SELECT {listed} FROM ({query.write(Writer({}))}) AS q"
        rows = (self._called if statement.nested else self._plain).sql(text).to_arrow_table().to_pylist()
        values = [row[name] for row in rows if row[name] is not None]
        merged = any(kind in found for kind in _MERGING for found in statement.block.kinds())
        # Those of several origins may have one value as well.
        several = len(statement.call.variables[0].column.origins) > 1
        if len(rows) > _MOST_CELLS or (merged and (several or len(set(values)) < len(values))):
            return []
        return [tuple((key, row[key]) for key in query.unique) for row in rows]


class Result:
    """The rows of a query, and the columns that it declares."""

    def __init__(self, frame: DataFrame, statement: Statement) -> None:
        self.declared: pa.Schema = frame.schema()
        self.table = _arranged(frame.to_arrow_table(), statement)


def _arranged(table: pa.Table, statement: Statement) -> pa.Table:
    """The rows in the order that the statement asks for.

    DataFusion 54 drops keys of ORDER BY that it believes to depend on others, which after joins they do not, and takes
    columns for NOT NULL that an outer join extends.
    """
    return table.sort_by([(name, "ascending") for name in (*statement.block.unique, VALUE)])


def _integers(table: pa.Table, statement: Statement) -> list[tuple[int | None, ...]]:
    """What tells the rows apart."""
    columns = [table.column(number) for number in range(len(statement.block.columns))]
    integers = [column.to_pylist() for column in columns if pa.types.is_integer(column.type)]
    return list(zip(*integers, strict=True)) if integers else [()] * table.num_rows


def _with_plan_tables() -> SessionContext:
    config = SessionConfig().with_target_partitions(1)
    # For DataFusion 54, coalesce(x, 1) is no longer NOT NULL when another `x IS NOT NULL` has been drawn out of it.
    config = config.set("datafusion.execution.skip_physical_aggregate_schema_check", "true")
    ctx = session(config=config, differentiates=False)
    add_plan_tables(ctx)
    return ctx
