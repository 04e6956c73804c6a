"""Checks which interpreter of a process imports the package."""

_REFUSED = (
    "xql_ffi, and datafusion and pyarrow below it, run in the main interpreter of a process and in no "
    "sub-interpreter. Start a process instead: multiprocessing.get_context('spawn')"
)


def check_interpreter() -> None:
    """Refuses a sub-interpreter of Python.

    Raises:
        ImportError: this is none but the main interpreter of its process.
    """
    try:
        import ctypes
    except ImportError as error:
        # Since Python 3.12, ctypes itself is not for sub-interpreters.
        raise ImportError(_REFUSED) from error
    interpreter = ctypes.pythonapi
    interpreter.PyInterpreterState_Get.restype = ctypes.c_void_p
    interpreter.PyInterpreterState_GetID.argtypes = [ctypes.c_void_p]
    interpreter.PyInterpreterState_GetID.restype = ctypes.c_int64
    if interpreter.PyInterpreterState_GetID(interpreter.PyInterpreterState_Get()):
        raise ImportError(_REFUSED)


# pyarrow may wait without end in a sub-interpreter, so that this is to be known before anything else is imported.
check_interpreter()
