"""Statements in which a rewriting of text goes wrong, on every host."""

from __future__ import annotations

from hosts.host import Host, HostError, RefusedError
from hosts.hostile import READ_DIFFERENTLY, STATEMENTS, TABLES, differs, engine, rows


def test_same_values(host: Host) -> None:
    """All of them are expanded, and give what the engine gives."""
    ctx = engine()
    host.open(TABLES)
    wrong = {}
    for name, statement in STATEMENTS.items():
        text = ""
        try:
            text = host.expand(statement)
            again = host.expand(text)
            found = differs(rows(host.run(text).table), rows(ctx.sql(statement).to_arrow_table()))
        except Exception as error:
            found, again = f"{type(error).__name__}: {error}", text
        if found or again != text:
            wrong[name] = f"{name}: {found or 'expanded again it is another text'}\n{text}"
    assert not wrong, f"{len(wrong)} of {len(STATEMENTS)} statements on {host.name}:\n\n" + "\n\n".join(wrong.values())


def test_the_meaning_is_that_of_the_host(host: Host) -> None:
    """Each value is a multiple of one that all hosts agree on, and so is its derivative."""
    ctx = engine()
    host.open(TABLES)
    wrong = {}
    for name, (value, variable, where) in READ_DIFFERENTLY.items():
        source = f"FROM t WHERE x IS NOT NULL AND {where} ORDER BY id"
        try:
            values = rows(host.run(f"SELECT id, {value} AS v {source}").table)
        except HostError:
            continue  # the host has no such function
        statement = f"SELECT id, grad({value}, {variable}) AS v {source}"
        try:
            text = host.expand(statement)
        except RefusedError:
            continue
        ours, slopes = (rows(ctx.sql(sql).to_arrow_table()) for sql in (f"SELECT id, {value} AS v {source}", statement))
        wanted = [
            [number, derivative * of_host / of_engine]
            for (number, of_host), (_, of_engine), (_, derivative) in zip(values, ours, slopes, strict=True)
        ]
        if found := differs(rows(host.run(text).table), wanted):
            wrong[name] = f"{name}: {found}\n{text}"
    assert not wrong, "\n".join(wrong.values())
