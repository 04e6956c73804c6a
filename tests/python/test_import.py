"""What `import xql_ffi` alone gives."""

from support.processes import json_of

_LOADED = """
import json, sys, datafusion, pyarrow, cffi
before = set(sys.modules)
import xql_ffi
later = {name.partition(".")[0] for name in set(sys.modules) - before}
found = [xql_ffi.testing.verify_grad.__name__, sorted(later - set(sys.stdlib_module_names))]
print(json.dumps(found))
"""


def test_testing_comes_with_it_and_nothing_heavy_does() -> None:
    name, packages = json_of(["-c", _LOADED], engine=True)
    assert name == "verify_grad"
    assert set(packages) <= {"xql_ffi", "_cffi_backend", "cffi", "pyarrow", "pycparser"}


def test_completion_shows_what_is_public() -> None:
    """`dir` of the package, after everything of it has been used, has no module that it is written in."""
    shown = json_of(["-c", "import json, xql_ffi; xql_ffi.objective; print(json.dumps(dir(xql_ffi)))"], engine=True)
    assert [name for name in shown if name.startswith("_")] == ["__version__"]
    assert {"grad", "objective", "testing", "VariableError"} <= set(shown)
