"""The dialects by their names."""

from __future__ import annotations

import warnings

from sqlglot.dialects.dialect import Dialect

from xql_ffi._errors import HostError
from xql_ffi._text.dialects.bigquery import BIGQUERY
from xql_ffi._text.dialects.duckdb import DUCKDB
from xql_ffi._text.dialects.first_value import nowhere
from xql_ffi._text.dialects.host import Host
from xql_ffi._text.dialects.polars import POLARS
from xql_ffi._text.dialects.postgres import POSTGRES
from xql_ffi._text.dialects.spark import SPARK
from xql_ffi._text.dialects.sqlite import SQLITE

HOSTS: dict[str, Host] = {host.name: host for host in (BIGQUERY, DUCKDB, POLARS, POSTGRES, SPARK, SQLITE)}


def host_of(dialect: str) -> Host:
    """Returns the host of a name. One that is not tested is as sqlglot has it, with a warning.

    Raises:
        HostError: there is none.
    """
    if found := HOSTS.get(dialect):
        return found
    syntax = Dialect.get(dialect)
    if syntax is None:
        names = ", ".join(map(repr, ("datafusion", *HOSTS)))
        msg = f"the dialect must be one of {names}, or another one that sqlglot knows; {dialect!r} is not one"
        raise HostError(msg)
    warnings.warn(
        f"sqlglot writes the SQL of {dialect}, and nobody has ever run what it writes", UserWarning, stacklevel=5
    )
    return untested(dialect, syntax)


def untested(name: str, syntax: type[Dialect]) -> Host:
    """Returns a host with the functions that almost all have."""
    return Host(
        name=name,
        syntax=syntax,
        catalog="catalog",
        schema="schema",
        same="""
        abs acos asin atan ceil coalesce cos exp floor ln nullif power round sin sqrt tan
        avg count max min sum
        row_number rank dense_rank lag lead first_value last_value
        concat length lower replace trim upper
        """,
        renamed={"nvl": "coalesce", "signum": "sign"},
        aliases={"coalesce": "coalesce"},
        divides_to_float=not syntax.TYPED_DIVISION,
        float_literal="{}e0",
        first=nowhere,
    )
