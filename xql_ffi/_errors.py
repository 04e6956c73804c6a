"""The exceptions of derivatives that xql-ffi refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xql_ffi._calls import DERIVATIVES, OPERATORS, may_differentiate
from xql_ffi._lacking import way_without


class DifferentiationError(ValueError):
    """xql-ffi cannot take a derivative. The message names the expression, the column, the reason and what to do."""


class MissingRuleError(DifferentiationError):
    """The expression has a function or an operator whose derivative xql-ffi does not know."""


class VariableError(DifferentiationError):
    """The variable is not a column of floats, or not a column of GROUP BY where the expression is an aggregate."""


class NotNumericError(DifferentiationError):
    """The expression is not a number, but a string, a truth value or a list."""


class UnsupportedRelationError(DifferentiationError):
    """xql-ffi cannot carry the derivative through a relation between the variable and the call."""


class MissingEngineError(DifferentiationError):
    """The ``datafusion`` of this process does not let functions of other libraries simplify their calls."""


class MinimumError(ValueError):
    """A point is no minimum of a loss, or the loss does not determine all parameters there."""


class CovarianceError(MinimumError):
    """Estimates have no covariance at a point: it is no minimum of the loss, or the data do not determine them all."""


class HostError(DifferentiationError):
    """The SQL of another engine does not have what the derivative needs, or the statement cannot be read as it."""


_KINDS = {
    kind.__name__: kind
    for kind in (
        DifferentiationError,
        MissingRuleError,
        VariableError,
        NotNumericError,
        UnsupportedRelationError,
        MissingEngineError,
    )
}
_MARK = re.compile(
    rf"(?:^|Error during planning: |Execution error: |(?P<quote>string '))(?P<kind>{'|'.join(_KINDS)}): "
)
# A running query raises an error by converting a sentence to a number. The message of the host quotes the sentence:
# Cannot cast string '...' to value of Float64 type; Could not convert string '...' to DOUBLE.
_QUOTED = re.compile(r"(?P<sentence>.*?)' (?:to value of|to [A-Z])", re.DOTALL)
_UNKNOWN = re.compile(r"Invalid function '(?P<name>\w+)'")
_UNWRITTEN = re.compile(r"LogicalPlan serde is not yet implemented for (?P<statement>Create\w+)")
_OUTER = re.compile(r"Proto serialization error: outer_ref\((?P<column>.+)\) is not yet supported")
_UNGROUPED = re.compile(
    r'column "(?P<column>.+)" must appear in the GROUP BY clause or must be part of an aggregate function'
)


# Names that a statement of this package has for what it makes itself: a word, numbers, and one that nothing else has.
_TAGGED = re.compile(r'"?\b(?P<what>[a-z]+)(?:_?(?P<number>\d+))?(?:_\d+)*_[0-9a-f]{32}\b"?')
_WHAT = {
    "step": "the direction",
    "steps": "the direction",
    "tangent": "the direction",
    "loss": "the loss",
    "value": "the loss",
    "row": "the number of a row",
    "part": "the number of a row",
    "c": "a column",
}


def untagged(message: str, tables: Sequence[str] = ()) -> str:
    """Returns a message without the names that a statement of this package has for what it makes itself.

    Args:
        message: the message.
        tables: what stands in the statement as ``rows_0_<tag>``, ``rows_1_<tag>``, or moved as ``moved_0_<tag>``.
    """

    def known(found: re.Match[str]) -> str:
        what, number = found["what"], found["number"]
        if what in ("rows", "moved") and number is not None and int(number) < len(tables):
            return tables[int(number)]
        return _WHAT.get(what, "a table")

    return _TAGGED.sub(known, message)


def translated(message: str, query: str | None = None) -> DifferentiationError | None:
    """Returns the exception for a message of DataFusion that is about a derivative; None for others.

    Messages of the native library begin with the name of their kind. DataFusion puts before it where it met them. An
    error of a running query is quoted by the message of a conversion that failed.

    Args:
        message: the message, as DataFusion has it.
        query: the SQL that was being planned, if it is known.
    """
    if found := _MARK.search(message):
        sentence = message[found.end() :]
        if found["quote"] and (quoted := _QUOTED.match(sentence)):
            sentence = quoted["sentence"]
        return _KINDS[found["kind"]](sentence)
    if found := _UNKNOWN.search(message):
        return _unknown(found["name"], query)
    if found := _UNWRITTEN.search(message):
        return UnsupportedRelationError(
            f"EXPLAIN of a statement that makes a table or a view ({found['statement']}) cannot show derivatives on "
            "datafusion 55, which hands such a plan to no planner. EXPLAIN the query itself"
        )
    if found := _OUTER.search(message):
        return UnsupportedRelationError(
            f"a subquery that reads {found['column']} of the query around it does not reach the planner on "
            "datafusion 55, which writes no such plan for the planner of another library. Write the subquery as a "
            "join, LATERAL too. If it is the bare name of a column that USING joins, write the table before it"
        )
    if query is not None and (found := _UNGROUPED.search(message)) and may_differentiate(query):
        column = found["column"]
        if operator := _operator_over_aggregate(query, column):
            return VariableError(
                f"the variable of {operator} of an aggregate must be a column of GROUP BY; {column} is not. Add it, "
                f"GROUP BY {column}, or take the derivative inside: AVG({operator}(f, x)) instead of "
                f"{operator}(AVG(f), x)"
            )
    return None


def _unknown(name: str, query: str | None) -> DifferentiationError | None:
    """Returns the exception for a function that the session has not, if it is an operator or stands beside one."""
    if name in OPERATORS:
        return DifferentiationError(
            f"this session has no function called {name}. Register it, xql_ffi.register(ctx), or run the statement as "
            "plain SQL, xql_ffi.sql(ctx, statement)"
        )
    if query is None or not may_differentiate(query):
        return None
    way = way_without(name)
    return None if way is None else MissingRuleError(way)


def _operator_over_aggregate(query: str, column: str) -> str | None:
    """The operator that a query calls with an aggregate and this column, ``grad`` in ``grad(AVG(x * x), x)``."""
    # sqlglot takes long to import, and only this error needs it.
    from sqlglot import errors, exp, parse

    try:
        trees = parse(query, read="postgres")
    except errors.SqlglotError:
        return None
    for tree in trees:
        for call in tree.find_all(exp.Anonymous) if tree is not None else ():
            if call.name.lower() in DERIVATIVES and call.expressions and call.expressions[0].find(exp.AggFunc):
                variables = call.expressions[1:2] if call.name.lower() == "vjp" else call.expressions[1::2]
                if any(variable.name.lower() == _last(column) for variable in variables):
                    return str(call.name.lower())
    return None


def _last(column: str) -> str:
    """Returns the name of a column without those of its table and schema."""
    return column.rpartition(".")[2].strip('"').lower()
