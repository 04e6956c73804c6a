"""Runs texts in which nothing is differentiated any more, and prints the columns that they give, as JSON."""

import json
import math
import sys
from typing import Any

from datafusion import SessionContext

from support.sessions import session
from text.cases import TABLES, VIEWS


def with_views() -> SessionContext:
    """A session with the tables and the views, and without derivatives."""
    ctx = session(TABLES, differentiates=False)
    for name, query in VIEWS.items():
        ctx.sql(f"CREATE VIEW {name} AS {query}")
    return ctx


def shown(value: Any) -> Any:
    """A value as JSON has it."""
    has = value is None or isinstance(value, (str, int, float, list, dict))
    return value if has and not (isinstance(value, float) and not math.isfinite(value)) else str(value)


def result(ctx: SessionContext, query: str) -> Any:
    """The columns with their types, and the rows in an order of their own."""
    table = ctx.sql(query).to_arrow_table()
    rows = [[shown(value) for value in row.values()] for row in table.to_pylist()]
    ordered = sorted(rows, key=lambda row: [f"{v:.6g}" if isinstance(v, float) else str(v) for v in row])
    return {"columns": [f"{field.name}: {field.type}" for field in table.schema], "rows": ordered}


def main() -> None:
    import xql_ffi

    ctx = with_views()
    assert not xql_ffi.engine_status().startswith("active")
    texts = {}
    for name, query in json.loads(sys.argv[1]).items():
        text = ""
        try:
            text = xql_ffi.expand_sql(query, ctx)
            texts[name] = {"text": text, "again": xql_ffi.expand_sql(text, ctx), **result(ctx, text)}
        except Exception as error:
            texts[name] = {"text": text, "error": str(error)}
    print(json.dumps(texts))


if __name__ == "__main__":
    main()
