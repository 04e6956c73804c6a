"""Derivatives as an extension of a session, by DataFusion's own idiom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from datafusion import SessionContext

from xql_ffi import _session
from xql_ffi._errors import MissingEngineError
from xql_ffi._operators import register_operators, register_special
from xql_ffi._rules import Rule, checked_rules
from xql_ffi._session_proxy import adopt, twin_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType


class Extension:
    """``grad``, ``jvp``, ``vjp`` and ``stop_gradient`` for ``SessionContext().with_extensions(...)`` of DataFusion 55.

    Args:
        rules: your own rules, for functions without a rule or in place of theirs.
        functions: whether the session gets the functions as well that DataFusion lacks, as by `register`.

    Raises:
        TypeError: ``rules`` is not a list of rules.
        MissingEngineError: this ``datafusion`` has no such extensions.
    """

    def __init__(self, rules: Iterable[Rule] = (), *, functions: bool = False) -> None:
        self._rules = checked_rules(rules, "Extension")
        self._has_functions = functions
        if not _session.is_supported():
            msg = "xql_ffi.Extension is for datafusion 55. On this one, xql_ffi.register(ctx) does the same"
            raise MissingEngineError(msg)
        self._differentiating = _session.Differentiating()

    def __datafusion_session_components__(self, ctx: SessionContext) -> Any:
        """Returns the codecs of the session."""
        return self._differentiating.__datafusion_session_components__(ctx)

    def __datafusion_session_planner__(self, ctx: SessionContext, fallback: CapsuleType) -> CapsuleType:
        """Returns the planner of the session, which has the functions then."""
        twin = twin_of(ctx)
        planner = self._differentiating.__datafusion_session_planner__(ctx, fallback)
        register_operators(ctx, self._rules)
        if self._has_functions:
            register_special(ctx)
        # Planners of other extensions are installed with this one.
        adopt(ctx, ctx, twin, has_all_planners=False)
        return planner
