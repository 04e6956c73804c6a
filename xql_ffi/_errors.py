"""What is refused, as exceptions."""

from __future__ import annotations

import re


class DifferentiationError(ValueError):
    """A derivative that cannot be taken. The message names the expression, the column, the reason and what to do."""


class MissingRuleError(DifferentiationError):
    """A function or an operator that varies with the variable has no derivative that is known."""


class VariableError(DifferentiationError):
    """What is differentiated by is none: a constant, an expression, a whole number, or no column of GROUP BY."""


class NotNumericError(DifferentiationError):
    """What is differentiated is no number: a text, a truth value, a list."""


class UnsupportedRelationError(DifferentiationError):
    """The derivative is not known through the relations between the variable and the call."""


class MissingEngineError(DifferentiationError):
    """This process' ``datafusion`` does not let functions of other libraries simplify their calls."""


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
_MARK = re.compile(rf"(?:^|Error during planning: |Execution error: )({'|'.join(_KINDS)}): ")
_UNGROUPED = re.compile(
    r'column "(?P<column>.+)" must appear in the GROUP BY clause or must be part of an aggregate function'
)
_CALL = re.compile(r"\b(grad|jvp|vjp)\s*\(", re.IGNORECASE)


def translated(message: str, query: str | None = None) -> DifferentiationError | None:
    """The exception for a message of DataFusion that is about a derivative; None for others.

    Messages of the native library begin with the name of their kind. DataFusion puts before it where it met them.

    Args:
        message: the message, as DataFusion has it.
        query: the SQL that was being planned, if it is known.
    """
    if found := _MARK.search(message):
        return _KINDS[found[1]](message[found.end() :])
    if query is not None and (called := _CALL.search(query)) and (found := _UNGROUPED.search(message)):
        operator, column = called[1].lower(), found["column"]
        return VariableError(
            f"{operator} of an aggregate is taken by a column of GROUP BY, and {column} is none. Add it, GROUP BY "
            f"{column}, or take the derivative inside: AVG({operator}(f, x)) instead of {operator}(AVG(f), x)"
        )
    return None
