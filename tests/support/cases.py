"""Statements that differentiate, each beside the same statement with the derivative written by hand.

A case is written once. `[[call := derivative]]` marks each place that differs:

    SELECT [[grad(x * x, x) := 2.0 * x]] AS d FROM t

The call is run with the functions of this package, the derivative without them. Both must give the same rows and
Arrow types, and both the numbers that the case computes in Python.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from datafusion import SessionContext

from support.compare import Rows, assert_same_rows, rows_of
from support.sessions import session
from support.tables import TABLES

_MARK = re.compile(r"\[\[(.+?) := (.+?)\]\](?!\])", re.DOTALL)
_CALL = re.compile(r"\b(?:grad|jvp|vjp)\(")
# EXPLAIN of these either cannot be had, or carries the statement out.
_NOT_EXPLAINED = ("CREATE", "PREPARE", "EXECUTE", "UPDATE", "DELETE")

Register = Callable[[SessionContext], SessionContext]


@dataclass(frozen=True)
class Case:
    """A sequence of statements, of which the last gives the rows to compare.

    `{dir}` in a statement stands for an empty folder. `explained` is false where the planner derives names of its own
    from the name of a call, so that EXPLAIN cannot tell whether a call is left.
    """

    id: str
    sql: str | Sequence[str]
    expected: Rows
    ordered: bool = True
    rel: float = 1e-12
    explained: bool = True

    @property
    def statements(self) -> Sequence[str]:
        return (self.sql,) if isinstance(self.sql, str) else self.sql


def params(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Parametrizes a test by `case`."""
    names = [case.id for case in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    return pytest.mark.parametrize("case", cases, ids=names)


def with_calls(statement: str) -> str:
    """The statement with the calls of grad, jvp and vjp."""
    return _MARK.sub(lambda mark: mark[1], statement)


def by_hand(statement: str) -> str:
    """The statement with the derivatives written by hand."""
    return _MARK.sub(lambda mark: f"({mark[2]})", statement)


def query(ctx: SessionContext, statement: str) -> pa.Table:
    """Runs a statement and fetches its result."""
    return ctx.sql(statement).to_arrow_table()


def run(ctx: SessionContext, statements: Sequence[str]) -> pa.Table:
    """Runs the statements in turn; the result of the last."""
    results = [query(ctx, statement) for statement in statements]
    return results[-1]


def plans(ctx: SessionContext, statement: str) -> dict[str, str]:
    """The plans that EXPLAIN shows, by their kind."""
    shown = query(ctx, f"EXPLAIN {statement}").to_pydict()
    return dict(zip(shown["plan_type"], shown["plan"], strict=True))


def assert_no_call(plans: Iterable[str]) -> None:
    """Asserts that nothing of grad, jvp and vjp is left to execute in the plans of a query.

    What was not given a name is named by its expression as it was written, also after the expression was replaced:
    `Projection: 2 * t.x AS grad(t.x * t.x,t.x)`. These names, and what refers to them, are no calls.
    """
    plans = list(plans)
    names = sorted({name for plan in plans for name in _names(plan) if _CALL.search(name)}, key=len, reverse=True)
    for plan in plans:
        rest = plan
        for name in names:
            rest = rest.replace(name, "")
        assert not _CALL.search(rest), f"a call is left in the plan:\n{plan}"


def _names(plan: str) -> Iterator[str]:
    """The names that a plan gives to expressions: what follows AS, up to what ends it."""
    for start in re.finditer(r" (?:AS|as) ", plan):
        depth = 0
        for end in range(start.end(), len(plan) + 1):
            rest = plan[end : end + 4]
            depth += rest[:1] in tuple("([{")
            depth -= rest[:1] in tuple(")]}")
            if depth < 0 or (depth == 0 and (rest[:1] in ("", ",", "\n") or rest in (" AS ", " as "))):
                yield plan[start.end() : end]
                break


def check(case: Case, register: Register, folder: Path) -> None:
    """Runs `case` with the calls and by hand, and compares rows, types and plans."""
    called = register(session(TABLES, differentiates=False))
    hand = session(TABLES, differentiates=False)
    results: list[pa.Table] = []
    for ctx, write, name in ((called, with_calls, "called"), (hand, by_hand, "by_hand")):
        (folder / name).mkdir()
        statements = [write(statement).replace("{dir}", str(folder / name)) for statement in case.statements]
        for statement, template in zip(statements, case.statements, strict=True):
            if case.explained and ctx is called and _MARK.search(template) and not statement.startswith(_NOT_EXPLAINED):
                assert_no_call(plans(ctx, statement).values())
            results.append(query(ctx, statement))
    actual, expected = results[len(case.statements) - 1], results[-1]
    arrange = (lambda rows: rows) if case.ordered else (lambda rows: sorted(rows, key=repr))
    assert actual.schema.types == expected.schema.types
    assert_same_rows(arrange(rows_of(actual)), arrange(rows_of(expected)), rel=case.rel)
    assert_same_rows(arrange(rows_of(actual)), arrange(list(case.expected)), rel=case.rel)
