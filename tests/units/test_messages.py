"""The exceptions that messages of DataFusion become."""

import pytest

import xql_ffi
from xql_ffi._calls import may_differentiate
from xql_ffi._errors import translated

UNGROUPED = 'column "t.x" must appear in the GROUP BY clause or must be part of an aggregate function'


@pytest.mark.parametrize(
    ("message", "kind", "sentence"),
    [
        ("MissingRuleError: f(x): why", xql_ffi.MissingRuleError, "f(x): why"),
        ("Error during planning: VariableError: why", xql_ffi.VariableError, "why"),
        (
            "Arrow error: Cannot cast string 'UnsupportedRelationError: it's so' to value of Float64 type",
            xql_ffi.UnsupportedRelationError,
            "it's so",
        ),
        ("Execution error: MissingEngineError: not simplified", xql_ffi.MissingEngineError, "not simplified"),
    ],
)
def test_marked_messages(message: str, kind: type[Exception], sentence: str) -> None:
    error = translated(message)
    assert type(error) is kind
    assert str(error) == sentence


def test_a_session_without_the_functions() -> None:
    error = translated("Error during planning: Invalid function 'vjp'.\nDid you mean 'exp'?")
    assert type(error) is xql_ffi.DifferentiationError
    assert "no function called vjp" in str(error)


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        ("SELECT grad(AVG(x * x), x) FROM t", "grad"),
        ("SELECT 1 + jvp(SUM(y), z, 2.0, t.x, 1.0) FROM t", "jvp"),
        ("SELECT vjp(MAX(x), x, 2.0) FROM t", "vjp"),
        ("SELECT vjp(MAX(y), y, x) FROM t", None),
        ("SELECT AVG(grad(x * x, x)), x FROM t", None),
        ("SELECT grad(x * x, x", None),
        ("SELECT x, AVG(y) FROM t", None),
    ],
)
def test_variables_that_are_no_keys(query: str, operator: str | None) -> None:
    error = translated(UNGROUPED, query)
    if operator is None:
        assert error is None
    else:
        assert type(error) is xql_ffi.VariableError
        assert str(error).startswith(f"the variable of {operator} of an aggregate must be a column of GROUP BY; t.x")


@pytest.mark.parametrize("message", ["Schema error: No field named q", "no MissingRuleError here", UNGROUPED])
def test_other_messages(message: str) -> None:
    assert translated(message) is None


@pytest.mark.parametrize(
    ("text", "may"),
    [("SELECT GRAD (x, x)", True), ("SELECT x", False), ("SELECT 'jvp'", True), ("stop_gradient(x)", True)],
)
def test_which_texts_may_differentiate(text: str, may: bool) -> None:
    assert may_differentiate(text) is may
