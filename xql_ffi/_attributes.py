"""Attributes of derivatives in xarray datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

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
    {'long_name': 'derivative of e by t', 'units': 'Pa K-1'}

    Args:
        dataset: what ``to_dataset`` gave.
        derivatives: for each derivative, what it is a derivative of and by: the name of a variable each, or for what
            is in no dataset a pair of a name and its units: ``{"d_t": (("e_s", "Pa"), "t")}``.
        template: the dataset that was queried. Units are looked up there if ``dataset`` has none.

    Returns:
        The dataset with these attributes. The one that was given stays as it is.

    Raises:
        ValueError: the dataset has no such variable.
    """
    annotated: Dataset = dataset.copy()
    for name, (function, variable) in derivatives.items():
        if name not in annotated:
            msg = f"the dataset has no variable {name!r} to annotate, only {', '.join(map(repr, map(str, annotated)))}"
            raise ValueError(msg)
        (of, of_units), (by, by_units) = (_described(part, (dataset, template)) for part in (function, variable))
        attributes = {"long_name": f"derivative of {of} by {by}"}
        if of_units and by_units:
            attributes["units"] = _quotient(of_units, by_units)
        annotated[name].attrs.update(attributes)
    return annotated


def _described(part: str | tuple[str, str], sources: tuple[Any, ...]) -> tuple[str, str | None]:
    """The name of a variable and its units."""
    if not isinstance(part, str):
        name, units = part
        return name, units
    found = [source[part].attrs.get("units") for source in sources if source is not None and part in source]
    return part, next((str(units) for units in found if units), None)


def _quotient(of: str, by: str) -> str:
    """Units as UDUNITS reads them."""
    if of == by:
        return "1"
    inverse = f"{by}-1" if by.isalpha() else f"({by})-1"
    return inverse if of == "1" else of if by == "1" else f"{of} {inverse}"
