"""Sessions of DataFusion's own wheel, by the extension points that it has since version 55."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import datafusion
from datafusion import ScalarUDF, SessionContext

from xql_ffi import _native
from xql_ffi._planner import planner
from xql_ffi._session_proxy import adopt, twin_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

# What the payloads of the codecs carry in plans of a session.
CODEC = "xql_ffi"

# The rules of DataFusion's optimizer that would rewrite a statement before it is differentiated. The planner applies
# them afterwards. Those that take subqueries apart stay: what they make crosses as bytes, IN and EXISTS do not.
DEFERRED = (
    "optimize_unions",
    "simplify_expressions",
    "replace_distinct_aggregate",
    "eliminate_join",
    "extract_equijoin_predicate",
    "eliminate_duplicated_expr",
    "eliminate_filter",
    "eliminate_cross_join",
    "eliminate_limit",
    "propagate_empty_relation",
    "filter_null_join_keys",
    "eliminate_outer_join",
    "push_down_limit",
    "push_down_filter",
    "single_distinct_aggregation_to_group_by",
    "eliminate_group_by_constant",
    "common_sub_expression_eliminate",
    "extract_leaf_expressions",
    "push_down_leaf_projections",
    "optimize_projections",
)


def is_supported() -> bool:
    """Returns whether sessions of this process' ``datafusion`` have the extension points that the library knows."""
    major = datafusion.__version__.partition(".")[0]
    return _native.has_sessions() and major == str(_native.datafusion_version())


class _Codec:
    """Writes and reads tables, functions and plans as numbers."""

    __datafusion_codec_id__ = CODEC

    def __datafusion_logical_extension_codec__(self, session: Any = None) -> CapsuleType:
        return _native.component("logical codec", _native.LOGICAL_CODEC)

    def __datafusion_physical_extension_codec__(self, session: Any = None) -> CapsuleType:
        return _native.component("physical codec", _native.PHYSICAL_CODEC)


class _CaptureRule:
    """Takes the plans that the session's own planner makes for this package."""

    def __datafusion_physical_optimizer_rule__(self) -> CapsuleType:
        return _native.component("rule", _native.PHYSICAL_RULE)


@functools.lru_cache(maxsize=1)
def _note_functions() -> None:
    """Tells the library which functions are DataFusion's own: those of a new session."""
    new = SessionContext()
    _native.note_functions(new.__datafusion_task_context_provider__())


class Differentiating:
    """Lets a session differentiate its statements: codecs, a planner, a physical rule."""

    def __datafusion_session_components__(self, ctx: SessionContext) -> Any:
        """Returns the codecs, for `SessionContext.with_extensions`."""
        codec = (_Codec(),)
        components: Any = datafusion.extensions.SessionExtensionComponents  # type: ignore[attr-defined,unused-ignore]
        return components(logical_extension_codecs=codec, physical_extension_codecs=codec)

    def __datafusion_session_planner__(self, ctx: SessionContext, fallback: CapsuleType) -> CapsuleType:
        """Returns a planner in front of that which the session has, for `SessionContext.with_extensions`."""
        _note_functions()
        made = planner(ctx, fallback)
        for rule in DEFERRED:
            ctx.remove_optimizer_rule(rule)
        ctx.add_physical_optimizer_rule(_CaptureRule())
        return made


def install(ctx: Any) -> None:
    """Lets a session differentiate its statements, if it does not do so yet."""
    if not _native.is_registered(ctx.session_id()):
        twin = twin_of(ctx)
        # All handles are of one session; the codecs belong to a handle. Functions in Python cross uncopied.
        crossing = ctx.with_python_udf_inlining(enabled=False).with_extensions(Differentiating())
        adopt(ctx, crossing, twin)


@functools.lru_cache(maxsize=1)
def _scratch() -> Any:
    """Returns a session of this package's own, which writes functions."""
    ctx: Any = SessionContext()
    return ctx.with_python_udf_inlining(enabled=False).with_extensions(Differentiating())


def function(function: ScalarUDF) -> Any:
    """Returns a function as the library calls it.

    Raises:
        ValueError: it cannot be handed over.
    """
    return _native.function(_scratch().session_id(), function().to_bytes(_scratch()))


def install_registering(depth: int) -> None:
    """Does so for the session whose ``register_udf`` reads a function this many frames above, if one does.

    ``ctx.register_udf(grad_capsule())`` says nothing else of the session to the function.
    """
    frame = sys._getframe(depth)
    if frame.f_code.co_name == "register_udf" and isinstance(ctx := frame.f_locals.get("self"), SessionContext):
        install(ctx)
