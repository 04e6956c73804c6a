"""Runs the gradients of random values in sessions with the functions and finds what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext
from numpy.typing import NDArray

from by_row.generation import UNEQUAL, Value, Wanted
from by_row.plans import Cell, Direction, Writer
from by_row.tables import TABLES, add_row_tables
from support import differences, verdict
from support.differences import Sampled
from support.errors import is_failure, is_panic
from support.findings import Finding
from support.sessions import session
from support.verdict import placed, short

Register = Callable[[SessionContext], SessionContext]
Floats = NDArray[np.float64]
# By relation and column: row, cell and derivative.
Gradients = dict[tuple[str, str], dict[int, tuple[float | None, float | None]]]

EXACT = 1e-12
# How many cells of a column are compared with differences, or one less.
CELLS = 3
# Sums in another order, in single precision, of what may be badly conditioned.
SINGLE_ELSEWHERE = 1e-3
DIFFERENCES = 1e-8
# Kinds of nodes that make rows one.
MERGING = {"grouped by float", "grouped by both", "grouping sets", "distinct"}
# Steps along which cells are moved: nothing that rows or derivatives have in common.
DIRECTIONS = np.sin(np.arange(1.0, 181.0) ** 2 * 0.7131).reshape(60, 3)


def found_in(value: Value, kind: str, detail: str) -> Finding:
    """What is wrong with the gradient of a value."""
    return Finding(kind, detail, value.place, *statement(value))


class Judge(verdict.Judge[Value]):
    """Compares gradients with forward mode and with differences; counts what it has compared."""

    def __init__(self, register: Register) -> None:
        super().__init__()
        self._ctx = register(_with_row_tables(1))
        self._others = [register(_with_row_tables(partitions)) for partitions in (2, 4)]
        self._small = register(_with_row_tables(2, memory=40_000))

    def judge(self, value: Value, *, thorough: bool) -> Finding | None:
        """The first thing found wrong. A thorough judge takes differences, and other sessions."""
        try:
            base = self._value(self._ctx, value, Writer())
            written_out = self._value(self._ctx, value, Writer(Cell(value.wanted[0].relation, [-1], "", 0.0)))
        except BaseException as error:
            if not is_failure(error):
                raise
            self.cannot(error)
            return None
        if not _same(base, written_out, 1e-9 * (1 + abs(base or 0.0))):
            self.cannot("other rows by CTEs")
            return None
        try:
            found = self._gradients(self._ctx, value)
        except Exception as error:
            return self._refused(value, str(error))
        except BaseException as panic:
            if not is_panic(panic):
                raise
            if "IGNORE NULLS" in str(statement(value)):
                # A sweep computes columns that the value does not need, and DataFusion 54 panics at some of these:
                # SELECT lag(x) IGNORE NULLS OVER (ORDER BY t), ntile(2) OVER (ORDER BY t) FROM w.
                self.cannot("lag that ignores NULLs")
                return None
            return found_in(value, "panic", str(panic))
        if _has_nan(found) and "corr(" in str(statement(value)):
            # Of equal values, DataFusion 54 has NULL for corr over a window, but NaN by groups, as a sweep computes it.
            self.cannot("corr of equal values by groups")
            return None
        self.counts["gradients"] += 1
        finding = self._null(value, base, found) or self._forward(value, base, found)
        if finding is None and value.own and base is not None:
            finding = self._total(value, base, found)
        if finding is None and thorough:
            finding = self._jvp(value, found) or self._elsewhere(value, found) or self._differences(value, base, found)
        if finding and finding.kind == "NULL" and "corr(" in str(statement(value)):
            # Of values that are equal up to rounding, corr is some number in one execution and NULL in another.
            self.cannot("corr of values equal up to rounding")
            return None
        if finding and (self._varies(self._ctx, value) or (UNEQUAL in value.kinds() and self._gradient_varies(value))):
            # Such as corr of two rows, which is 1 up to rounding, in another correlation.
            self.cannot("other rows in another execution")
            return None
        if finding is None and any(g for rows in found.values() for _, g in rows.values()):
            self.counts["gradients that are not 0"] += 1
            self.right.update(value.kinds())
        return finding

    def kept(self, value: Value, counts: Sequence[int]) -> Finding | None:
        """What is wrong with a gradient for which so many iterations are kept, beside that with all of them kept."""
        for ctx in (self._ctx, self._others[0]):
            try:
                found = self._gradients(ctx, value)
                for count in counts:
                    ctx.sql(f"SET xql.checkpoints = {count}").collect()
                    difference = apart(value, found, self._gradients(ctx, value))
                    if difference:
                        return found_in(value, "kept", f"{count} iterations kept: {difference}\n{_shown(found)}")
            except Exception as error:
                return self._refused(value, str(error))
            finally:
                ctx.sql("SET xql.checkpoints = 0").collect()
        self.counts["equal with some iterations kept"] += 1
        return None

    def is_of_use(self, value: Value) -> bool:
        """Whether it may have a gradient that is not NULL, and not 0 in every row."""
        try:
            return value.depends() and self._value(self._ctx, value, Writer()) is not None
        except BaseException as error:
            if not is_failure(error):
                raise
            return True

    # What is run

    def _value(self, ctx: SessionContext, value: Value, writer: Writer, column: str = "f") -> float | None:
        query = value.write(writer)
        _make_views(ctx, writer)
        rows = _column(ctx, writer.whole(f"SELECT {column} AS f FROM ({query}) AS value"))
        return rows[0] if rows else None

    def _gradients(
        self, ctx: SessionContext, value: Value, expression: str = "m", call: str = "grad({0}, {1})"
    ) -> Gradients:
        views, query = statement(value, expression, call)
        writer = Writer()
        writer.views = views
        _make_views(ctx, writer)
        with placed(ctx, query, value.place, query) as frame:
            table = frame.to_arrow_table()
        found: Gradients = {}
        for number, wanted in enumerate(value.wanted):
            ids = table[f"row{number}"].to_pylist()
            for column in wanted.columns:
                cells, gradient = (table[f"{what}{number}_{column}"].to_pylist() for what in ("x", "d"))
                rows: dict[int, tuple[float | None, float | None]] = {}
                for row, cell, derivative in zip(ids, cells, gradient, strict=True):
                    known = rows.setdefault(row, (cell, derivative))
                    if not _same(known[1], derivative):
                        raise AssertionError(f"row {row} has the derivatives {known[1]} and {derivative}")
                found[wanted.relation.name, column] = rows
        return found

    # What is compared

    def _null(self, value: Value, base: float | None, found: Gradients) -> Finding | None:
        for (relation, column), rows in found.items():
            for row, (cell, derivative) in rows.items():
                wanted = next(wanted for wanted in value.wanted if wanted.relation.name == relation)
                if cell is None and derivative == 0.0 and not value.depends_on(wanted.relation, column):
                    # An expression in which the variable does not occur at all has the derivative 0 everywhere.
                    continue
                if (derivative is None) != (cell is None or base is None):
                    detail = (
                        f"{relation}.{column} of row {row} is {cell}, the value {base}, the derivative {derivative}"
                    )
                    return found_in(value, "NULL", detail)
        return None

    def _along(self, found: Gradients) -> tuple[float, float]:
        """The sum of gradient times direction, and its scale."""
        total, scale = 0.0, 0.0
        numbers: dict[str, int] = {}
        for (relation, _), rows in found.items():
            number = numbers[relation] = numbers.get(relation, -1) + 1
            for row, (_, derivative) in rows.items():
                if derivative is not None:
                    total += derivative * DIRECTIONS[row, number]
                    scale += abs(derivative * DIRECTIONS[row, number])
        return total, scale

    def _forward(self, value: Value, base: float | None, found: Gradients) -> Finding | None:
        """The sum over the rows of gradient times direction is forward mode along that direction."""
        if base is None:
            self.counts["not along: the value is NULL"] += 1
            return None
        total, scale = self._along(found)
        try:
            forward = self._directional(value, base, 1.0)
        except Exception as error:
            self.counts[f"not along: {short(error)}"] += 1
            return None
        if forward is None:
            return None
        scale = max(scale, abs(forward), 1e-3)
        exact = 1e-5 if value.single() else EXACT
        if _close(total, forward, exact * scale):
            self.counts["equal along the direction"] += 1
            return None
        back = self._directional(value, base, -1.0)
        if back is None or not math.isfinite(forward) or not _close(forward, -back, exact * scale):
            # Of equal values, forward mode takes the greater derivative, or it has none.
            self.counts["not along: forward mode has a kink there"] += 1
            return None
        rounding = self._rounding(value, base, total, forward)
        if _close(total, forward, exact * scale + 16 * rounding):
            self.counts["equal along the direction up to rounding"] += 1
            return None
        off = f"off by {abs(total - forward):.1g} of {scale:.3g}; rounding {rounding:.1g}"
        if self._ties(found) and self._agrees_without_ties(value):
            # Shared by equal cells, as in max(x, min(x, y)), which is x, where x = y.
            self.counts["not along: a kink of equal cells"] += 1
            return None
        detail = f"gradient times direction is {total!r}, forward mode {forward!r}, {off}"
        return found_in(value, "along", f"{detail}\n{_shown(found)}")

    def _ties(self, found: Gradients) -> bool:
        """Whether rows have equal cells."""
        cells = [[cell for cell, _ in rows.values() if cell is not None] for rows in found.values()]
        return any(len(set(column)) < len(column) for column in cells)

    def _agrees_without_ties(self, value: Value) -> bool:
        """Whether gradient and forward mode agree when every row is moved by a part of its own."""
        with self._moved(1e-3, "sin(3.7 * id)"):
            base = self._value(self._ctx, value, Writer())
            if base is None:
                return False
            total, scale = self._along(self._gradients(self._ctx, value))
            forward = self._directional(value, base, 1.0)
        exact = 1e-5 if value.single() else 1e-10
        return forward is not None and _close(total, forward, exact * max(scale, abs(forward), 1e-3))

    def _directional(self, value: Value, base: float, factor: float) -> float | None:
        """Forward mode, reference by reference; none where the value is another one when written in that way."""
        total = 0.0
        for read in value.reads():
            wanted = next(wanted for wanted in value.wanted if wanted.relation is read.relation)
            writer = Writer(Direction(read, wanted.columns, factor))
            query = value.write(writer)
            _make_views(self._ctx, writer)
            text = writer.whole(f"SELECT f, grad(f, e_) AS d FROM ({query}) AS value")
            table = self._ctx.sql(text).to_arrow_table()
            values = table["f"].to_pylist()
            if len(values) != 1 or values[0] is None or not _close(values[0], base, 1e-10 * (1 + abs(base))):
                self.counts["not along: another value when written with e"] += 1
                return None
            total += table["d"].to_pylist()[0]
        return total

    def _rounding(self, value: Value, base: float, total: float, forward: float) -> float:
        """How far both change when all numbers move by some units in the last place."""
        largest = 0.0
        for _ in self._moves(value):
            moved, _ = self._along(self._gradients(self._ctx, value))
            ahead = self._directional(value, base, 1.0)
            changes = [abs(moved - total), abs((forward if ahead is None else ahead) - forward)]
            largest = max([largest, *(change for change in changes if not math.isnan(change))])
        return largest

    def _moves(self, value: Value) -> Iterator[None]:
        """Moves the numbers of all tables by some units in the last place, in several ways, one after the other."""
        unit = 2.0**-23 if value.single() else 2.0**-52
        # One or two units are lost where a larger number is added.
        for units in (1.0, -2.0, 3.0, 4096.0):
            with self._moved(units * unit):
                yield

    @contextmanager
    def _moved(self, step: float, by_row: str = "1") -> Iterator[None]:
        """With all tables moved, as they are again afterwards."""
        try:
            for name in TABLES:
                self._move(name, step, by_row)
            yield
        finally:
            for name in TABLES:
                self._ctx.deregister_table(name)
            add_row_tables(self._ctx)

    def _move(self, name: str, step: float, by_row: str) -> None:
        """Moves all floats of a table by a part of themselves, each column by another one, and times an expression."""
        items = []
        for number, field in enumerate(self._ctx.table(name).schema()):
            text = f'"{field.name}"'
            if pa.types.is_floating(field.type):
                type_ = "REAL" if field.type == pa.float32() else "DOUBLE"
                text = f"CAST({text} * (1 + {step * (number + 1)!r} * {by_row}) AS {type_}) AS {text}"
            items.append(text)
        table = self._ctx.sql(f"SELECT {', '.join(items)} FROM {name}").to_arrow_table()
        self._ctx.deregister_table(name)
        self._ctx.register_record_batches(name, [table.to_batches()])

    def _total(self, value: Value, base: float, found: Gradients) -> Finding | None:
        """A call whose expression reads the row's own cell as well has both derivatives."""
        try:
            own = self._gradients(self._ctx, value, value.own)
        except Exception as error:
            return self._refused(value, str(error))
        exact = SINGLE_ELSEWHERE if value.single() else 1e-11
        for key, rows in own.items():
            for row, (cell, total) in rows.items():
                gradient = found[key][row][1]
                if cell is None or gradient is None or total is None or not math.isfinite(gradient):
                    continue
                columns = f"SELECT CAST('{base!r}' AS DOUBLE) AS m, CAST('{cell!r}' AS DOUBLE) AS x"
                expected = _column(self._ctx, f"SELECT jvp({value.own}, m, {gradient!r}, x, 1.0) FROM ({columns}) AS q")
                wanted = expected[0]
                if wanted is None or not _close(total, wanted, exact * (1 + abs(wanted) + abs(gradient))):
                    detail = f"{value.own} has {total!r} instead of {wanted!r} in row {row} of {key}"
                    return found_in(value, "own cell", detail)
        self.counts["equal beside the own cell"] += 1
        return None

    def _jvp(self, value: Value, found: Gradients) -> Finding | None:
        """Along a direction that is the same in all rows, the derivative is a multiple of the sum of the gradient."""
        try:
            along = self._gradients(self._ctx, value, call="jvp({0}, {1}, 0.7)")
        except Exception as error:
            return self._refused(value, str(error))
        for key, rows in found.items():
            known = [derivative for cell, derivative in rows.values() if cell is not None and derivative is not None]
            total, scale = 0.7 * sum(known), sum(map(abs, known))
            exact = SINGLE_ELSEWHERE if value.single() else 1e-11
            for row, (cell, directional) in along[key].items():
                if cell is None or directional is None:
                    continue
                if not _close(directional, total, exact * max(1.0, scale)):
                    detail = f"jvp by {key} is {directional!r} instead of {total!r} in row {row}"
                    return found_in(value, "jvp", f"{detail}\n{_shown(found)}")
        self.counts["equal to jvp"] += 1
        return None

    def _elsewhere(self, value: Value, found: Gradients) -> Finding | None:
        """Other partitions give the same, and little memory the same or its error."""
        if UNEQUAL in value.kinds():
            self.counts[f"not in another session: {UNEQUAL}"] += 1
            return None
        for ctx in (*self._others, self._small):
            try:
                again = self._gradients(ctx, value)
            except Exception as error:
                if ctx is self._small and "Resources exhausted" in str(error):
                    self.counts["not enough memory"] += 1
                    continue
                if ctx is self._small and "panicked with message" in str(error):
                    # A nested loop join executes its input again when that runs out of memory.
                    self.counts["not enough memory: panic of DataFusion"] += 1
                    continue
                return found_in(value, "another session", str(error)[:700])
            except BaseException as panic:
                if not is_panic(panic):
                    raise
                if ctx is self._small:
                    # A nested loop join executes its input again when that runs out of memory.
                    self.counts["not enough memory: panic of DataFusion"] += 1
                    continue
                return found_in(value, "panic in another session", str(panic))
            detail = apart(value, found, again)
            if detail:
                if self._varies(ctx, value):
                    self.cannot("other rows in another session")
                    return None
                return found_in(value, "another session", detail)
            self.counts["equal in another session"] += 1
        return None

    def _varies(self, ctx: SessionContext, value: Value) -> bool:
        """Whether the value itself is another one in another execution, or when all numbers are rounded."""
        found = [self._value(session, value, Writer()) for session in (self._ctx, *[ctx] * 12)]
        found += [self._value(self._ctx, value, Writer()) for _ in self._moves(value)]
        size = 1 + abs(found[0] or 0.0)
        return not all(_same(found[0], other, (1e-3 if value.single() else 1e-6) * size) for other in found)

    def _gradient_varies(self, value: Value) -> bool:
        """Whether the gradient is another one in another execution, as where DataFusion 54 repeats rows of a join."""
        first, *others = (self._gradients(self._ctx, value) for _ in range(12))
        return any(apart(value, first, other) for other in others)

    def _differences(self, value: Value, base: float | None, found: Gradients) -> Finding | None:
        if base is None or value.single():
            return None
        for wanted in value.wanted:
            for column in wanted.columns:
                cells = found[wanted.relation.name, column].items()
                known = [(row, derivative) for row, (cell, derivative) in cells if cell is not None]
                for row, derivative in known[:: max(1, len(known) // CELLS)]:
                    if derivative is None:
                        continue
                    finding = self._cell(value, base, wanted, column, {row: derivative})
                    if finding and self._merges(value):
                        # What is computed of rows that are one in the plan has a kink where they part.
                        (at,) = (cell for other, (cell, _) in cells if other == row)
                        equal = {other: d for other, (cell, d) in cells if cell == at and d is not None}
                        finding = self._cell(value, base, wanted, column, equal) if len(equal) > 1 else finding
                    if finding:
                        return finding
        return None

    def _merges(self, value: Value) -> bool:
        """Whether rows with equal cells may be one in it."""
        return not MERGING.isdisjoint(value.kinds())

    def _cell(
        self, value: Value, base: float, wanted: Wanted, column: str, derivatives: Mapping[int, float]
    ) -> Finding | None:
        """What is wrong with the derivative by a cell, or by several that move together."""
        derivative, rows = sum(derivatives.values()), list(derivatives)

        def sampled(number: float | None) -> Sampled:
            values = np.array([math.nan if number is None else number])
            return Sampled(values, np.array([number is None]), [()])

        def evaluate(steps: Sequence[float]) -> Sampled:
            return sampled(self._value(self._ctx, value, Writer(Cell(wanted.relation, rows, column, steps[0]))))

        estimate = differences.first(evaluate, sampled(base), 0, 1)
        expected, error = float(estimate.value[0]), float(estimate.error[0])
        if not error <= 1e-6 * max(1.0, abs(expected)):
            self.counts["cells not compared"] += 1
            return None
        self.counts["cells compared"] += 1
        if not abs(derivative - expected) <= DIFFERENCES * max(1.0, abs(expected)) + 10 * error:
            detail = (
                f"row {rows} of {wanted.relation.name}.{column}: {derivative!r} instead of {expected!r} +- {error:.1g}"
            )
            return found_in(value, "wrong", detail)
        return None

    def _refused(self, value: Value, message: str) -> Finding | None:
        """Whether a refusal states a reason that we know."""
        if "ProjectionPushdown" in message and "col.name() == matching_name" in message:
            # So do some values without a derivative: docs/limits.md, semi-joins without an equality.
            self.cannot("ProjectionPushdown")
            return None
        for reason in REASONS:
            if reason in message:
                self.counts[f"refused: {reason}"] += 1
                return None
        if not value.depends() and "does not vary" in message:
            self.counts["refused: does not vary"] += 1
            return None
        return found_in(value, "refused", message[:700])


def apart(value: Value, found: Gradients, again: Gradients) -> str:
    """Where the gradients of two sessions differ by more than sums in another order do; nothing if they do not."""
    for key, rows in found.items():
        if rows.keys() != again[key].keys():
            return f"{key} has rows {again[key].keys()}"
        exact = SINGLE_ELSEWHERE if value.single() else 1e-11
        size = max([1.0, *(abs(g) for _, g in rows.values() if g is not None and math.isfinite(g))])
        for row, (_, derivative) in rows.items():
            other = again[key][row][1]
            if not _same(derivative, other, exact * size):
                return f"row {row} of {key} has {other!r} instead of {derivative!r}"
    return ""


REASONS = [
    "no derivative by row is known for the function",
    "no derivative is known for an aggregate of DISTINCT values",
    "no derivative is known for the function",
]


def statement(value: Value, expression: str = "m", call: str = "grad({0}, {1})") -> tuple[dict[str, str], str]:
    """The views to make, and the query with the gradients.

    `expression` is of the value, `m`, and of the row's own cell, `x`.
    """
    around = Writer()
    own = Writer() if value.inside else around
    text = value.write(own)
    if value.inside:
        relations = {relation.name for relation in value.use.node.relations() if relation.form == "cte"}
        for name in [name for name in own.ctes if name in relations]:
            around.ctes[name] = own.ctes.pop(name)
        around.views |= own.views
        text = own.whole(text)
    items, source = [], []
    for number, wanted in enumerate(value.wanted):
        alias = f"by{number}"
        source.append(f"{around.relation(wanted.relation)} AS {alias}")
        items.append(f"{alias}.{wanted.relation.columns[0].name} AS row{number}")
        for column in wanted.columns:
            x = f"{alias}.{column}"
            f = _filled(expression, f"({text})", x)
            items += [f"{x} AS x{number}_{column}", f"{call.format(f, x)} AS d{number}_{column}"]
    return around.views, around.whole(f"SELECT {', '.join(items)} FROM {' CROSS JOIN '.join(source)}")


def _filled(expression: str, m: str, x: str) -> str:
    return re.sub(r"\b[mx]\b", lambda name: {"m": m, "x": x}[name[0]], expression)


def _make_views(ctx: SessionContext, writer: Writer) -> None:
    for name, text in writer.views.items():
        ctx.sql(f"CREATE OR REPLACE VIEW {name} AS {text}").collect()


def _column(ctx: SessionContext, query: str) -> list[float | None]:
    column: list[float | None] = ctx.sql(query).to_arrow_table().column(0).to_pylist()
    return column


def _close(a: float, b: float, tolerance: float) -> bool:
    return abs(a - b) <= tolerance or (math.isnan(a) and math.isnan(b)) or a == b


def _has_nan(found: Gradients) -> bool:
    return any(d is not None and math.isnan(d) for rows in found.values() for _, d in rows.values())


def _same(a: float | None, b: float | None, tolerance: float = 0.0) -> bool:
    return a is b if a is None or b is None else _close(a, b, tolerance)


def _shown(found: Gradients) -> str:
    return "\n".join(f"{key}: {rows}" for key, rows in found.items())


def _with_row_tables(partitions: int, memory: int = 0) -> SessionContext:
    config = SessionConfig().with_target_partitions(partitions)
    # For DataFusion 54, coalesce(x, 1) is no longer NOT NULL when another `x IS NOT NULL` has been drawn out of it.
    config = config.set("datafusion.execution.skip_physical_aggregate_schema_check", "true")
    if partitions > 1:
        config = config.with_batch_size(2)
    runtime = RuntimeEnvBuilder().with_greedy_memory_pool(memory) if memory else RuntimeEnvBuilder()
    directions = {"id": range(60), **{f"v{number}": list(DIRECTIONS[:, number]) for number in range(3)}}
    tables = {"directions": directions, "eps": {"e_": [0.0]}}
    ctx = session(tables, config=config, runtime=runtime, differentiates=False)
    add_row_tables(ctx)
    return ctx
