"""Keeps the rows of a query in a file, in a form that can be compared with those of another process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def keep(batches: Sequence[pa.RecordBatch], ordered: bool, file: Path) -> None:
    """Writes the floats of all rows and a hash of everything else, sorted by the hash if the rows have no order."""
    import numpy as np
    import polars as pl
    import pyarrow as pa

    if not batches:
        np.savez(file, hashes=np.empty(0))
        return
    table = pa.Table.from_batches(batches).rename_columns([str(n) for n in range(batches[0].num_columns)])
    frame = pl.DataFrame(pl.from_arrow(table))
    floats: dict[str, Any] = {name: frame[name].to_numpy() for name in frame.select(pl.selectors.float()).columns}
    # A NULL is NaN among the floats, so which of them are NULL counts among the rest.
    hashes = frame.with_columns(pl.col(name).is_null() for name in floats).hash_rows().to_numpy()
    if not ordered:
        order = np.argsort(hashes)
        if np.any(np.diff(hashes[order]) == 0):
            order = np.lexsort((*floats.values(), hashes))
        hashes, floats = hashes[order], {name: column[order] for name, column in floats.items()}
    np.savez(file, hashes=hashes, **floats)


def difference(one: Path, other: Path) -> str:
    """What differs between the rows in two files, or nothing: floats to 1e-9, or 1e-15 of the largest of a column."""
    import numpy as np

    with np.load(one) as ours, np.load(other) as theirs:
        if ours.keys() != theirs.keys():
            return "the columns"
        if not np.array_equal(ours["hashes"], theirs["hashes"]):
            return f"values that are no floats, or the number of rows: {len(ours['hashes'])}, {len(theirs['hashes'])}"
        for name in ours.keys() - {"hashes"}:
            a, b = ours[name], theirs[name]
            # A sum may cancel all of its terms but the last digit.
            largest = np.max(np.abs(a), initial=0, where=np.isfinite(a))
            if not np.allclose(a, b, rtol=1e-9, atol=1e-15 * largest, equal_nan=True):
                return f"column {name}, by {np.nanmax(np.abs(a - b)):.1e}"
    return ""
