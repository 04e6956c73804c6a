"""In a sub-interpreter of Python the import is refused, before anything below it waits without end."""

import pytest

from support.processes import run_python

_PROGRAM = """
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
made = interpreters.create()
program = f"import sys; sys.path[:] = {sys.path!r}; import xql_ffi"
if hasattr(interpreters, "exec"):
    print(interpreters.exec(made, program).msg)
else:
    try:
        interpreters.run_string(made, program)
    except interpreters.RunFailedError as error:
        print(error)
import xql_ffi
print(xql_ffi.expand_sql("SELECT grad(x * x, x) AS d FROM (VALUES (1.0)) AS t(x)", {}))
"""


@pytest.mark.parametrize("first", ["", "import xql_ffi"])
def test_a_sub_interpreter_is_refused(first: str) -> None:
    process = run_python(["-c", first + _PROGRAM], engine=True)
    assert process.returncode == 0, process.stderr
    refusal, text = process.stdout.splitlines()
    assert "in no sub-interpreter. Start a process instead" in refusal
    assert text == "SELECT 2.0 * x AS d FROM (VALUES (1.0)) AS t(x)"
