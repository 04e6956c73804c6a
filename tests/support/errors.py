"""Assertions about error messages."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from datafusion import DataFrame, SessionContext


@dataclass(frozen=True)
class Refused:
    """A statement that fails at planning, and what its message must say: regular expressions, in any case."""

    id: str
    sql: str
    says: Sequence[str]


def refusals(cases: Sequence[Refused]) -> pytest.MarkDecorator:
    """Parametrizes a test by `case`."""
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


def message_at_planning(build: Callable[[], DataFrame]) -> str:
    """The message with which a query fails before any of it is executed."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - datafusion raises plain exceptions
        build().execution_plan()
    return str(caught.value)


def assert_refused(ctx: SessionContext, case: Refused) -> None:
    """Asserts that planning `case` fails with the message it names, and that the session lives on."""
    assert_says(message_at_planning(lambda: ctx.sql(case.sql)), case.says)
    assert ctx.sql("SELECT id FROM t WHERE id = 1").to_pydict() == {"id": [1]}


def assert_says(message: str, parts: Sequence[str]) -> None:
    """Asserts that `message` has all `parts`."""
    for part in parts:
        assert re.search(part, message, re.IGNORECASE), f"{part!r} is missing in: {message}"


# What derivatives call columns and relations that they add, and what objectives call their own.
_INTERNAL = re.compile(r"∂\w*|\b[a-z]+(?:_?\d+)*_[0-9a-f]{32}\b")


def internal_names(message: str) -> list[str]:
    """The names in a message that no statement has, if the statement itself has none that are called likewise."""
    return _INTERNAL.findall(message)


def is_panic(error: BaseException) -> bool:
    """Whether it is a panic of Rust, which is no `Exception`, and whose class Python cannot import."""
    return "Panic" in type(error).__name__


def is_failure(error: BaseException) -> bool:
    """Whether it says that something failed, and not that the tests shall end."""
    return isinstance(error, Exception) or is_panic(error)
