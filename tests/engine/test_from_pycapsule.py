"""``ScalarUDF.from_pycapsule`` on objects that export too little, or what does not fit."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest
from datafusion import ScalarUDF, udf
from datafusion._internal import ScalarUDF as InternalScalarUDF  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = b"datafusion_scalar_udf_simplify"


class Versions(ctypes.Structure):
    """The first fields of an ``FFI_ScalarUDFSimplify``, and all there is of it."""

    _fields_ = (("abi_version", ctypes.c_uint64), ("datafusion_major", ctypes.c_uint64))


def capsule(versions: Versions, name: bytes = NAME) -> object:
    """Show the versions in a capsule."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    result: object = new(ctypes.addressof(versions), name, None)
    return result


class Exporter:
    """Exports a function, which must not be looked at, and beside it what it is told to."""

    def __init__(self, export: Callable[[], object]) -> None:
        self.export = export

    def __datafusion_scalar_udf__(self) -> object:
        raise AssertionError

    def __datafusion_scalar_udf_simplify__(self) -> object:
        return self.export()


@pytest.mark.parametrize(
    ("abi_version", "datafusion_major", "message"),
    [
        (2, 54, "version 2 of the ABI; this library has version 1"),
        (0, 54, "version 0 of the ABI; this library has version 1"),
        (1, 55, "for DataFusion 55; this library has DataFusion 54"),
    ],
)
def test_another_version_is_refused(abi_version: int, datafusion_major: int, message: str) -> None:
    versions = Versions(abi_version, datafusion_major)
    with pytest.raises(RuntimeError, match=message):
        udf(Exporter(lambda: capsule(versions)))


def test_another_name_is_refused() -> None:
    versions = Versions(1, 54)
    name = b"another"
    with pytest.raises(ValueError, match=r"not named .*datafusion_scalar_udf_simplify"):
        udf(Exporter(lambda: capsule(versions, name)))


def test_what_is_no_capsule_is_refused() -> None:
    with pytest.raises(TypeError, match=r"__datafusion_scalar_udf_simplify__\(\) gave .*int.*, not a capsule"):
        udf(Exporter(lambda: 1))


def test_exceptions_of_the_exporter_come_through() -> None:
    def fail() -> object:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        udf(Exporter(fail))


OUTCOMES = """
import datafusion

def outcome(*args, **kwargs):
    try:
        return datafusion._internal.ScalarUDF.from_pycapsule(*args, **kwargs)
    except BaseException as error:
        return type(error).__name__, str(error)

class Exporter:
    def __init__(self, exported):
        self.exported = exported
    def __datafusion_scalar_udf__(self):
        return self.exported

class OnlySimplify:
    def __datafusion_scalar_udf_simplify__(self):
        raise AssertionError

class Failing:
    def __datafusion_scalar_udf__(self):
        raise KeyError("mine")
    @property
    def __datafusion_scalar_udf_simplify__(self):
        raise AttributeError

print(outcome(1))
print(outcome(OnlySimplify()))
print(outcome(Exporter(1)))
print(outcome(func=Exporter(None)))
print(outcome(Failing()))
"""


def test_all_else_is_as_on_the_stock_module(run: Callable[..., str]) -> None:
    assert run(OUTCOMES) == run(OUTCOMES, XQL_FFI_ENGINE="0")


def test_wrong_arguments_are_a_type_error() -> None:
    for args, kwargs in [((), {}), ((1, 2), {}), ((1,), {"func": 1}), ((), {"other": 1})]:
        with pytest.raises(TypeError):
            InternalScalarUDF.from_pycapsule(*args, **kwargs)


def test_python_functions_are_untouched() -> None:
    import pyarrow as pa

    double = udf(lambda array: array, [pa.float64()], pa.float64(), "immutable", name="same")
    assert isinstance(double, ScalarUDF)
    assert double.name == "same"
