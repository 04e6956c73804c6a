"""Calls the native library: handles that free themselves, and errors as exceptions."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from xql_ffi import _library
from xql_ffi._errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import CapsuleType

_ffi, _lib = _library.ffi, _library.lib

SCALAR_UDF = b"datafusion_scalar_udf"
SIMPLIFY = b"datafusion_scalar_udf_simplify"
LOGICAL_CODEC = b"datafusion_logical_extension_codec"
PHYSICAL_CODEC = b"datafusion_physical_extension_codec"
PHYSICAL_RULE = b"datafusion_physical_optimizer_rule"
PLANNER = b"datafusion_query_planner"
TABLE = b"datafusion_table_provider"
# What a component is made of, by the names of its parts.
_PARTS = {
    "session": b"datafusion_task_context_provider",
    "logical": LOGICAL_CODEC,
    "physical": PHYSICAL_CODEC,
    "fallback": PLANNER,
}
_STRUCTS = {SCALAR_UDF: _lib.xql_ffi_scalar_udf, SIMPLIFY: _lib.xql_ffi_scalar_udf_simplify}

# Capsules and sessions may outlive the module: they need the library, and capsules only point to their names.
for _needed in (_lib, SCALAR_UDF, SIMPLIFY, LOGICAL_CODEC, PHYSICAL_CODEC, PHYSICAL_RULE, PLANNER, TABLE):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_needed))

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_set_context = ctypes.pythonapi.PyCapsule_SetContext
_set_context.argtypes = [ctypes.py_object, ctypes.c_void_p]
_get_context = _ffi.cast("void *(*)(void *)", ctypes.cast(ctypes.pythonapi.PyCapsule_GetContext, ctypes.c_void_p).value)


def rule(signature: str, partials: Sequence[str], functions: Sequence[str], *, strict: bool) -> Any:
    """Returns a rule, checked.

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


def rule_calling(signature: str, partials: Sequence[str], functions: Sequence[Any], *, strict: bool) -> Any:
    """Returns a rule whose partial derivatives call these functions of a session, checked.

    Raises:
        ValueError: the rule is wrong; the message shows what and what to do.
    """
    error = _ffi.new("char **")
    texts = [text(sql) for sql in partials]
    listed = (_ffi.new("char *[]", texts), len(texts), _ffi.new("xql_ffi_function *[]", functions), len(functions))
    made = _owned(_lib.xql_ffi_rule_calling(text(signature), *listed, error), _lib.xql_ffi_rule_free, error)
    return _ffi.gc(_lib.xql_ffi_rule_strict(made), _lib.xql_ffi_rule_free) if strict else made


def function(session: str, call: bytes) -> Any:
    """Returns the function that a call of it calls, which the session with this identifier has written.

    Raises:
        ValueError: it cannot be read.
    """
    error = _ffi.new("char **")
    made = _lib.xql_ffi_function_new(text(session), _ffi.from_buffer(call), len(call), error)
    return _owned(made, _lib.xql_ffi_function_free, error)


def operator(name: str, rules: Sequence[Any]) -> Any:
    """Returns the differential operator of this name with these rules.

    Raises:
        ValueError: there is no such operator, or two rules are for one function.
    """
    error = _ffi.new("char **")
    handle = _lib.xql_ffi_operator_new(text(name), _ffi.new("xql_ffi_rule *[]", rules), len(rules), error)
    return _owned(handle, _lib.xql_ffi_operator_free, error)


def datafusion_version() -> int:
    """Returns the major version of ``datafusion`` that can import the struct of an operator."""
    return int(_lib.xql_ffi_datafusion_version())


def capsule(operator: Any, name: bytes) -> CapsuleType:
    """Returns a capsule with the struct of an operator that goes by this name. It may outlive the operator."""
    return _capsule(_STRUCTS[name](operator), name, _lib.xql_ffi_capsule_context(operator, _get_context))


def has_sessions() -> bool:
    """Returns whether the library has components for sessions: that for DataFusion 54 has none."""
    try:
        return bool(_lib.xql_ffi_component_new)
    except (AttributeError, _ffi.error):
        return False


def component(kind: str, name: bytes, **parts: CapsuleType) -> CapsuleType:
    """Returns a capsule with a component of a session, made of these capsules, whose struct goes by this name.

    Raises:
        ValueError: a capsule is another one than it should be.
    """
    error = _ffi.new("char **")
    given = [
        _ffi.cast("void *", _get_pointer(parts[part], wanted) if part in parts else 0)
        for part, wanted in _PARTS.items()
    ]
    made = _owned(_lib.xql_ffi_component_new(text(kind), *given, error), _lib.xql_ffi_component_free, error)
    return _capsule_of_component(made, name)


def _capsule_of_component(made: Any, name: bytes) -> CapsuleType:
    struct = _lib.xql_ffi_component_struct(made)
    return _capsule(struct, name, _lib.xql_ffi_component_context(made, _get_context))


def plan_statement(
    session: str, sql: str, scan: Callable[[str], bytes | None], *, shares_ctes: bool, values: bytes = b""
) -> tuple[str, str, CapsuleType] | None:
    """What the session with this identifier is to plan in the place of a statement, if the library plans it.

    It plans what reads a relation several times, which the session would write out for each.

    Args:
        session: the identifier of a registered session.
        sql: the statement.
        scan: gives the plan of the table of a name as the session writes it, or nothing if there is no such table.
        shares_ctes: whether what it reads several times is computed once even without a derivative.
        values: those of its parameters, as an Arrow stream of one row, if it has some.

    Returns:
        The other statement, the name of a table that it reads, and a capsule with the table; nothing if the session is
        to plan the statement itself.

    Raises:
        ValueError: the statement cannot be planned.
    """
    error = _ffi.new("char **")
    made = _lib.xql_ffi_statement_new(text(session), text(sql), error)
    if made == _ffi.NULL and error[0] == _ffi.NULL:
        return None
    statement = _owned(made, _lib.xql_ffi_statement_free, error)
    place = 0
    while (table := _lib.xql_ffi_statement_table(statement, place)) != _ffi.NULL:
        if plan := scan(_ffi.string(table).decode()):
            _lib.xql_ffi_statement_scan(statement, place, _ffi.from_buffer(plan), len(plan))
        place += 1
    if values and not _lib.xql_ffi_statement_values(statement, _ffi.from_buffer(values), len(values), error):
        raise ValueError(taken(error[0]))
    made = _lib.xql_ffi_statement_plan(statement, shares_ctes, error)
    if made == _ffi.NULL and error[0] == _ffi.NULL:
        return None
    component = _owned(made, _lib.xql_ffi_component_free, error)
    sql, name = (_ffi.string(_lib.xql_ffi_statement_of_host(statement, of_name)).decode() for of_name in (False, True))
    return sql, name, _capsule_of_component(component, TABLE)


def note_functions(new_session: CapsuleType) -> None:
    """Tells the library that the functions of this session are DataFusion's own.

    Raises:
        ValueError: the session cannot be asked.
    """
    error = _ffi.new("char **")
    if not _lib.xql_ffi_note_functions(_ffi.cast("void *", _get_pointer(new_session, _PARTS["session"])), error):
        raise ValueError(taken(error[0]))


def is_planner_of(planner: CapsuleType, session: str) -> bool:
    """Returns whether this planner is that of the library by which the session with this identifier differentiates."""
    return bool(_lib.xql_ffi_is_planner_of(_ffi.cast("void *", _get_pointer(planner, PLANNER)), text(session)))


def has_other_planner(session: str) -> bool:
    """Returns whether a planner of another library is behind that of the registered session with this identifier."""
    return bool(_lib.xql_ffi_has_other_planner(text(session)))


def shares_ctes(session: str) -> bool:
    """Whether what several places read is computed once in all statements of the session with this identifier."""
    return bool(_lib.xql_ffi_shares_ctes(text(session)))


def with_materialization(sql: str) -> str:
    """Returns a statement in which DataFusion reads what its common table expressions say with AS MATERIALIZED."""
    made = _lib.xql_ffi_with_materialization(text(sql))
    return sql if made == _ffi.NULL else taken(made)


def is_registered(session: str) -> bool:
    """Returns whether the session with this identifier is registered."""
    return bool(_lib.xql_ffi_is_registered(text(session)))


def set_option(session: str, key: str, value: str) -> None:
    """Sets an option ``xql.*`` of the session with this identifier.

    Raises:
        ValueError: there is no such option, or it does not take the value.
    """
    error = _ffi.new("char **")
    if not _lib.xql_ffi_set_option(text(session), text(key), text(value), error):
        raise ValueError(taken(error[0]))


def note_statement(session: str, sql: str) -> None:
    """Tells the planner of the session with this identifier a statement, whose names it will meet in plans.

    Raises:
        ValueError: the session is not registered.
    """
    error = _ffi.new("char **")
    if not _lib.xql_ffi_note_statement(text(session), text(sql), error):
        raise ValueError(taken(error[0]))


def optimized(session: str, plan: bytes) -> bytes:
    """Returns the plan of a statement, differentiated and optimized, both as this session writes and reads them.

    Raises:
        ValueError: the session is not registered, or a derivative cannot be taken.
    """
    error = _ffi.new("char **")
    made = _lib.xql_ffi_plan_optimized(text(session), _ffi.from_buffer(plan), len(plan), error)
    owned = _owned(made, _lib.xql_ffi_plan_free, error)
    size = _ffi.new("uintptr_t *")
    return bytes(_ffi.buffer(_lib.xql_ffi_plan_bytes(owned, size), size[0]))


def shown(session: str, plan: bytes) -> str:
    """The plan of a statement as EXPLAIN shows it before it is differentiated, of the plan as this session writes it.

    Raises:
        ValueError: the session is not registered, or the plan cannot be read.
    """
    error = _ffi.new("char **")
    made = _lib.xql_ffi_plan_shown(text(session), _ffi.from_buffer(plan), len(plan), error)
    if made == _ffi.NULL:
        raise ValueError(taken(error[0]))
    return taken(made)


def crossings() -> int:
    """Returns how many tables, functions and plans are on their way between a session and the library."""
    return int(_lib.xql_ffi_crossings())


def _capsule(struct: Any, name: bytes, context: Any) -> CapsuleType:
    destructor = _ffi.addressof(_lib, "xql_ffi_capsule_destructor")
    new: CapsuleType = _new_capsule(_address(struct), name, _address(destructor))
    _set_context(new, _address(context))
    return new


def _address(pointer: Any) -> int:
    return int(_ffi.cast("uintptr_t", pointer))


def text(sql: str) -> Any:
    """Returns a text as the native library takes it.

    Raises:
        ValueError: it has a NUL character.
    """
    if "\0" in sql:
        msg = f"{sql!r} has a NUL character, which SQL does not know"
        raise ValueError(msg)
    return _ffi.new("char[]", sql.encode())


def taken(string: Any) -> str:
    """Returns a text of the native library, which is freed there."""
    made: str = _ffi.string(string).decode()
    _lib.xql_ffi_string_free(string)
    return made


def _owned(handle: Any, free: Any, error: Any) -> Any:
    if handle == _ffi.NULL:
        message = taken(error[0])
        raise translated(message) or ValueError(message)
    return _ffi.gc(handle, free)
