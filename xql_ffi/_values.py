"""Values of parameters of a statement, as the methods of sessions take them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any


def for_duckdb(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Values for DuckDB, which takes few of NumPy's own types: those of Python in their place."""
    return {name: of_python(value) for name, value in parameters.items()}


def for_datafusion(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values for DataFusion.

    Those in ``param_values`` become scalars of pyarrow, which takes scalars of NumPy with their types, and vectors as
    lists. What is given by name is put into the text.

    Raises:
        TypeError: a date is given by name, whose text would be a difference of integers: ``2026-01-05`` is 2020.
    """
    typed = parameters.get("param_values")
    made = {name: value if name == "param_values" else of_python(value) for name, value in parameters.items()}
    for name, value in made.items():
        if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
            msg = f"${name} is a date, which becomes text in the statement: give it as param_values={{{name!r}: ...}}"
            raise TypeError(msg)
    if typed is not None:
        made["param_values"] = {name: _for_pyarrow(value) for name, value in typed.items()}
    return made


def of_python(value: Any) -> Any:
    """Returns a value in which scalars and arrays of NumPy are numbers, texts and lists of Python."""
    if isinstance(value, Mapping):
        return {name: of_python(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [of_python(each) for each in value]
    return value.tolist() if _is_of_numpy(value) else value


def _for_pyarrow(value: Any) -> Any:
    if not _is_of_numpy(value):
        return value
    # pyarrow takes neither days nor arrays that are no vectors, and a text of NumPy has no element of its own.
    return value.tolist() if value.ndim > 1 or value.dtype.kind in "mMU" else value[()]


def _is_of_numpy(value: object) -> bool:
    """Returns whether a value is a scalar or an array of NumPy, which need not be installed."""
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist")
