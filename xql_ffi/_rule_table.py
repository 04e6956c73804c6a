"""The rules of differentiation as a table."""

from __future__ import annotations

import pyarrow as pa
from pyarrow.cffi import ffi

from xql_ffi import _library


def rule_table() -> pa.Table:
    """Every scalar function, operator and expression of DataFusion that takes or returns a float, a row for each.

    So do the special functions, which a session has by ``register(ctx, functions=True)``.

    Aggregates and window functions are not in it: their derivatives are formulas over many rows.

    The columns are:

    - ``family`` (string): what the row is listed under.
    - ``group`` (string): ``differentiable``, ``piecewise constant`` (the derivative is 0) or ``refused``.
    - ``signature`` (string): the call, as SQL over the names of its inputs, ``atan2(y, x)``.
    - ``inputs`` (list of strings): these names; ``xi`` if there is any number of them.
    - ``partials`` (list of strings): the partial derivative by each input, as SQL over the inputs and the output ``Ω``.
    - ``domain`` (string): where they hold, kinks aside, as a condition in SQL.
    - ``kinks`` (list of structs): the points at which there is no derivative, or one from one side only. ``at`` is
      ``input = expression``, with any condition after ``AND``, and ``k`` is any whole number; ``partials`` is what is
      taken for the partial derivatives there; ``why`` says why.
    - ``reason`` (string): why it is refused; null in the other groups.

    >>> import pyarrow.compute as pc
    >>> import xql_ffi
    >>> table = xql_ffi.rule_table()
    >>> table.filter(pc.field("signature") == "tan(x)")["partials"].to_pylist()
    [['1 + Ω * Ω']]

    Raises:
        RuntimeError: the native library cannot give the table.
    """
    schema = ffi.new("struct ArrowSchema *")
    array = ffi.new("struct ArrowArray *")
    addresses = [int(ffi.cast("uintptr_t", struct)) for struct in (schema, array)]
    if not _library.lib.xql_ffi_rule_table(*(_library.ffi.cast("void *", address) for address in addresses)):
        msg = "the native library of xql-ffi has no rule table"
        raise RuntimeError(msg)
    batch = pa.RecordBatch._import_from_c(addresses[1], addresses[0])
    return pa.Table.from_batches([batch])
