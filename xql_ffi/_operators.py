"""The differential operators as scalar functions of the ``datafusion`` package."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, TypeVar

from datafusion import Expr, ScalarUDF, SessionContext
from datafusion import _internal as datafusion_internal

from xql_ffi import _plugin

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

Context = TypeVar("Context", bound=SessionContext)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

# A capsule keeps a pointer to its name, so the names have to outlive all capsules.
_UDF = b"datafusion_scalar_udf"
_SIMPLIFY = b"datafusion_scalar_udf_simplify"


class DifferentialOperator(ScalarUDF):
    """``grad``, ``jvp`` or ``vjp``, for `SessionContext.register_udf` and `datafusion.udf`.

    Calling it gives an expression of the DataFrame API.
    """

    def __init__(self, name: str) -> None:
        """Loads the operator called ``name`` from the native library.

        Raises:
            ValueError: the library has no operator of that name.
        """
        self._symbol = name.encode()
        self._udf = datafusion_internal.ScalarUDF.from_pycapsule(self)

    def __call__(self, *args: Expr) -> Expr:
        """The call of the operator with these expressions.

        Raises:
            TypeError: an argument is no expression.
        """
        for arg in args:
            if not isinstance(arg, Expr):
                msg = f"{self.name} takes expressions, and {arg!r} is none: write col({arg!r}) or lit({arg!r})"
                raise TypeError(msg)
        return super().__call__(*args)

    def __datafusion_scalar_udf__(self) -> CapsuleType:
        """The function as an ``FFI_ScalarUDF``."""
        return self._capsule(_plugin.lib.xql_ffi_scalar_udf(self._symbol), _UDF)

    def __datafusion_scalar_udf_simplify__(self) -> CapsuleType:
        """How calls of the function are simplified, as an ``FFI_ScalarUDFSimplify``."""
        return self._capsule(_plugin.lib.xql_ffi_scalar_udf_simplify(self._symbol), _SIMPLIFY)

    def _capsule(self, pointer: object, name: bytes) -> CapsuleType:
        if pointer == _plugin.ffi.NULL:
            msg = f"there is no differential operator called {self._symbol.decode()!r}"
            raise ValueError(msg)
        # The structs are static in the library, so the capsule needs no destructor.
        address = int(_plugin.ffi.cast("uintptr_t", pointer))
        capsule: CapsuleType = _new_capsule(address, name, None)
        return capsule


def grad_capsule() -> DifferentialOperator:
    """``grad(expression, column)``: the derivative of the expression by the column."""
    return DifferentialOperator("grad")


def jvp_capsule() -> DifferentialOperator:
    """``jvp(expression, column, tangent[, column, tangent, ...])``: the directional derivative."""
    return DifferentialOperator("jvp")


def vjp_capsule() -> DifferentialOperator:
    """``vjp(expression, column, cotangent)``: the cotangent times the derivative by the column."""
    return DifferentialOperator("vjp")


def register(ctx: Context) -> Context:
    """Registers ``grad``, ``jvp`` and ``vjp`` with a session.

    Args:
        ctx: a `datafusion.SessionContext` or a subclass, such as xarray-sql's context.

    Returns:
        The same session.
    """
    for operator in (grad_capsule(), jvp_capsule(), vjp_capsule()):
        ctx.register_udf(operator)
    return ctx
