"""Reports what an environment has installed, and whether it differentiates."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from datafusion import SessionContext

from xql_ffi._engine import STOCK, engine_status, is_active
from xql_ffi._errors import MissingEngineError
from xql_ffi._operators import register
from xql_ffi._text.expansion import sql

DISTRIBUTIONS = ("xql-ffi", "xql-ffi-engine", "datafusion", "pyarrow", "xarray-sql", "duckdb")

# The variable of the environment that switches the engine off.
SWITCH = "XQL_FFI_ENGINE"

QUERY = "SELECT grad(sin(x) * x, x) AS d FROM (VALUES (0.5)) AS t(x)"
EXPECTED = math.cos(0.5) * 0.5 + math.sin(0.5)


@dataclass(frozen=True)
class Report:
    """The findings of `examine`.

    Attributes:
        versions: of the distributions that matter; None for one that is not installed.
        engine: `engine_status`.
        checks: for each way to differentiate, what came of it: empty if it gave the right number.
    """

    versions: dict[str, str | None]
    engine: str
    checks: dict[str, str]

    @property
    def healthy(self) -> bool:
        """Whether there is a way that works."""
        return any(not problem for problem in self.checks.values())

    def __str__(self) -> str:
        """Returns the report as lines to read."""
        lines = [f"{name:16} {found or 'not installed'}" for name, found in self.versions.items()]
        lines += ["", f"{'sessions' if find_spec('xql_ffi_engine') is None else 'engine'}: {self.engine}", ""]
        lines += [f"{way}: {problem or 'works'}" for way, problem in self.checks.items()]
        if not self.healthy:
            lines += ["", "Nothing differentiates here. Install one of both ways:"]
            lines += [
                f'  pip install xql-ffi "datafusion=={STOCK}.*"    # derivatives as functions of every query',
                '  pip install "xql-ffi[engine]"    # the same with datafusion 54.0.0',
            ]
        return "\n".join(lines)


def examine() -> Report:
    """Looks at this environment and differentiates something in each way that it has."""
    found = {"python": platform.python_version(), **{name: _version(name) for name in DISTRIBUTIONS}}
    ways = {"xql_ffi.register(ctx), ctx.sql(...)": _by_session, "xql_ffi.sql(ctx, ...)": _by_text}
    return Report(found, engine_status(), {name: _problem(way) for name, way in ways.items()})


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _problem(way: Callable[[], float]) -> str:
    """Why a way does not work; empty if it does."""
    try:
        found = way()
    # Whatever a broken installation raises is what is to be shown.
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return f"fails: {lines[0]}"
    return "" if math.isclose(found, EXPECTED, rel_tol=1e-15) else f"gives {found} where {EXPECTED} is right"


def _by_session() -> float:
    if not is_active():
        reason = engine_status().removeprefix("inactive: ")
        advice = f". Unset the variable {SWITCH} and start Python again" if SWITCH in reason else ""
        msg = f"sessions do not differentiate: {reason}{advice}"
        raise MissingEngineError(msg)
    return float(register(SessionContext()).sql(QUERY).to_pydict()["d"][0])


def _by_text() -> float:
    return float(sql(SessionContext(), QUERY).to_pydict()["d"][0])
