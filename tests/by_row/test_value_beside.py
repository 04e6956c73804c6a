"""What stands beside a gradient by row is what it is without one.

Random plans of forward mode are judged so wherever they are judged at all, with all of their columns
(`relations.verdict`), and so are models (`by_row.model_verdict`). Here are the random values of `by_row.generation`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from datafusion import SessionConfig, SessionContext

from by_row.generation import UNEQUAL, Value, random_value
from by_row.tables import add_row_tables
from by_row.verdict import statement
from support.choices import Choices
from support.compare import same_value
from support.errors import is_failure
from support.findings import Finding
from support.seed import SEED

Register = Callable[[SessionContext], SessionContext]
# One value for so many that are judged by their gradients.
EACH = 3
EXACT = 1e-9


class Beside:
    """Compares the value of a statement with calls with that of the statement without."""

    def __init__(self, register: Register) -> None:
        config = SessionConfig().with_target_partitions(1)
        config = config.set("datafusion.execution.skip_physical_aggregate_schema_check", "true")
        self._ctx = register(SessionContext(config))
        add_row_tables(self._ctx)
        self.counts: Counter[str] = Counter()

    def judge(self, value: Value) -> Finding | None:
        # The value stands beside each call, in the same list.
        beside = '{0} AS "value beside {1}", '
        views, calls = statement(value, call=f"{beside}grad({{0}}, {{1}})")
        _, plain = statement(value, call=f"{beside}{{1}}")
        try:
            for name, view in views.items():
                self._ctx.sql(f"CREATE OR REPLACE VIEW {name} AS {view}").collect()
            expected = self._rows(plain)
        except BaseException as error:
            if not is_failure(error):
                raise
            self.counts["DataFusion cannot"] += 1
            return None
        try:
            found = self._rows(calls)
        except BaseException as error:
            if not is_failure(error):
                raise
            self.counts["refused"] += 1
            return None
        self.counts["compared"] += 1
        kept = [column for column in expected[0] if not column.startswith("d")] if expected else []
        told = [column for column in kept if column.startswith("row")]

        def in_order(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
            return sorted(tuple(row[name] for name in [*told, *kept]) for row in rows)

        if len(found) != len(expected):
            return self._finding(value, views, calls, f"{len(found)} rows instead of {len(expected)}")
        for left, right in zip(in_order(found), in_order(expected), strict=True):
            exact = 1e-3 if value.single() else EXACT
            if not all(same_value(a, b, rel=exact, abs_=exact) for a, b in zip(left, right, strict=True)):
                return self._finding(value, views, calls, f"{left} instead of {right} of {told} and {kept}")
        return None

    def _rows(self, query: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self._ctx.sql(query).to_arrow_table().to_pylist()
        return rows

    @staticmethod
    def _finding(value: Value, views: dict[str, str], query: str, detail: str) -> Finding:
        return Finding("beside", detail, value.place, views, query)


def test_values_beside_gradients(register: Register, chunk: range) -> None:
    beside = Beside(register)
    numbers = [number for number in chunk if number % EACH == 1 and number % (6 * EACH) < 3 * EACH]
    found = []
    for number in numbers:
        value = random_value(Choices(random.Random(f"{SEED} {number} beside")))
        finding = beside.judge(value)
        if finding and UNEQUAL not in value.kinds():
            found.append(f"value {number}: {finding}")
    print(beside.counts)
    if found:
        pytest.fail(
            f"{len(found)} of {len(numbers)} (XQL_FFI_TEST_SEED={SEED}):\n\n" + "\n\n".join(found[:3]), pytrace=False
        )
    assert beside.counts["compared"] > 0.7 * len(numbers)
