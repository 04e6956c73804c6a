"""Sessions of the stock wheel as they are once registered: errors of this package, and the options ``xql.*``.

A registered session, its frames and their streams are objects of subclasses that are called as the classes of
``datafusion``. What has no call of an operator is planned by a twin of the session, which is as the session was before.
What another library does to one, as to install a planner, is done to the other.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from datafusion import DataFrame, RecordBatchStream, SessionContext
from datafusion.plan import LogicalPlan

from xql_ffi import _native, _observer
from xql_ffi._errors import MissingEngineError, translated
from xql_ffi._expressions import quoted
from xql_ffi._planner import put_in_front
from xql_ffi._values import for_datafusion

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

# Whether what several places of a statement read is computed once even without a derivative.
_SHARING: ContextVar[bool] = ContextVar("sharing", default=False)
# Methods that plan or run something besides those whose names have no underscores.
_SPECIAL = {"__aiter__", "__arrow_c_stream__", "__getitem__", "__iter__", "__next__", "__repr__", "_repr_html_"}
# The methods of a frame that have it planned.
_PLANNING = {
    *("__aiter__", "__arrow_c_stream__", "__iter__", "__repr__", "_repr_html_", "cache", "collect", "collect_column"),
    *("collect_partitioned", "count", "describe", "execute_stream", "execute_stream_partitioned", "execution_plan"),
    *("explain", "optimized_logical_plan", "show", "to_arrow_table", "to_pandas", "to_polars", "to_pydict"),
    *("to_pylist", "write_csv", "write_json", "write_parquet", "write_parquet_with_options", "write_table"),
}
# The methods of a session that make another handle of it, and those that change how it plans.
_DERIVING = {
    *("enable_url_table", "with_extensions", "with_logical_extension_codec", "with_physical_extension_codec"),
    "with_python_udf_inlining",
}
_CHANGING = {"add_physical_optimizer_rule", "remove_optimizer_rule", "set_query_planner"}
# How the names of the methods of a session begin that make a frame, which is planned as the session plans then.
_FRAMING = ("create_", "empty_table", "execute_logical_plan", "from_", "read_", "sql", "table")
_OPTION = re.compile(
    r"\s*SET\s+xql\.(?P<key>\w+)\s*(?:=|TO)\s*(?:'(?P<text>[^']*)'|(?P<word>[\w.+-]+))\s*;?\s*", re.IGNORECASE
)
_SETTING = re.compile(r"\s*(?:SET|RESET)\b", re.IGNORECASE)
_PREPARED_INSERT = re.compile(r"\s*PREPARE\b.*\bINSERT\b", re.IGNORECASE | re.DOTALL)
# Statements whose names matter: those with derivatives, and views, of which others may be taken; and what files are.
_TELLING = re.compile(r"grad|jvp|vjp|view|copy", re.IGNORECASE)
# Common table expressions that say whether they are computed once.
_MATERIALIZED = re.compile(r"\bmaterialized\b", re.IGNORECASE)
# A statement that the library has planned already is a table.
_PLANNED = re.compile(r"\bTableScan: xql_statement_\d")
_CALL = re.compile(rf"\b(?:grad|jvp|vjp|stop_gradient)\(|{_PLANNED.pattern}")
_RECURSION = re.compile(r"^\s*RecursiveQuery:", re.MULTILINE)


def twin_of(ctx: SessionContext) -> SessionContext:
    """Returns a session that plans as this one does now, whatever is done to this one afterwards.

    Both have the same tables, memory pool and files.
    """
    twin = SessionContext.__new__(SessionContext)
    twin.ctx = ctx.ctx.enable_url_table()
    # DataFusion switches it off in a copy, which has the catalog and the schema already. Statements show it.
    twin.sql("SET datafusion.catalog.create_default_catalog_and_schema = true")
    return twin


def adopt(
    ctx: SessionContext, crossing: SessionContext, twin: SessionContext | None = None, *, has_all_planners: bool = True
) -> None:
    """Makes a session one whose errors are those of this package, and which leaves what it can to its twin.

    Args:
        ctx: the session.
        crossing: the handle of it that has the codecs of this package. The session itself keeps those that it had, so
            that it writes plans and expressions as before.
        twin: what plans statements without a call, if not the session itself.
        has_all_planners: whether the twin has what other libraries have installed beside this package.
    """
    # A handle that was made of one that is adopted has its class, and nothing else of it.
    if not hasattr(ctx, "_xql_ffi_crossing"):
        if not hasattr(type(ctx), "_xql_ffi_adopted"):
            ctx.__class__ = _subclass(type(ctx))
        ctx._xql_ffi_crossing = crossing  # type: ignore[attr-defined]
        ctx._xql_ffi_twin = twin  # type: ignore[attr-defined]
        ctx._xql_ffi_has_all_planners = has_all_planners  # type: ignore[attr-defined]
        ctx._xql_ffi_planner = None  # type: ignore[attr-defined]
        ctx._xql_ffi_lists_anew = False  # type: ignore[attr-defined]


def _twin(ctx: Any) -> Any:
    """Returns the session that plans statements without a call, if it is not the session itself."""
    is_lacking = not ctx._xql_ffi_has_all_planners and _native.has_other_planner(ctx.session_id())
    return None if is_lacking else ctx._xql_ffi_twin


def undifferentiated(ctx: Any) -> Any:
    """Returns a handle of a session that plans what has no call without asking this package, if there is one."""
    return (_twin(ctx) if hasattr(ctx, "_xql_ffi_twin") else None) or ctx


_SUBCLASSES: dict[type, type] = {}


def _subclass(cls: type) -> type:
    """Returns the subclass of a class of ``datafusion``, or of a user's own class of sessions, which is made once."""
    if cls not in _SUBCLASSES:
        _SUBCLASSES[cls] = _made(cls)
    return _SUBCLASSES[cls]


def _made(cls: type) -> type:
    methods = {
        name: _method(stock)
        for name, stock in inspect.getmembers(cls, inspect.isfunction)
        if name in _SPECIAL or not name.startswith("_")
    }
    if issubclass(cls, SessionContext):
        methods["sql"] = _sql(methods["sql"])
        methods |= {name: _deriving(getattr(cls, name)) for name in _DERIVING & methods.keys()}
        methods |= {name: _changing(methods[name]) for name in _CHANGING & methods.keys()}
        methods |= {name: _framing(methods[name]) for name in methods if name.startswith(_FRAMING)}
        methods["register_view"] = _register_view(methods["register_view"])
        methods["__datafusion_query_planner__"] = _query_planner
    if issubclass(cls, DataFrame):
        methods |= {name: _planning(methods[name], getattr(cls, name)) for name in _PLANNING & methods.keys()}
        methods["optimized_logical_plan"] = _planning(_method(_optimized_logical_plan), cls.optimized_logical_plan)
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), {**methods, **named, "_xql_ffi_adopted": True})


def _method(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        exception = None
        try:
            made = stock(self, *args, **kwargs)
        except StopIteration:
            raise
        except Exception as error:
            query = kwargs.get("query", args[0] if args else None)
            exception = translated(str(error), query if isinstance(query, str) else None)
            if exception is None:
                raise
        # Here it has no other exception as its context.
        if exception is not None:
            raise exception
        if type(made) in (DataFrame, RecordBatchStream):
            made.__class__ = _subclass(type(made))
            # The codecs of a session work for as long as the session is there.
            made._xql_ffi_session = getattr(self, "_xql_ffi_session", self)
        return made

    return method


def _deriving(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that makes another handle of a session.

    It is made of the handle with the codecs of this package, for the method binds the planner of the session to those
    of the new one.
    """

    @functools.wraps(stock)
    def deriving(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = stock(self._xql_ffi_crossing, *args, **kwargs)
        twin = self._xql_ffi_twin
        made._xql_ffi_parent = self
        derived = None if twin is None else stock(twin, *args, **kwargs)
        adopt(made, made, derived, has_all_planners=self._xql_ffi_has_all_planners)
        return made

    return deriving


def _changing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of a session that its twin is to follow.

    A planner gets the codecs of the handle by which it is installed.
    """

    @functools.wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = method(self._xql_ffi_crossing, *args, **kwargs)
        # The twin knows what was there before, such as a rule that the session itself has no longer.
        twin = self._xql_ffi_twin
        return made if twin is None else getattr(twin, method.__name__)(*args, **kwargs)

    return changing


def _framing(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a session that makes a frame: no other planner is to get its statement before this package."""

    @functools.wraps(method)
    def framing(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._xql_ffi_planner = put_in_front(self._xql_ffi_crossing)
        return method(self, *args, **kwargs)

    return framing


def _register_view(method: Callable[..., Any]) -> Callable[..., Any]:
    """``SessionContext.register_view`` that tells the planner what the name is."""

    @functools.wraps(method)
    def register_view(self: Any, name: str, df: Any) -> Any:
        made = method(self, name, df)
        if "\0" not in name and _native.is_registered(self.session_id()):
            _native.note_statement(self.session_id(), f"CREATE VIEW {quoted(name)} AS SELECT 1")
        return made

    return register_view


def _query_planner(self: Any, session: Any = None) -> Any:
    """Returns the planner of a session, for one that is to stand in front of it, with codecs that know what crosses."""
    return self._xql_ffi_crossing.ctx.__datafusion_query_planner__(session)


def _planning(method: Callable[..., Any], stock: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a frame that leaves it to the twin of its session if no call is in it, and no step to be told."""

    @functools.wraps(stock)
    def planning(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (twin := _frame_of_twin(self)) is not None:
            try:
                made = _method(stock)(twin, *args, **kwargs)
            except MissingEngineError:
                # A call that its plan does not show, such as one in a view that is read while it is planned.
                self._xql_ffi_frame_of_twin = None
            else:
                return _of_session(self._xql_ffi_session, made)
        if stock.__name__ == "write_table" or self._xql_ffi_inserts:
            _list_files_anew(self._xql_ffi_session)
        return method(self, *args, **kwargs)

    return planning


def _list_files_anew(ctx: Any) -> None:
    """Has a session list the files of its tables in each statement.

    What inserts rows has the session forget which files its table has. It does so by the name of the table, which
    DataFusion 55 does not write for a planner of another library. So with a derivative it would go on to read the
    files that there were before. Once is enough, and more does harm: DataFusion 55 forgets prepared statements with it.
    """
    if ctx._xql_ffi_lists_anew:
        return
    ctx._xql_ffi_lists_anew = True
    for handle in (ctx._xql_ffi_crossing, ctx._xql_ffi_twin):
        if handle is not None:
            SessionContext.sql(handle, "SET datafusion.runtime.list_files_cache_limit = '0K'")


def _frame_of_twin(frame: Any) -> Any:
    if not hasattr(frame, "_xql_ffi_frame_of_twin"):
        plan, twin = frame.logical_plan(), _twin(frame._xql_ffi_session)
        shown = plan.display_indent()
        is_plain = twin is not None and not _CALL.search(shown)
        frame._xql_ffi_recurses = bool(_RECURSION.search(shown))
        frame._xql_ffi_inserts = shown.startswith("Dml: op=[Insert")
        frame._xql_ffi_frame_of_twin = twin.create_dataframe_from_logical_plan(plan) if is_plain else None
    # The twin tells nobody of steps.
    is_told = frame._xql_ffi_recurses and _observer.is_observed()
    return None if is_told else frame._xql_ffi_frame_of_twin


def _of_session(ctx: Any, made: Any) -> Any:
    """Returns a frame of the twin as one of the session, since calls may be added to a frame."""
    if isinstance(made, DataFrame):
        return ctx.create_dataframe_from_logical_plan(made.logical_plan())
    if isinstance(made, RecordBatchStream):
        made._xql_ffi_session = ctx  # type: ignore[attr-defined]
    return made


def _optimized_logical_plan(self: Any) -> LogicalPlan:
    """The plan that is executed, with the derivatives, as `DataFrame.optimized_logical_plan` gives it without any."""
    ctx = self._xql_ffi_session._xql_ffi_crossing
    return LogicalPlan.from_bytes(ctx, _native.optimized(ctx.session_id(), self.logical_plan().to_bytes(ctx)))


@dataclasses.dataclass(frozen=True)
class _Table:
    """A table of the library."""

    capsule: CapsuleType

    def __datafusion_table_provider__(self, session: Any = None) -> CapsuleType:
        return self.capsule


@contextmanager
def sharing() -> Iterator[None]:
    """Within, what several places of a statement read is computed once even if the statement has no derivative."""
    token = _SHARING.set(True)
    try:
        yield
    finally:
        _SHARING.reset(token)


def logical_plan(frame: Any) -> str:
    """Returns the plan of a frame as it is shown before it is differentiated, also where the library has planned it."""
    shown: str = frame.logical_plan().display_indent()
    if _PLANNED.search(shown):
        crossing = frame._xql_ffi_session._xql_ffi_crossing
        return _native.shown(crossing.session_id(), frame.logical_plan().to_bytes(crossing))
    return shown


def _row(values: Mapping[str, Any]) -> bytes:
    """Values of parameters as an Arrow stream of one row."""
    columns = [value if isinstance(value, pa.Scalar) else pa.scalar(value) for value in values.values()]
    batch = pa.record_batch([pa.array([value], value.type) for value in columns], names=list(values))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    row: bytes = sink.getvalue().to_pybytes()
    return row


def _planned_by_library(ctx: Any, query: str, stock: Callable[..., Any], values: Mapping[str, Any] | None) -> Any:
    """Returns the frame of a statement that reads a relation several times: the session would write it out for each.

    What the library cannot plan the session may, or say what is wrong with it.
    """
    crossing = ctx._xql_ffi_crossing

    def scan(table: str) -> bytes | None:
        # Of a view a plan with IN or a correlated subquery is not written as bytes, which joins in their place are.
        for planned in (DataFrame.logical_plan, DataFrame.optimized_logical_plan):
            with suppress(Exception):
                plan: bytes = planned(SessionContext.table(crossing, table)).to_bytes(crossing)
                return plan
        return None

    try:
        row = _row(values) if values else b""
        planned = _native.plan_statement(ctx.session_id(), query, scan, shares_ctes=_SHARING.get(), values=row)
    except (ValueError, pa.ArrowException):
        return None
    if planned is None:
        return None
    sql, name, capsule = planned
    SessionContext.register_table(crossing, name, _Table(capsule))
    try:
        return stock(ctx, sql)
    finally:
        SessionContext.deregister_table(crossing, name)


def _sql(stock: Callable[..., Any]) -> Callable[..., Any]:
    """``SessionContext.sql`` that tells the planner what the plan will not say, and knows ``SET xql.*``."""

    @functools.wraps(stock)
    def method(self: Any, query: str, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(query, str):
            return stock(self, query, *args, **kwargs)
        if kwargs.get("param_values"):
            kwargs = {**kwargs, **for_datafusion({"param_values": kwargs["param_values"]})}
        if found := _OPTION.fullmatch(query):
            value = found["text"] if found["word"] is None else found["word"].lower()
            _native.set_option(self.session_id(), found["key"].lower(), value)
            return self.empty_table()
        if is_materialized := "\0" not in query and _MATERIALIZED.search(query) is not None:
            query = _native.with_materialization(query)
        if _TELLING.search(query) and "\0" not in query and _native.is_registered(self.session_id()):
            _native.note_statement(self.session_id(), query)
            may_be_shared = True
        else:
            may_be_shared = is_materialized or (
                "\0" not in query and (_SHARING.get() or _native.shares_ctes(self.session_id()))
            )
        if may_be_shared and _PREPARED_INSERT.match(query):
            _list_files_anew(self)
        # Text in the place of parameters the session puts into the statement.
        if may_be_shared and not args and kwargs.keys() <= {"options", "param_values"}:
            others = {name: value for name, value in kwargs.items() if name != "param_values"}
            made = _planned_by_library(self, query, functools.partial(stock, **others), kwargs.get("param_values"))
            if made is not None:
                return made
        made = stock(self, query, *args, **kwargs)
        if _SETTING.match(query):
            self._xql_ffi_lists_anew &= "list_files" not in query.lower()
            if self._xql_ffi_twin is not None:
                self._xql_ffi_twin.sql(query)
        return made

    return method
