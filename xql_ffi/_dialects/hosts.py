"""The dialects by their names."""

from __future__ import annotations

from xql_ffi._dialects.duckdb import DUCKDB
from xql_ffi._dialects.host import Host, HostError
from xql_ffi._dialects.spark import SPARK

HOSTS: dict[str, Host] = {host.name: host for host in (DUCKDB, SPARK)}


def host_of(dialect: str) -> Host:
    """The host of a name.

    Raises:
        HostError: there is none.
    """
    found = HOSTS.get(dialect)
    if found is None:
        names = ", ".join(map(repr, ("datafusion", *HOSTS)))
        msg = f"{dialect!r} is no dialect that is written here: take one of {names}"
        raise HostError(msg)
    return found
