"""The differential operators as scalar functions of the ``datafusion`` package."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from datafusion import Expr, ScalarUDF, SessionContext
from datafusion import __version__ as datafusion_version
from datafusion import _internal as datafusion_internal

from xql_ffi import _native, _session
from xql_ffi._engine import warn_without_engine, way_out
from xql_ffi._errors import MissingEngineError
from xql_ffi._expressions import check_expression, shown
from xql_ffi._rules import Rule, checked_rules
from xql_ffi._special import SIGNATURES
from xql_ffi._text.catalog import other_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import CapsuleType

Context = TypeVar("Context", bound=SessionContext)
# The method by which IPython asks objects what they look like.
_SHOWN = "_repr_mimebundle_"


class _Exporter:
    """The exports of the native library for a function."""

    def __init__(self, name: str, rules: Sequence[Rule] = ()) -> None:
        self._functions = _functions(rules)
        self._operator = _native.operator(name, [rule._native() for rule in rules])

    def __datafusion_scalar_udf__(self) -> CapsuleType:
        """Returns the function as an ``FFI_ScalarUDF``.

        Raises:
            MissingEngineError: this ``datafusion`` would read the struct as another one.
        """
        needed, installed = _native.datafusion_version(), datafusion_version
        if installed.partition(".")[0] != str(needed):
            msg = (
                f"grad and the like are no functions of datafusion {installed} in this process. Run statements by "
                f"xql_ffi.sql(ctx, statement), which works with it, or {way_out()}"
            )
            raise MissingEngineError(msg)
        return _native.capsule(self._operator, _native.SCALAR_UDF)


class _SimplifiedExporter(_Exporter):
    """The exports of the native library for an operator, whose calls are simplified."""

    def __datafusion_scalar_udf_simplify__(self) -> CapsuleType:
        """How calls of the function are simplified, as an ``FFI_ScalarUDFSimplify``."""
        return _native.capsule(self._operator, _native.SIMPLIFY)

    def __datafusion_scalar_udf_simplify_functions__(self) -> list[Any]:
        """Returns the functions that calls may be simplified to, besides DataFusion's own."""
        return [function._udf for function in self._functions]


class _Function(_SimplifiedExporter, ScalarUDF):
    """A function of the native library, for `SessionContext.register_udf` and `datafusion.udf`.

    A call returns an expression of the DataFrame API.
    """

    def __init__(self, name: str, rules: Sequence[Rule] = ()) -> None:
        super().__init__(name, rules)
        self._imported = datafusion_internal.ScalarUDF.from_pycapsule(self)

    @property
    def _udf(self) -> Any:
        """The object that ``SessionContext.register_udf`` and calls pass to DataFusion."""
        if _session.is_supported():
            _session.install_registering(2)
        return self._imported

    def __call__(self, *args: Expr) -> Expr:
        """Returns the call of the function with these expressions.

        Raises:
            TypeError: an argument is not an expression.
        """
        for arg in args:
            check_expression(arg, self.name)
        return super().__call__(*args)


class DifferentialOperator(_Function):
    """``grad``, ``jvp`` or ``vjp``, for `SessionContext.register_udf` and `datafusion.udf`.

    A call returns an expression of the DataFrame API.
    """

    def __init__(self, name: str, rules: Iterable[Rule] = ()) -> None:
        """Makes the operator called ``name``, which also differentiates by these rules.

        Raises:
            TypeError: ``rules`` is not a list of rules.
            ValueError: there is no operator of that name, or two rules contradict each other.
        """
        self._name, self._rules = name, checked_rules(rules, name)
        super().__init__(name, self._rules)

    def __xql_ffi_companions__(self) -> list[Any]:
        """What calls become: the tangent where they see through relations, else the operator that knows they do not."""
        return [_companion(name, self._rules) for name in ("tangent", f"analyzed {self._name}")]


@lru_cache(maxsize=128)
def _companion(name: str, rules: tuple[Rule, ...]) -> Any:
    """One function for all operators with these rules, so that they share what a query carries."""
    return datafusion_internal.ScalarUDF.from_pycapsule(_SimplifiedExporter(name, rules))


def _functions(rules: Iterable[Rule]) -> list[ScalarUDF]:
    """Returns the functions of all rules, which call them by name."""
    functions: dict[str, ScalarUDF] = {}
    for rule in rules:
        for function in rule.functions:
            if functions.setdefault(function.name, function) is not function:
                msg = f"two rules have different functions called {function.name}: give one another name"
                raise ValueError(msg)
    return list(functions.values())


def grad_capsule(rules: Iterable[Rule] = ()) -> DifferentialOperator:
    """``grad(expression, column)``: the derivative of the expression by the column.

    Args:
        rules: your own rules, for functions without a rule or in place of theirs.

    Raises:
        TypeError: ``rules`` is not a list of rules.
        ValueError: two rules contradict each other.
    """
    return DifferentialOperator("grad", rules)


def jvp_capsule(rules: Iterable[Rule] = ()) -> DifferentialOperator:
    """``jvp(expression, column, tangent[, column, tangent, ...])``: the directional derivative.

    Args:
        rules: your own rules, for functions without a rule or in place of theirs.

    Raises:
        TypeError: ``rules`` is not a list of rules.
        ValueError: two rules contradict each other.
    """
    return DifferentialOperator("jvp", rules)


def vjp_capsule(rules: Iterable[Rule] = ()) -> DifferentialOperator:
    """``vjp(expression, column, cotangent)``: the cotangent times the derivative by the column.

    Args:
        rules: your own rules, for functions without a rule or in place of theirs.

    Raises:
        TypeError: ``rules`` is not a list of rules.
        ValueError: two rules contradict each other.
    """
    return DifferentialOperator("vjp", rules)


def stop_gradient_capsule() -> ScalarUDF:
    """``stop_gradient(x)``: ``x``, of any type, with derivative 0 wherever a derivative meets it."""
    return _Function("stop_gradient")


def register(ctx: Context, rules: Iterable[Rule] = (), *, functions: bool = False) -> Context:
    """Registers ``grad``, ``jvp``, ``vjp`` and ``stop_gradient`` with a session.

    Warns if the ``datafusion`` of this process does not differentiate, because the engine for 54 is switched off.

    Args:
        ctx: a `datafusion.SessionContext` or a subclass, such as xarray-sql's context.
        rules: your own rules, for functions without a rule or in place of theirs.
        functions: whether the session gets the functions as well that DataFusion lacks: ``erf``, ``lgamma``,
            ``normal_cdf``, ``log1p``, ``softplus`` and so on, and random numbers by seed and keys, ``random_uniform``
            and ``random_normal``. A function of such a name that it has already it keeps.

    Returns:
        The same session.

    Raises:
        TypeError: ``ctx`` is not a session of datafusion, or ``rules`` is not a list of rules.
        ValueError: two rules contradict each other.
        MissingEngineError: this ``datafusion`` cannot have the functions at all.
    """
    if isinstance(ctx, type):
        msg = f"register takes a session, {ctx.__name__}(); {ctx.__name__} is the class"
        raise TypeError(msg)
    if not hasattr(ctx, "register_udf"):
        msg = f"register takes a session of datafusion; {shown(ctx)} is not one. {other_engine(ctx)}"
        raise TypeError(msg)
    rules = checked_rules(rules, "register")
    register_operators(ctx, rules)
    if functions:
        register_special(ctx)
    warn_without_engine("grad, jvp and vjp")
    # A session is printed as all of its configuration, which a notebook would show where this call is the last line.
    if not hasattr(ctx, _SHOWN):
        setattr(ctx, _SHOWN, partial(_shown, type(ctx).__name__))
    return ctx


def register_operators(ctx: SessionContext, rules: Sequence[Rule]) -> None:
    """Registers the operators with these rules, and nothing else."""
    for function in (grad_capsule(rules), jvp_capsule(rules), vjp_capsule(rules), stop_gradient_capsule()):
        ctx.register_udf(function)


def register_special(ctx: SessionContext) -> None:
    """Registers the functions that DataFusion lacks, those whose names are free."""
    taken = set(ctx.udfs())
    for name in SIGNATURES:
        if name not in taken:
            ctx.register_udf(ScalarUDF.from_pycapsule(_Exporter(f"special {name}")))


def _shown(name: str, **_: Any) -> dict[str, str]:
    """Returns what IPython shows for a session of this class."""
    return {"text/plain": f"<{name} with grad, jvp, vjp and stop_gradient>"}
