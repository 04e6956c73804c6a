"""The units of a derivative, in the forms in which files write units."""

import pytest

from xql_ffi._units import quotient


@pytest.mark.parametrize(
    ("of", "by", "expected"),
    [
        ("m", "s", "m s-1"),
        ("m s-1", "s", "m s-2"),
        ("m/s", "m", "s-1"),
        ("m", "m", "1"),
        ("1", "K", "K-1"),
        ("K", "1", "K"),
        ("kg m**-3", "K", "kg m**-3 K**-1"),
        ("m^2", "m", "m"),
        ("%", "degC", "% degC-1"),
        ("W.m-2", "K", "W m-2 K-1"),
        ("days since 2000-01-01", "s", None),
        ("m", "lg(re 1 mW)", None),
        ("m", "10 s", "m (10 s)-1"),
        ("10 m", "s", "10 m s-1"),
    ],
)
def test_quotient(of: str, by: str, expected: str | None) -> None:
    assert quotient(of, by) == expected
