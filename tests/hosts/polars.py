"""Polars, in this process."""

from __future__ import annotations

from collections.abc import Mapping

import polars
import pyarrow as pa
from polars.exceptions import PolarsError

from hosts.given import Frames
from hosts.host import HostError, Ran


class Polars(Frames):
    """Frames by name. It has no views and no INSERT."""

    name = f"Polars {polars.__version__}"
    dialect = "polars"

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._give(tables)
        self._context = polars.SQLContext(
            {name: polars.DataFrame(polars.from_arrow(table)) for name, table in tables.items()}, eager=True
        )

    def _query(self, text: str) -> Ran:
        try:
            table = self._context.execute(text).to_arrow()
        except (PolarsError, ValueError) as error:
            raise HostError(str(error)) from error
        except BaseException as panic:
            if "Panic" not in type(panic).__name__:
                raise
            raise HostError(f"panic: {panic}") from panic
        return Ran(table.schema, table)

    def _put(self, name: str, table: pa.Table) -> None:
        self._context.register(name, polars.DataFrame(polars.from_arrow(table)))

    def _drop(self, _kind: str, name: str) -> None:
        self._context.unregister([table for table in self._context.tables() if table == name])

    def close(self) -> None:
        """Nothing runs."""
