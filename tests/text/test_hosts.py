"""The text of a statement gives on other engines what the statement gives on DataFusion."""

from decimal import Decimal
from typing import Any

import pytest
from datafusion import SessionContext

import xql_ffi
from support.compare import same_value
from text.cases import STATEMENTS
from text.hosts import ENGINE, HOSTS, OTHERWISE, REFUSED
from text.stock import shown, with_views

CASES = [(host, name) for host in HOSTS for name in STATEMENTS if OTHERWISE[host].get(name, "") is not None]


@pytest.fixture(scope="module")
def hosts() -> dict[str, Any]:
    return {name: host() for name, host in HOSTS.items()}


@pytest.fixture(scope="module")
def engine() -> SessionContext:
    return xql_ffi.register(with_views())


def ordered(rows: Any) -> list[list[Any]]:
    written = [[float(v) if isinstance(v, (int, Decimal)) else shown(v) for v in row] for row in rows]
    return sorted(written, key=lambda row: [f"{v:.6g}" if isinstance(v, float) else str(v) for v in row])


@pytest.mark.parametrize(("name", "statement"), CASES)
def test_same_values(name: str, statement: str, hosts: dict[str, Any], engine: SessionContext) -> None:
    host, query = hosts[name], OTHERWISE[name].get(statement) or STATEMENTS[statement]
    if reason := REFUSED[name].get(statement):
        with pytest.raises(ValueError, match=reason):
            xql_ffi.expand_sql(query, host.tables, dialect=name)
        return
    text = xql_ffi.expand_sql(query, host.tables, dialect=name)
    assert xql_ffi.expand_sql(text, host.tables, dialect=name) == text
    columns, rows = host.run(text)
    wanted = engine.sql(ENGINE.get((name, statement), STATEMENTS[statement])).to_arrow_table()
    assert [column.lower() for column in columns] == [column.lower() for column in wanted.column_names]
    found, expected = ordered(rows), ordered(row.values() for row in wanted.to_pylist())
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert all(same_value(a, b, 1e-9, 1e-12) for a, b in zip(left, right, strict=True)), (left, right, text)
