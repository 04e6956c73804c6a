"""Whatever names, strings and comments say: a text gives, reads and writes what the statement does on the engine."""

from __future__ import annotations

import random

import pytest
from datafusion import SessionContext

import xql_ffi
from load.hostile import CANARY, STATEMENTS, statements
from load.sessions import contents, difference, parts_of, reads, rows, sessions
from support.seed import SEED


def _planned(ctx: SessionContext, sql: str) -> str:
    """The error with which a statement is refused; nothing if it is not."""
    try:
        ctx.sql(f"EXPLAIN {sql}").collect()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _wrong(draw: random.Random, template: str) -> str | None:
    """What is wrong with a statement of generated names; nothing if it is right, None if DataFusion refuses it."""
    parts = parts_of(draw)
    sql, without = statements(draw, template, parts)
    engine, plain = sessions(parts)
    if _planned(plain, without):
        return None
    text = ""
    try:
        text = xql_ffi.expand_sql(sql, plain)
        again = xql_ffi.expand_sql(text, plain)
        same_reads = reads(plain, text) == reads(engine, sql) != set()
        found, wanted = (rows(ctx.sql(query).to_arrow_table()) for ctx, query in ((plain, text), (engine, sql)))
        what = difference(found, wanted)
        if again != text:
            what = f"expanded again it is {again}"
        if not same_reads:
            what = f"it reads {reads(plain, text)} and not {reads(engine, sql)}"
        left, right = contents(plain), contents(engine)
        if left != right:
            what = f"it leaves {left} and not {right}"
        if len(left[CANARY]) != 3:
            what = "it writes a table that it does not name"
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
    return what and f"{what}\n{sql}\n-- on the engine: {_planned(engine, sql) or 'planned'}\n-->\n{text}"


@pytest.mark.parametrize("name", STATEMENTS)
def test_names_strings_and_comments(name: str, pytestconfig: pytest.Config) -> None:
    number = pytestconfig.getoption("hostile") // len(STATEMENTS) + 1
    draw = random.Random(f"{SEED} {name}")
    found = [_wrong(draw, STATEMENTS[name]) for _ in range(number)]
    wrong = [what for what in found if what]
    assert found.count(None) <= number / 2, "DataFusion refuses most of them"
    assert not wrong, f"{len(wrong)} of {number}:\n\n" + "\n\n".join(wrong[:5])
