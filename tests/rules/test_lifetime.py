"""Rules, operators, capsules and sessions that outlive one another, and memory that is given back."""

import gc
import resource
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from datafusion import ScalarUDF, SessionContext
from datafusion import _internal as datafusion_internal

from support.functions import scalar
from support.processes import run_python
from xql_ffi import DifferentialOperator, grad_capsule, register, rule

F = scalar("f", lambda x: x)


def made(factor: int = 2) -> DifferentialOperator:
    return grad_capsule([rule("f(x)", f"{factor} * g(x)", functions=[scalar("g", lambda x: x)])])


def slope(ctx: SessionContext) -> list[float]:
    found: list[float] = ctx.sql("SELECT grad(f(x), x) AS d FROM (VALUES (5.0)) AS t(x)").to_pydict()["d"]
    return found


def test_the_operator_is_dropped() -> None:
    ctx = SessionContext()
    ctx.register_udf(F)
    ctx.register_udf(made())
    gc.collect()
    for _ in range(100):
        made(3)
    gc.collect()
    assert slope(ctx) == [10.0]


def test_the_capsules_outlive_the_operator() -> None:
    """What they point to is not freed with the operator, and others do not take its place."""

    class Capsules:
        def __init__(self) -> None:
            operator = made()
            self.udf = operator.__datafusion_scalar_udf__()
            self.simplify = operator.__datafusion_scalar_udf_simplify__()
            self.functions = operator.__datafusion_scalar_udf_simplify_functions__()

        def __datafusion_scalar_udf__(self) -> object:
            return self.udf

        def __datafusion_scalar_udf_simplify__(self) -> object:
            return self.simplify

        def __datafusion_scalar_udf_simplify_functions__(self) -> object:
            return self.functions

    capsules = Capsules()
    gc.collect()
    others = [made(3) for _ in range(200)]
    ctx = SessionContext()
    ctx.register_udf(F)
    ctx.register_udf(ScalarUDF._from_internal(datafusion_internal.ScalarUDF.from_pycapsule(capsules)))
    del capsules, others
    gc.collect()
    assert slope(ctx) == [10.0]


def test_capsules_that_are_never_imported() -> None:
    operator = made()
    kept = [operator.__datafusion_scalar_udf__() for _ in range(100)]
    kept += [operator.__datafusion_scalar_udf_simplify__() for _ in range(100)]
    del operator
    gc.collect()
    assert len({id(capsule) for capsule in kept}) == 200


def test_a_capsule_dies_while_an_exception_is_raised() -> None:
    def fail() -> None:
        capsule = made().__datafusion_scalar_udf__()
        raise KeyError(id(capsule))

    for _ in range(100):
        with pytest.raises(KeyError):
            fail()


def test_frames_and_sessions_in_any_order() -> None:
    frames = []
    for factor in range(1, 30):
        ctx = SessionContext()
        ctx.register_udf(F)
        ctx.register_udf(made(factor))
        frames.append(ctx.sql("SELECT grad(f(x), x) AS d FROM (VALUES (5.0)) AS t(x)"))
        del ctx
    gc.collect()
    assert [frame.to_pydict()["d"][0] for frame in reversed(frames)] == [5.0 * factor for factor in range(29, 0, -1)]


def test_threads() -> None:
    barrier = threading.Barrier(8)

    def work(factor: int) -> list[float]:
        barrier.wait()
        ctx = SessionContext()
        ctx.register_udf(F)
        for other in range(20):
            ctx.register_udf(made(other))
        ctx.register_udf(made(factor))
        return slope(ctx)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [[5.0 * factor] for factor in range(8)]


def _resident() -> int:
    """Memory of this process, in bytes."""
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - a path object would be one more allocation
        return int(statm.read().split()[1]) * resource.getpagesize()


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
# A rule with this partial derivative takes some 50 KB.
PARTIAL = " + ".join(f"x * {number}" for number in range(50))
RULE = rule("f(x)", PARTIAL)


def _rule() -> None:
    rule("f(x)", PARTIAL)


def _wrong_rule() -> None:
    # The message shows all of it.
    with pytest.raises(ValueError, match="no z here"):
        rule("f(x)", f"z /* {'and more ' * 400}*/")


def _operator() -> None:
    grad_capsule([RULE])


def _session() -> None:
    register(SessionContext(), rules=[RULE]).deregister_udf("jvp")


@LINUX
@pytest.mark.parametrize(
    ("make", "times", "most"),
    [(_rule, 5000, 16), (_wrong_rule, 5000, 16), (_operator, 5000, 16), (_session, 100, 40)],
    ids=["rules", "wrong_rules", "operators", "sessions"],
)
def test_memory_is_given_back(make: Callable[[], None], times: int, most: int) -> None:
    """Thousands take fewer megabytes than they would if they leaked."""
    for _ in range(times // 10):
        make()
    gc.collect()
    before = _resident()
    for _ in range(times):
        make()
    gc.collect()
    assert _resident() - before < most << 20


@LINUX
def test_capsules_give_back_the_operators_that_they_outlive() -> None:
    def resident_with_capsules() -> int:
        capsules = [grad_capsule([RULE]).__datafusion_scalar_udf__() for _ in range(2000)]
        gc.collect()
        found = _resident()
        capsules.clear()
        gc.collect()
        return found

    before = _resident()
    alive = resident_with_capsules() - before
    assert alive > 40 << 20
    # The library may keep what is free for itself. Then the next ones take it.
    again = [resident_with_capsules() - before for _ in range(3)]
    assert max(again) < 1.5 * alive


_AT_EXIT = """
import builtins, ctypes, sys
from datafusion import SessionContext
from xql_ffi import grad_capsule, rule
operator = grad_capsule([rule("exp(x)", "2 * Ω")])
ctx = SessionContext()
ctx.register_udf(operator)
frame = ctx.sql("SELECT grad(exp(x), x) AS d FROM (VALUES (0.0)) AS t(x)")
print(frame.to_pydict())
builtins.kept = [operator.__datafusion_scalar_udf__(), operator.__datafusion_scalar_udf_simplify__(), ctx, frame]
sys.kept = operator
"""

_CAPSULES_ALONE = """
import gc, sys
from datafusion import SessionContext, _internal
import xql_ffi

class Exporter:
    def __init__(self, operator):
        for name in ("__datafusion_scalar_udf__", "__datafusion_scalar_udf_simplify__"):
            setattr(self, name, lambda capsule=getattr(operator, name)(): capsule)

exporter = Exporter(xql_ffi.grad_capsule([xql_ffi.rule("exp(x)", "2 * Ω")]))
# All else of the package goes, and what takes the place of its memory must not matter.
for name in [name for name in sys.modules if name.startswith(("xql_ffi.", "xql_ffi"))]:
    vars(sys.modules.pop(name)).clear()
del xql_ffi
gc.collect()
others = [bytes([number % 256]) * (number % 4096) for number in range(20_000)]
ctx = SessionContext()
ctx.ctx.register_udf(_internal.ScalarUDF.from_pycapsule(exporter))
del exporter
gc.collect()
print(ctx.sql("SELECT grad(exp(x), x) AS d FROM (VALUES (0.0)) AS t(x)").to_pydict())
"""

_NEVER_DESTROYED = """
import ctypes, threading
from xql_ffi import grad_capsule
operator = grad_capsule()
for capsule in (operator.__datafusion_scalar_udf__(), operator.__datafusion_scalar_udf_simplify__()):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(capsule))
started = threading.Event()

def wait(capsule):
    started.set()
    threading.Event().wait()

threading.Thread(target=wait, args=(operator.__datafusion_scalar_udf__(),), daemon=True).start()
started.wait()
print("ends")
"""

_DESTROYED_LAST = """
import os, sys
from xql_ffi import grad_capsule

class Last:
    def __init__(self):
        self.capsules = [grad_capsule().__datafusion_scalar_udf__() for _ in range(10)]
    def __del__(self, write=os.write):
        self.capsules.clear()
        write(1, b"ends\\n")

sys.last = Last()
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (_AT_EXIT, "{'d': [2.0]}"),
        (_CAPSULES_ALONE, "{'d': [2.0]}"),
        (_NEVER_DESTROYED, "ends"),
        (_DESTROYED_LAST, "ends"),
    ],
    ids=["everything_alive", "capsules_alone", "never_destroyed", "destroyed_last"],
)
def test_the_interpreter_ends(program: str, printed: str) -> None:
    """With capsules that outlive the operator, the package, or the interpreter."""
    process = run_python(["-c", program], engine=True)
    assert (process.returncode, process.stdout, process.stderr) == (0, f"{printed}\n", "")


def test_capsules_die_in_other_threads() -> None:
    operator = made()
    capsules = [operator.__datafusion_scalar_udf__() for _ in range(400)]
    del operator
    parts = [capsules[start::4] for start in range(4)]
    capsules.clear()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(list.clear, parts))


def test_null_handles_are_refused() -> None:
    """The C interface, called by something other than this package."""
    from xql_ffi._library import ffi, lib

    def message(error: object) -> str:
        text: str = ffi.string(error[0]).decode()  # type: ignore[index]
        lib.xql_ffi_string_free(error[0])  # type: ignore[index]
        return text

    error = ffi.new("char **")
    null = ffi.NULL
    text = ffi.new("char[]", b"f(x)")
    assert lib.xql_ffi_rule_new(null, null, 0, null, 0, False, error) == null
    assert "a string is missing" in message(error)
    assert lib.xql_ffi_rule_new(text, null, 1, null, 0, False, error) == null
    assert "1 items are missing" in message(error)
    assert lib.xql_ffi_rule_new(text, ffi.new("char *[]", [null]), 1, null, 0, False, error) == null
    assert "a string is missing" in message(error)
    assert lib.xql_ffi_rule_new(ffi.new("char[]", b"f(\xff)"), null, 0, null, 0, False, error) == null
    assert "is not UTF-8" in message(error)
    assert lib.xql_ffi_rule_new(text, null, 0, null, 0, False, null) == null
    grad = ffi.new("char[]", b"grad")
    assert lib.xql_ffi_operator_new(grad, ffi.new("xql_ffi_rule *[]", [null]), 1, error) == null
    assert "a rule is missing" in message(error)
    assert lib.xql_ffi_operator_new(text, null, 0, error) == null
    assert "no differential operator called" in message(error)
    assert lib.xql_ffi_scalar_udf(null) == null
    assert lib.xql_ffi_scalar_udf_simplify(null) == null
    assert lib.xql_ffi_capsule_context(null, null) == null
    lib.xql_ffi_capsule_destructor(null)
    lib.xql_ffi_rule_free(null)
    lib.xql_ffi_operator_free(null)
    lib.xql_ffi_string_free(null)
