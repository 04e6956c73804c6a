"""What stands beside a derivative that sees through relations has the value and type that it has without."""

from __future__ import annotations

import pyarrow as pa

from hosts.host import Host, HostError, Ran, RefusedError
from text.beside import COLUMNS, COMMON, OWN

STATEMENTS = (
    ("SELECT id, {value} AS v, {slope} AS g FROM t ORDER BY id", "grad((SELECT SUM(x * x) FROM t), x)"),
    ("SELECT id, v, {slope} AS g FROM (SELECT id, x, x * x AS q, {value} AS v FROM t) AS t ORDER BY id", "grad(q, x)"),
)


def test_values_and_types(host: Host) -> None:
    host.open({"t": pa.table(COLUMNS)})
    wrong, same = [], 0
    for value in (*COMMON, *OWN.get(host.dialect, ())):
        for statement, slope in STATEMENTS:
            try:
                wanted = _column(host.run(statement.format(value=value, slope="x")))
            except HostError:
                continue
            try:
                text = host.expand(statement.format(value=value, slope=slope))
            except RefusedError:
                continue
            try:
                found = _column(host.run(text))
            except HostError as error:
                found = str(error)
            same += found == wanted
            wrong += [] if found == wanted else [f"{value}: {found} instead of {wanted}\n{text}"]
    assert not wrong, f"{len(wrong)} expressions on {host.name}:\n\n" + "\n\n".join(wrong)
    # A host that refuses everything shows nothing.
    assert same > len(COMMON)


def _column(ran: Ran) -> str:
    # DataFusion declares a column before it has found the types that its expressions are computed in.
    return f"{ran.table['v'].type} {ran.table['v'].to_pylist()}"
