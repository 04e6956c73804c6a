"""Statements without a call, from DataFusion's own suite of SQL, come back byte for byte."""

import xql_ffi
from support.sqllogictest import corpus, records


def test_they_come_back_byte_for_byte() -> None:
    statements = [record.sql for path in sorted(corpus().rglob("*.slt*")) for record in records(path)]
    assert len(statements) > 1000
    changed = [statement for statement in statements if xql_ffi.expand_sql(statement, {}) != statement]
    assert not changed
    print(f"{len(statements)} statements")
