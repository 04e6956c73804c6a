"""Units of derivatives, in the syntax of UDUNITS, which the CF conventions take."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What files write where there is no unit.
_DIMENSIONLESS = frozenset(("", "1", "dimensionless", "unitless", "(0 - 1)", "~"))
# What stands before a factor, its name and its exponent: `m2`, `m-2`, `m**-2`, `m^2`.
_FACTOR = re.compile(r"(?P<before>^|\s*[*.·/]\s*|\s+)(?P<name>(?:[^\W\d]|[%°])+)(?:\*\*|\^)?(?P<exponent>[-+]?\d+)?")
# A point in time and a logarithm have no quotient.
_NO_FACTOR = re.compile(r"\b(?:since|from|after|ref|re)\b|@")


def quotient(of: str, by: str) -> str | None:
    """The units of a derivative, from those of the function and of the variable; None if they cannot be written.

    >>> quotient("Pa", "K"), quotient("K", "kg kg**-1"), quotient("K", "m s-1")
    ('Pa K-1', 'K', 'K m-1 s')
    """
    of, by = of.strip(), by.strip()
    if _NO_FACTOR.search(of) or _NO_FACTOR.search(by):
        return None
    if of == by:
        return "1"
    # What files write with `**`, libraries that want it there find there.
    power = "**" if "**" in of + by else ""
    above, below = _factors(of), _factors(by)
    if above is not None and below is not None:
        return _product({name: above.get(name, 0) - below.get(name, 0) for name in above | below}, power)
    inverse = f"({by}){power}-1" if below is None else _product({name: -below[name] for name in below}, power)
    return " ".join(part for part in (of, inverse) if part not in _DIMENSIONLESS)


def _product(factors: Mapping[str, int], power: str) -> str:
    written = [name if exponent == 1 else f"{name}{power}{exponent}" for name, exponent in factors.items() if exponent]
    return " ".join(written) or "1"


def _factors(units: str) -> dict[str, int] | None:
    """Returns the names in a product of units with their exponents; None if it is written in another way."""
    if units in _DIMENSIONLESS:
        return {}
    factors: dict[str, int] = {}
    end = 0
    while end < len(units):
        found = _FACTOR.match(units, end)
        if found is None:
            return None
        sign = -1 if "/" in found["before"] else 1
        factors[found["name"]] = factors.get(found["name"], 0) + sign * int(found["exponent"] or 1)
        end = found.end()
    return factors
