"""Runs models and finds what is wrong with their gradients.

The numbers to compare with are those of a session without the functions, in which each relation is a table of its own
and each part is computed and stored before the next: differences of the loss along a direction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext

from by_row.forms import remove_files
from by_row.model_statements import RATE, STEPS, Statement
from by_row.models import Model, Variable
from support import differences, verdict
from support.differences import Sampled
from support.errors import is_failure, is_panic
from support.findings import Finding
from support.verdict import INSERT, PLAIN, placed

Register = Callable[[SessionContext], SessionContext]
# By role and column, how far the cells are moved along their directions.
Moves = Mapping[tuple[str, str], float]
Row = dict[str, Any]

DIFFERENCES = 1e-8
SAME = 1e-10
SINGLE = 2e-4
# Why a plan without shared relations may be refused.
WRITTEN_OUT = (
    "share_relations is false",
    "by the value of a sum, whose last digit may be another",
    "without shared relations",
)


def direction(keys: Sequence[int]) -> float:
    """How far a cell is moved: nothing that rows or derivatives have in common."""
    return math.sin(1.0 + sum((number + 0.7131) * 1.9 * (key + 2) for number, key in enumerate(keys)))


def fetched(frame: DataFrame) -> pa.Table:
    """The result of a query. In DataFusion 54, branches of a UNION declare NOT NULL what others do not."""
    schema = pa.schema([field.with_nullable(True) for field in frame.schema()])
    tables = [pa.Table.from_batches([batch]).cast(schema) for batch in frame.collect()]
    return pa.concat_tables(tables) if tables else schema.empty_table()


class Oracle:
    """The loss of a model by itself."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._ctx = SessionContext(SessionConfig().with_target_partitions(1))
        roles = [*(data.role for data in model.data), *(part.role for part in model.parts)]
        self._names = {role: f"plain_{role}" for role in roles}
        self._tables: dict[str, pa.Table] = {}
        for data in model.data:
            types = [pa.int64()] * len(data.keys) + [pa.float64()] * len(data.floats)
            arrays = [pa.array([row[n] for row in data.rows], type_) for n, type_ in enumerate(types)]
            self._tables[data.role] = pa.table(arrays, names=data.columns)

    def replace(self, role: str, table: pa.Table) -> None:
        """Gives a relation other rows."""
        self._tables[role] = table

    def value(self, moves: Moves, variables: Sequence[Variable]) -> float | None:
        """The loss with cells moved."""
        for role, table in self._tables.items():
            self._store(role, self._moved(role, table, moves, variables))
        for part in self._model.parts:
            table = fetched(self._ctx.sql(part.text.format_map(self._names)))
            self._store(part.role, self._moved(part.role, table, moves, variables))
        column = self._ctx.sql(self._model.loss.format_map(self._names)).to_arrow_table().column(0)
        value: float | None = column[0].as_py()
        return value

    def _store(self, role: str, table: pa.Table) -> None:
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        self._ctx.deregister_table(self._names[role])
        self._ctx.register_record_batches(self._names[role], [batches])

    @staticmethod
    def _moved(role: str, table: pa.Table, moves: Moves, variables: Sequence[Variable]) -> pa.Table:
        for variable in variables:
            step = moves.get((role, variable.column), 0.0) if variable.role == role else 0.0
            if step:
                keys = zip(*(table[key].to_pylist() for key in variable.keys), strict=True)
                values = [
                    None if value is None else value + step * direction(key)
                    for value, key in zip(table[variable.column].to_pylist(), keys, strict=True)
                ]
                index = table.schema.get_field_index(variable.column)
                table = table.set_column(index, variable.column, pa.array(values, pa.float64()))
        return table

    def slope(self, variable: Variable) -> tuple[float, float] | None:
        """The derivative along the direction of a variable, and how far off it may be."""

        def sampled(number: float | None) -> Sampled:
            return Sampled(np.array([math.nan if number is None else number]), np.array([number is None]), [()])

        def evaluate(steps: Sequence[float]) -> Sampled:
            return sampled(self.value({(variable.role, variable.column): steps[0]}, [variable]))

        estimate = differences.first(evaluate, sampled(self.value({}, [])), 0, 1)
        value, error = float(estimate.value[0]), float(estimate.error[0])
        return (value, error) if error <= 1e-6 * max(1.0, abs(value)) else None


@dataclass
class Run:
    """A session in which a statement has been set up."""

    ctx: SessionContext
    statement: Statement

    def rows(self, query: str) -> list[Row]:
        return self.placed(query, PLAIN)

    def placed(self, query: str, place: str) -> list[Row]:
        """The rows of a query that stands somewhere."""
        if place == "cte":
            query, place = f"WITH stood AS ({query}) SELECT * FROM stood", PLAIN
        if place == "derived":
            query, place = f"SELECT * FROM ({query}) AS stood", PLAIN
        with placed(self.ctx, query, place, query) as frame:
            found: list[Row] = fetched(frame).to_pylist()
            return found


class Judge(verdict.Judge[Statement]):
    """Judges statements; counts what it has compared."""

    def __init__(self, register: Register) -> None:
        super().__init__()
        self._register = register

    def judge(self, statement: Statement) -> Finding | None:
        """The first thing found wrong."""
        try:
            return self._judged(statement)
        finally:
            remove_files()

    def _judged(self, statement: Statement) -> Finding | None:
        oracle = Oracle(statement.model)
        try:
            base = oracle.value({}, [])
            run = Run(self._session(statement), statement)
            plain = [] if statement.recursive else run.rows(statement.plain)
            sizes = {role: run.rows(query)[0]["n"] for role, query in statement.sizes.items()}
        except BaseException as error:
            if not is_failure(error):
                raise
            self.cannot(error)
            return None
        exact = SINGLE if "single precision" in statement.details else SAME
        if any(not same(row["value"], base, exact) for row in plain):
            self.cannot("another value when parts are stored")
            return _found(statement, "another value without a call", f"{plain[0]['value']} instead of {base}")
        try:
            rows = run.placed(statement.called, statement.place)
        except BaseException as error:
            if not is_failure(error):
                raise
            if self._fails_without_a_call(statement):
                self.cannot(error)
                return None
            return self._refused(statement, str(error), "panic" if is_panic(error) else "refused")
        self.counts["gradients"] += 1
        # A CROSS JOIN with the rows of other variables repeats those of one.
        repeated = {role: max(1, math.prod(sizes.values()) // max(1, size)) for role, size in sizes.items()}
        if statement.recursive:
            finding = self._trained(statement, oracle, rows)
        else:
            finding = (
                self._leak(statement, plain, rows, exact)
                or self._null(statement, rows)
                or self._slopes(statement, oracle, rows, repeated)
                or self._along(statement, rows, repeated)
                or self._above(statement, run, rows)
            )
        if finding is None and any(row.get("d0") for row in rows):
            self.right.update({detail for detail in statement.details if detail})
        return finding

    def _session(self, statement: Statement) -> SessionContext:
        ctx = self._register(SessionContext(SessionConfig()))
        ctx.sql("SET datafusion.execution.skip_physical_aggregate_schema_check = true").collect()
        for name, value in statement.options.items():
            ctx.sql(f"SET {name} = {value}").collect()
        for action in statement.setup:
            action.do(ctx)
        return ctx

    def _fails_without_a_call(self, statement: Statement) -> bool:
        try:
            if statement.plain:
                Run(self._session(statement), statement).placed(statement.plain, statement.place)
        except BaseException as error:
            if not is_failure(error):
                raise
            return True
        return False

    def _refused(self, statement: Statement, message: str, kind: str) -> Finding | None:
        if "ProjectionPushdown" in message and "col.name() == matching_name" in message:
            # docs/limits.md: semi-joins without an equality.
            self.cannot("ProjectionPushdown")
            return None
        if statement.place == INSERT and "Inconsistent data length across values list" in message:
            # VALUES anywhere in what is inserted are to have as many columns as the table.
            self.cannot("VALUES in what is inserted")
            return None
        if "does not vary with" in message and self._are_constant(statement):
            self.counts["refused: does not vary"] += 1
            return None
        if "xql.share_relations" in statement.options and any(says in message for says in WRITTEN_OUT):
            self.counts["refused: not computed twice alike"] += 1
            return None
        return _found(statement, kind, message[:900])

    def _are_constant(self, statement: Statement) -> bool:
        """Whether the loss does not depend on one of the variables at all."""
        oracle = Oracle(statement.model)
        slopes = [oracle.slope(variable) for variable in statement.variables]
        return any(slope is not None and slope[0] == 0.0 for slope in slopes)

    def _leak(self, statement: Statement, plain: Sequence[Row], rows: Sequence[Row], exact: float) -> Finding | None:
        """There is a row for each row of FROM, and what stands beside a call is as without it."""
        names = list(plain[0]) if plain else []
        told = [name for name in names if name not in ("value", "beside")]

        def sorted_(found: Sequence[Row]) -> list[Row]:
            return sorted(found, key=lambda row: [(row[name] is not None, row[name] or 0.0) for name in told])

        if len(plain) != len(rows):
            return _found(statement, "rows", f"{len(rows)} rows instead of {len(plain)}\n{_shown(rows)}")
        for row, expected in zip(sorted_(rows), sorted_(plain), strict=True):
            for name in names:
                close = exact if name in ("value", "beside") else 1e-13
                if not same(row[name], expected[name], close):
                    detail = f"{name} is {row[name]!r} instead of {expected[name]!r}\n{_shown(rows)}"
                    return _found(statement, name if name in ("value", "beside") else "rows", detail)
        return None

    def _null(self, statement: Statement, rows: Sequence[Row]) -> Finding | None:
        for number, variable in enumerate(statement.variables):
            for row in rows:
                x, d = row[f"x{number}"], row[f"d{number}"]
                if (d is None) != (x is None or row["value"] is None) and not (x is None and d == 0.0):
                    return _found(statement, "NULL", f"by {variable.role}: {row}")
        return None

    def _slopes(
        self, statement: Statement, oracle: Oracle, rows: Sequence[Row], repeated: Mapping[str, int]
    ) -> Finding | None:
        for number, variable in enumerate(statement.variables):
            count = repeated[variable.role]
            keys = [f"key{number}_{n}" for n in range(len(variable.keys))]
            terms = [
                row[f"d{number}"] * direction([row[key] for key in keys]) / count
                for row in rows
                if row[f"d{number}"] is not None
            ]
            finding = self._slope(statement, oracle, variable, terms, rows)
            if finding:
                return finding
        return None

    def _slope(
        self, statement: Statement, oracle: Oracle, variable: Variable, terms: Sequence[float], rows: Sequence[Row]
    ) -> Finding | None:
        slope = oracle.slope(variable)
        if slope is None:
            self.counts["slopes not compared"] += 1
            return None
        expected, error = slope
        exact = SINGLE if "single precision" in statement.details else DIFFERENCES
        self.counts["slopes compared"] += 1
        self.counts["slopes that are not 0"] += abs(expected) > 1e-6
        scale = max(1.0, abs(expected), sum(map(abs, terms)))
        if not abs(sum(terms) - expected) <= exact * scale + 10 * error:
            detail = f"by {variable.role}.{variable.column}, gradient times direction is {sum(terms)!r}"
            return _found(statement, "wrong", f"{detail} instead of {expected!r} +- {error:.1g}\n{_shown(rows)}")
        return None

    def _along(self, statement: Statement, rows: Sequence[Row], repeated: Mapping[str, int]) -> Finding | None:
        """Forward mode of the same loss in the same statement: the sum over the cells."""
        if not statement.directional:
            return None
        known = [row["d0"] for row in rows if row["d0"] is not None]
        total = 0.5 * sum(known) / repeated[statement.variables[0].role]
        exact = SINGLE if "single precision" in statement.details else 1e-10
        for row in rows:
            if row["along"] is not None and abs(row["along"] - total) > exact * max(1.0, sum(map(abs, known))):
                return _found(statement, "jvp", f"{row['along']!r} instead of {total!r}\n{_shown(rows)}")
        self.counts["equal to jvp"] += 1
        return None

    def _above(self, statement: Statement, run: Run, rows: Sequence[Row]) -> Finding | None:
        """What a query computes from the gradients is what it computes from their rows."""
        inner = f"({statement.called}) AS below"
        d = [row["d0"] for row in rows if row["d0"] is not None]
        query, expected = {
            "": ("", 0.0),
            "squares": (f"SELECT SUM(d0 * d0) + COUNT(*) AS s FROM {inner}", sum(g * g for g in d) + len(rows)),
            "order": (f"SELECT SUM(d0) AS s FROM (SELECT d0 FROM {inner} ORDER BY d0 DESC NULLS LAST LIMIT 2) AS q",
                      sum(sorted(d)[-2:])),
            "window": (f"SELECT SUM(s) AS s FROM (SELECT SUM(d0) OVER () AS s FROM {inner}) AS q", sum(d) * len(rows)),
            "filter": (f"SELECT SUM(d0) AS s FROM {inner} WHERE d0 > 0.01", sum(g for g in d if g > 0.01)),
        }[statement.above]  # fmt: skip
        if not query or not d:
            return None
        try:
            (row,) = run.rows(query)
        except BaseException as error:
            if not is_failure(error):
                raise
            return self._refused(statement, f"{query}\n{error}", "panic above" if is_panic(error) else "refused above")
        scale = max(1.0, sum(g * g for g in d), len(rows) * sum(map(abs, d)))
        if statement.above == "filter" and (any(abs(g - 0.01) < 1e-6 for g in d) or not any(g > 0.01 for g in d)):
            return None
        if not same(row["s"], expected, 1e-4 if "single precision" in statement.details else 1e-9 * scale):
            return _found(statement, "above", f"{query}\n{row['s']!r} instead of {expected!r}\n{_shown(rows)}")
        self.counts["equal above"] += 1
        return None

    def _trained(self, statement: Statement, oracle: Oracle, rows: Sequence[Row]) -> Finding | None:
        """Each step moves by the gradient where it starts."""
        (variable,) = statement.variables
        (data,) = (data for data in statement.model.data if data.role == variable.role)
        steps: list[dict[tuple[int, ...], Row]] = [{} for _ in range(STEPS + 1)]
        for row in rows:
            key = tuple(row[name] for name in data.keys)
            if key in steps[row["step_"]]:
                return _found(statement, "rows", f"several rows of {key} in step {row['step_']}\n{_shown(rows)}")
            steps[row["step_"]][key] = row
        for number, step in enumerate(steps):
            if len(step) != len(data.rows):
                return _found(statement, "rows", f"{len(step)} rows in step {number}\n{_shown(rows)}")
        for before, after in itertools.pairwise(steps):
            columns = {name: [row[name] for row in before.values()] for name in data.columns}
            types = [pa.int64()] * len(data.keys) + [pa.float64()] * len(data.floats)
            arrays = [pa.array(columns[name], type_) for name, type_ in zip(data.columns, types, strict=True)]
            oracle.replace(data.role, pa.table(arrays, names=data.columns))
            terms = []
            for key, row in before.items():
                x, moved = row[variable.column], after[key][variable.column]
                if x is not None and moved is not None:
                    terms.append((x - moved) / RATE * direction(key))
            finding = self._slope(statement, oracle, variable, terms, rows)
            if finding:
                return finding
        self.right.update({detail for detail in statement.details if detail})
        return None


def same(a: float | None, b: float | None, exact: float) -> bool:
    """Equal up to the order of sums."""
    if a is None or b is None:
        return a is b
    return a == b or abs(a - b) <= exact * max(1.0, abs(a), abs(b)) or (math.isnan(a) and math.isnan(b))


def _found(statement: Statement, kind: str, detail: str) -> Finding:
    return Finding(
        kind,
        f"{detail}\n{', '.join(d for d in statement.details if d)}",
        statement.place,
        {},
        statement.script(statement.called),
    )


def _shown(rows: Sequence[Row]) -> str:
    return "\n".join(str(row) for row in rows[:12])
