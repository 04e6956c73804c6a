"""Derivatives in SQL: ``grad``, ``jvp``, ``vjp`` and ``stop_gradient`` as functions of a DataFusion session.

>>> from datafusion import SessionContext
>>> import xql_ffi
>>> ctx = xql_ffi.register(SessionContext())
>>> ctx.sql("SELECT grad(sin(x) * x, x) AS d FROM (VALUES (0.0)) AS t(x)").to_pydict()
{'d': [0.0]}
"""

from importlib.metadata import version

from xql_ffi import _interpreter as _interpreter
from xql_ffi import random, testing, xarray
from xql_ffi._attributes import annotate
from xql_ffi._engine import engine_status
from xql_ffi._errors import (
    CovarianceError,
    DifferentiationError,
    HostError,
    MinimumError,
    MissingEngineError,
    MissingRuleError,
    NotNumericError,
    UnsupportedRelationError,
    VariableError,
)
from xql_ffi._explain import Explanation, explain
from xql_ffi._extension import Extension
from xql_ffi._functions import grad, jvp, stop_gradient, vjp
from xql_ffi._gradients import Gradients, gradient, gradients, hvp, value_and_grad
from xql_ffi._jacobians import Hessian, Jacobian, hessian, jacobian
from xql_ffi._objective.derived import Derived
from xql_ffi._objective.factory import objective, propagate
from xql_ffi._objective.function import Objective
from xql_ffi._objective.solution import Solution
from xql_ffi._operators import (
    DifferentialOperator,
    grad_capsule,
    jvp_capsule,
    register,
    stop_gradient_capsule,
    vjp_capsule,
)
from xql_ffi._prepared.prepared import Prepared, prepare
from xql_ffi._products import pullback, pushforward
from xql_ffi._progress import progress
from xql_ffi._progress.events import Step
from xql_ffi._rule_table import rule_table
from xql_ffi._rules import Rule, rule
from xql_ffi._substrait import from_substrait, to_substrait
from xql_ffi._text.expansion import differentiate_sql, expand_sql, sql

__version__ = version("xql-ffi")

__all__ = [
    "CovarianceError",
    "Derived",
    "DifferentialOperator",
    "DifferentiationError",
    "Explanation",
    "Extension",
    "Gradients",
    "Hessian",
    "HostError",
    "Jacobian",
    "MinimumError",
    "MissingEngineError",
    "MissingRuleError",
    "NotNumericError",
    "Objective",
    "Prepared",
    "Rule",
    "Solution",
    "Step",
    "UnsupportedRelationError",
    "VariableError",
    "__version__",
    "annotate",
    "differentiate_sql",
    "engine_status",
    "expand_sql",
    "explain",
    "from_substrait",
    "grad",
    "grad_capsule",
    "gradient",
    "gradients",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "jvp_capsule",
    "objective",
    "prepare",
    "progress",
    "propagate",
    "pullback",
    "pushforward",
    "random",
    "register",
    "rule",
    "rule_table",
    "sql",
    "stop_gradient",
    "stop_gradient_capsule",
    "testing",
    "to_substrait",
    "value_and_grad",
    "vjp",
    "vjp_capsule",
    "xarray",
]


def __dir__() -> list[str]:
    """Lists the public names, for completion, without the modules of the package."""
    return __all__
