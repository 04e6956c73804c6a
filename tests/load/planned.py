"""Plans statements of shapes in a process of their own: ``planned.py CASE ...`` prints a line of JSON for each case.

A case is ``PATH:SHAPE:N:STACK``. PATH is `without` for the statement without derivatives, `engine`, `text` or `frame`;
STACK is the size of the stack of the thread in kB, 0 for the main thread. Prefixed with ``deep-``, a path is taken by a
session that reads statements of any depth.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from datafusion import SessionContext

import xql_ffi
from load.shapes import FRAMES, SHAPES, schemas


def planned(path: str, name: str, n: int) -> dict[str, object]:
    """The processor seconds of planning, or the error."""
    shape = SHAPES[FRAMES[name][0] if path == "frame" else name]
    ctx = SessionContext() if path.endswith("without") else xql_ffi.register(SessionContext())
    if path.startswith("deep-"):
        ctx.sql("SET datafusion.sql_parser.recursion_limit = 1000000").collect()
    for table, columns in shape.tables(n).items():
        ctx.from_pydict(dict(columns), name=table)
    statement = shape.without(n) if path.endswith("without") else shape.derived(n)
    tables = schemas(shape, n)
    begin = time.process_time()
    try:
        if path == "text":
            xql_ffi.expand_sql(statement, tables)
        else:
            (FRAMES[name][1](ctx, n) if path == "frame" else ctx.sql(statement)).execution_plan()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "seconds": time.process_time() - begin}
    return {"seconds": time.process_time() - begin}


def main() -> None:
    for case in sys.argv[1:]:
        path, name, n, stack = case.split(":")
        found: list[dict[str, object]] = []

        def work(path: str = path, name: str = name, n: str = n, found: list[dict[str, object]] = found) -> None:
            found.append(planned(path, name, int(n)))

        if int(stack):
            threading.stack_size(int(stack) * 1024)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            work()
        print(json.dumps([case, found[0]]), flush=True)


if __name__ == "__main__":
    main()
