"""Values of parameters of a statement, as the methods of sessions take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def for_duckdb(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Values for DuckDB, which takes few of NumPy's own types: those of Python in their place."""
    return {name: _of_python(value) for name, value in parameters.items()}


def for_datafusion(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Values for DataFusion.

    Those in ``param_values`` become scalars of pyarrow, which takes scalars of NumPy with their types, and vectors as
    lists. What is given by name is put into the text.
    """
    typed = parameters.get("param_values")
    made = {name: value if name == "param_values" else _of_python(value) for name, value in parameters.items()}
    if typed is not None:
        made["param_values"] = {name: _for_pyarrow(value) for name, value in typed.items()}
    return made


def _of_python(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _of_python(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_of_python(each) for each in value]
    return value.tolist() if _is_of_numpy(value) else value


def _for_pyarrow(value: Any) -> Any:
    if not _is_of_numpy(value):
        return value
    # pyarrow takes neither days nor arrays that are no vectors.
    return value.tolist() if value.ndim > 1 or value.dtype.kind in "mM" else value[()]


def _is_of_numpy(value: object) -> bool:
    """Returns whether a value is a scalar or an array of NumPy, which need not be installed."""
    return type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist")
