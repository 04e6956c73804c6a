"""The names in DuckDB of Arrow's types that have no name in DataFusion's SQL."""

from __future__ import annotations

import re

from sqlglot import exp

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.duckdb import DUCKDB

_NAMES = {
    "Float64": "DOUBLE",
    "Float32": "FLOAT",
    "Boolean": "BOOLEAN",
    "Int8": "TINYINT",
    "Int16": "SMALLINT",
    "Int32": "INTEGER",
    "Int64": "BIGINT",
    "UInt8": "UTINYINT",
    "UInt16": "USMALLINT",
    "UInt32": "UINTEGER",
    "UInt64": "UBIGINT",
    "Utf8": "VARCHAR",
    "LargeUtf8": "VARCHAR",
    "Utf8View": "VARCHAR",
    "Binary": "BLOB",
    "LargeBinary": "BLOB",
    "Date32": "DATE",
}


def duckdbs_null(argument: exp.Expr) -> exp.Expr:
    """Returns a NULL of a type, which may be ``arrow_cast(NULL, 'List(Float64)')``, as one of DuckDB.

    Raises:
        HostError: the type has no name there.
    """
    if argument.name != "arrow_cast":
        return argument
    return exp.cast(exp.null(), _name(argument.expressions[1].name), dialect=DUCKDB.syntax)


def _name(kind: str) -> str:
    if of := re.fullmatch(r"(?:Large)?List\((?:nullable |non-null )?(.*)\)", kind):
        return f"{_name(of[1])}[]"
    if decimal := re.fullmatch(r"Decimal\d+(\(\d+, \d+\))", kind):
        return f"DECIMAL{decimal[1]}"
    if kind.startswith("Dictionary"):
        return _NAMES["Utf8"]
    if kind not in _NAMES:
        msg = f"a function of the session is called with a value of the Arrow type {kind}, which has no name in DuckDB"
        raise HostError(msg)
    return _NAMES[kind]
