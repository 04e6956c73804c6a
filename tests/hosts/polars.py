"""Polars, in this process."""

from __future__ import annotations

from collections.abc import Mapping

import polars
import pyarrow as pa
from polars.exceptions import PolarsError

from hosts.given import Given
from hosts.host import HostError, Ran


class Polars(Given):
    """Frames by name. It has no views, and no statements but queries and CREATE TABLE."""

    name = f"Polars {polars.__version__}"
    dialect = "polars"

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._give(tables)
        self._context = polars.SQLContext(
            {name: polars.DataFrame(polars.from_arrow(table)) for name, table in tables.items()}, eager=True
        )

    def run(self, text: str) -> Ran:
        try:
            table = self._context.execute(text).to_arrow()
        except (PolarsError, ValueError) as error:
            raise HostError(str(error)) from error
        except BaseException as panic:
            if "Panic" not in type(panic).__name__:
                raise
            raise HostError(f"panic: {panic}") from panic
        return Ran(table.schema, table)

    def close(self) -> None:
        """Nothing runs."""
