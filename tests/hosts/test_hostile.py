"""Statements in which a rewriting of text goes wrong, on every host."""

from __future__ import annotations

import math
import re

import pytest

from hosts.host import Host, HostError, RefusedError
from hosts.hostile import LACKING, READ_DIFFERENTLY, STATEMENTS, TABLES, differs, engine, rows
from support.differences import central

# How close a derivative comes to differences.
_CLOSE = 1e-6


def test_same_values(host: Host) -> None:
    """All of them are expanded, and give what the engine gives."""
    ctx = engine()
    host.open(TABLES)
    wrong = {}
    for name, statement in STATEMENTS.items():
        text, lacks = "", LACKING.get(host.dialect, {}).get(name)
        try:
            text = host.expand(statement)
            again = host.expand(text)
            found = differs(rows(host.run(text).table), rows(ctx.sql(statement).to_arrow_table()))
        except Exception as error:
            found, again = f"{type(error).__name__}: {error}", text
            if lacks and isinstance(error, RefusedError) and lacks in found:
                continue
        if found or lacks or again != text:
            wrong[name] = f"{name}: {found or lacks or 'expanded again it is another text'}\n{text}"
    assert not wrong, f"{len(wrong)} of {len(STATEMENTS)} statements on {host.name}:\n\n" + "\n\n".join(wrong.values())


@pytest.mark.parametrize("name", READ_DIFFERENTLY)
def test_the_meaning_is_that_of_the_host(name: str, host: Host) -> None:
    """Differences of what the host takes an expression for decide."""
    value, variable, where = READ_DIFFERENTLY[name]
    host.open(TABLES)

    def values(expression: str) -> list[float | None]:
        source = f"FROM t WHERE x IS NOT NULL AND {where} ORDER BY id"
        column = host.run(f"SELECT id, {expression} AS v {source}").table["v"].to_pylist()
        return [None if number is None else float(number) for number in column]

    def moved(step: float) -> list[float | None]:
        return values(re.sub(rf"\b{variable}\b", f"({variable} + ({step!r}))", value))

    try:
        wanted = central(moved)
    except HostError as error:
        pytest.skip(f"{host.name} has no such function: {error}")
    try:
        text = host.expand(f"SELECT grad({value}, {variable}) AS d FROM t")
    except RefusedError as error:
        pytest.skip(f"refused: {error}")
    derivative = text.removeprefix("SELECT ").removesuffix(" AS d FROM t")
    compared = [(found, float(number)) for found, number in zip(values(derivative), wanted, strict=True)]
    compared = [(found, expected) for found, expected in compared if not math.isnan(expected)]
    assert compared, f"no row has a value of {value}"
    for found, expected in compared:
        assert found is not None, text
        assert abs(float(found) - expected) <= _CLOSE * (1 + abs(expected)), f"{found} instead of {expected}: {text}"
