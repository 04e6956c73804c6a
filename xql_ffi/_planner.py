"""The query planner of this package in front of those that a session has."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from xql_ffi import _native

if TYPE_CHECKING:
    from datafusion import SessionContext
    from typing_extensions import CapsuleType

_PUTTING = threading.Lock()


def planner(ctx: SessionContext, fallback: CapsuleType) -> CapsuleType:
    """Returns a planner that differentiates the statements of a session, and leaves the rest to another planner.

    Args:
        ctx: the handle of the session that has the codecs of this package.
        fallback: the other planner.
    """
    session: Any = ctx.ctx
    return _native.component(
        "planner",
        _native.PLANNER,
        session=session.__datafusion_task_context_provider__(),
        logical=session.__datafusion_logical_extension_codec__(),
        physical=session.__datafusion_physical_extension_codec__(),
        fallback=fallback,
    )


def put_in_front(ctx: SessionContext) -> CapsuleType:
    """Lets a session that differentiates do so before another planner gets its statements.

    One that has been installed since would get them as they are written. It does not matter what has installed it, and
    through which handle of the session.

    Args:
        ctx: the handle of the session that has the codecs of this package.

    Returns:
        The planner of this package. What it knows of the session is known as long as there is a share of it.
    """
    session: Any = ctx.ctx
    found: CapsuleType = session.__datafusion_query_planner__()
    if _native.is_planner_of(found, session.session_id()):
        return found
    with _PUTTING:
        found = session.__datafusion_query_planner__()
        if not _native.is_planner_of(found, session.session_id()):
            found = planner(ctx, found)
            session.set_query_planner(found)
        return found
