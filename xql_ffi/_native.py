"""What the native library makes: handles that free themselves, and its errors as exceptions."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from xql_ffi import _plugin
from xql_ffi._errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import CapsuleType

_ffi, _lib = _plugin.ffi, _plugin.lib

SCALAR_UDF = b"datafusion_scalar_udf"
SIMPLIFY = b"datafusion_scalar_udf_simplify"
_STRUCTS = {SCALAR_UDF: _lib.xql_ffi_scalar_udf, SIMPLIFY: _lib.xql_ffi_scalar_udf_simplify}

# Capsules and sessions may outlive the module: they need the library, and capsules only point to their names.
for _needed in (_lib, SCALAR_UDF, SIMPLIFY):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_needed))

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_set_context = ctypes.pythonapi.PyCapsule_SetContext
_set_context.argtypes = [ctypes.py_object, ctypes.c_void_p]
_get_context = _ffi.cast("void *(*)(void *)", ctypes.cast(ctypes.pythonapi.PyCapsule_GetContext, ctypes.c_void_p).value)


def rule(signature: str, partials: Sequence[str], functions: Sequence[str], *, strict: bool) -> Any:
    """A rule, checked.

    Raises:
        ValueError: the rule is wrong; the message shows what and what to do.
    """
    error = _ffi.new("char **")
    partial_texts, function_texts = [text(sql) for sql in partials], [text(name) for name in functions]
    handle = _lib.xql_ffi_rule_new(
        text(signature),
        _ffi.new("char *[]", partial_texts),
        len(partial_texts),
        _ffi.new("char *[]", function_texts),
        len(function_texts),
        strict,
        error,
    )
    return _owned(handle, _lib.xql_ffi_rule_free, error)


def operator(name: str, rules: Sequence[Any]) -> Any:
    """The differential operator of this name with these rules.

    Raises:
        ValueError: there is no such operator, or two rules are for one function.
    """
    error = _ffi.new("char **")
    handle = _lib.xql_ffi_operator_new(text(name), _ffi.new("xql_ffi_rule *[]", rules), len(rules), error)
    return _owned(handle, _lib.xql_ffi_operator_free, error)


def datafusion_version() -> int:
    """The major version of ``datafusion`` that can import the struct of an operator."""
    return int(_lib.xql_ffi_datafusion_version())


def capsule(operator: Any, name: bytes) -> CapsuleType:
    """A capsule with the struct of an operator that goes by this name. It may outlive the operator."""
    struct = _STRUCTS[name](operator)
    destructor = _ffi.addressof(_lib, "xql_ffi_capsule_destructor")
    new: CapsuleType = _new_capsule(_address(struct), name, _address(destructor))
    _set_context(new, _address(_lib.xql_ffi_capsule_context(operator, _get_context)))
    return new


def _address(pointer: Any) -> int:
    return int(_ffi.cast("uintptr_t", pointer))


def text(sql: str) -> Any:
    """A text as the native library takes it.

    Raises:
        ValueError: it has a NUL character.
    """
    if "\0" in sql:
        msg = f"{sql!r} has a NUL character, which SQL does not know"
        raise ValueError(msg)
    return _ffi.new("char[]", sql.encode())


def taken(string: Any) -> str:
    """A text of the native library, which is freed there."""
    made: str = _ffi.string(string).decode()
    _lib.xql_ffi_string_free(string)
    return made


def _owned(handle: Any, free: Any, error: Any) -> Any:
    if handle == _ffi.NULL:
        message = taken(error[0])
        raise translated(message) or ValueError(message)
    return _ffi.gc(handle, free)
