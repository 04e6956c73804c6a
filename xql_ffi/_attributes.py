"""Attributes of derivatives in xarray datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from xql_ffi._units import quotient

if TYPE_CHECKING:
    import xarray as xr

Dataset = TypeVar("Dataset", bound="xr.Dataset")


def annotate(dataset: Dataset, derivatives: Mapping[str, tuple[Any, Any]], *, template: Any = None) -> Dataset:
    """Says in the attributes of derivatives what they are derivatives of, and their units.

    xarray-sql gives a column of a result the attributes of the variable that has its name, and no variable has that of
    a derivative. This function gives it a ``long_name``, and ``units`` if both have them:

    >>> import xarray as xr
    >>> result = xr.Dataset({"d_t": ("k", [1.0])})
    >>> source = xr.Dataset({"e": ("k", [0.0], {"units": "Pa"}), "t": ("k", [0.0], {"units": "K"})})
    >>> annotate(result, {"d_t": ("e", "t")}, template=source)["d_t"].attrs
    {'long_name': 'derivative of e with respect to t', 'units': 'Pa K-1'}

    A unit that stands on both sides cancels: a temperature in ``K`` by a humidity in ``kg kg-1`` is in ``K``. A point
    in time, ``hours since 1900-01-01``, has no quotient, and the derivative gets no units.

    Args:
        dataset: what ``to_dataset`` gave.
        derivatives: for each derivative, the function and the variable. Each of both is the name of a variable of the
            datasets, or a pair of a name and its units, for a column that the query computed and that has no units
            yet: ``{"d_t": (("e_s", "Pa"), "t")}``. Those that stand first are known to those that follow, so that a
            second derivative is ``{"d_t": ("e", "t"), "d_t_t": ("d_t", "t")}``.
        template: the dataset that was queried. Names and units are looked up there if ``dataset`` has none.

    Returns:
        The dataset with these attributes. The one that was given stays as it is.

    Raises:
        ValueError: the dataset has no such derivative, or no dataset has a variable of a name.
    """
    annotated: Dataset = dataset.copy()
    for name, (function, variable) in derivatives.items():
        if name not in annotated:
            msg = f"the dataset has no variable {name!r} to annotate, only {_names(annotated)}"
            raise ValueError(msg)
        sources = [source for source in (annotated, template) if source is not None]
        (of, of_units), (by, by_units) = (_described(part, sources) for part in (function, variable))
        attributes = {"long_name": f"derivative of {of} with respect to {by}"}
        if of_units is not None and by_units is not None and (units := quotient(of_units, by_units)) is not None:
            attributes["units"] = units
        annotated[name].attrs.update(attributes)
    return annotated


def _described(part: str | tuple[str, str | None], sources: Sequence[Any]) -> tuple[str, str | None]:
    """Returns the name of a variable and its units."""
    if not isinstance(part, str):
        name, units = part
        return name, units
    found = [source[part].attrs.get("units") for source in sources if part in source]
    if not found:
        known = " and ".join(_names(source) for source in sources)
        msg = (
            f"no dataset has a variable {part!r}, only {known}. Give a column that the query computed with its units, "
            f'({part!r}, "1")'
        )
        raise ValueError(msg)
    return part, next((str(units) for units in found if units is not None), None)


def _names(dataset: Any) -> str:
    return ", ".join(repr(str(name)) for name in dataset.variables)
