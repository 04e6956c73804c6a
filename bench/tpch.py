"""The tables and the 22 queries of TPC-H, from DuckDB's extension, for `engine_vs_stock.py`.

The extension is for another DuckDB than that of the tests, so it has an environment of its own, with the dependency
group `tpch` of pyproject.toml. In there this program writes the tables as parquet files and the queries as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datafusion import SessionContext
    from engine_cases import Case

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
QUERIES = "queries.json"


def make(folder: Path, scale: float) -> None:
    """Writes the tables at a scale factor, and the queries."""
    with tempfile.TemporaryDirectory() as place:
        # The pip that comes with a Python may be too old to know dependency groups.
        subprocess.run([sys.executable, "-m", "venv", "--upgrade-deps", place], check=True, stdout=subprocess.DEVNULL)
        python = Path(place) / ("Scripts" if os.name == "nt" else "bin") / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--group", f"{PROJECT}:tpch"], check=True)
        subprocess.run([python, __file__, folder, str(scale)], check=True)


def cases(ctx: SessionContext, folder: Path) -> Iterator[Case]:
    """Every query, planned and run over the parquet files."""
    from engine_cases import planned_and_run

    for table in folder.glob("*.parquet"):
        ctx.register_parquet(table.stem, table)
    yield from planned_and_run(ctx, "TPC-H", json.loads((folder / QUERIES).read_text()))


def main(folder: Path, scale: float) -> None:
    """Writes what `make` promises, in the environment with the extension."""
    import duckdb
    import duckdb_extension_tpch

    (extension,) = Path(duckdb_extension_tpch.__file__).parent.rglob("tpch.duckdb_extension")
    with duckdb.connect() as database:
        database.execute(f"LOAD '{extension}'")
        database.execute(f"CALL dbgen(sf = {scale})")
        for (table,) in database.execute("SHOW TABLES").fetchall():
            database.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
        queries = database.execute("SELECT query_nr, query FROM tpch_queries() ORDER BY query_nr").fetchall()
    (folder / QUERIES).write_text(json.dumps({f"q{number}": query.rstrip().rstrip(";") for number, query in queries}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
