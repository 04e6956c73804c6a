"""Statements in which a rewriting of text goes wrong, as Spark's SQL on Sail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hosts.host import HostError, RefusedError
from hosts.hostile import STATEMENTS, TABLES, differs, engine, rows
from hosts.sail import Sail
from support import scale_out

# Those that mean something else there, or that Sail 0.7.2 does not run.
ELSEWHERE = {
    "division of integers": "it gives a float",
    "names in quotes": "double quotes are for strings",
    "a name in quotes through relations": "double quotes are for strings",
    "a quote in a string": "two strings side by side are one",
    "having": "Sail takes a name in HAVING for that of the value before that of the column",
    "iterations": "Sail has no recursion",
    "iterations that vary": "Sail has no recursion",
}


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[Sail]:
    scale_out.skip_unless_asked(request.config, "sail")
    host = Sail(scale_out.worker())
    yield host
    host.close()


def test_same_values(spark: Sail) -> None:
    """All others are expanded, and give what the engine gives."""
    ctx = engine()
    spark.open(TABLES)
    wrong = {}
    for name, statement in STATEMENTS.items():
        text = found = ""
        try:
            text = spark.expand(statement)
            found = differs(rows(spark.run(text).table), rows(ctx.sql(statement).to_arrow_table())) or ""
        except (RefusedError, HostError) as error:
            found = f"{type(error).__name__}: {error}"
        if name not in ELSEWHERE and (found or spark.expand(text) != text):
            wrong[name] = f"{name}: {found or 'expanded again it is another text'}\n{text}"
    assert not wrong, "\n\n".join(wrong.values())
