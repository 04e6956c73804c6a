"""Objectives of sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from xql_ffi._engine import is_active, way_out
from xql_ffi._errors import MissingEngineError
from xql_ffi._expressions import shown
from xql_ffi._gradients import check_registered
from xql_ffi._objective.evaluator import Evaluator
from xql_ffi._objective.function import Objective
from xql_ffi._objective.in_duckdb import DuckDB
from xql_ffi._objective.parameters import Parameters, Relation, relation, variables
from xql_ffi._text.catalog import is_duckdb, is_session, other_engine

if TYPE_CHECKING:
    from datafusion import DataFrame
    from numpy.typing import ArrayLike

    from xql_ffi._objective.derived import Derived
    from xql_ffi._objective.host import Host
    from xql_ffi._text.catalog import Session


def objective(
    session: Session,
    loss: str | DataFrame,
    wrt: str | Sequence[str],
    *,
    where: str | Mapping[str, str] | None = None,
) -> Objective:
    """Returns a loss as a function of the rows that it reads, for optimizers: from parameters to value and gradient.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> w = ctx.from_pydict({"k": [1, 2], "val": [3.0, 4.0]}, name="w")
    >>> loss = xql_ffi.objective(ctx, "SELECT SUM(val * val) FROM w", "w.val")
    >>> loss.value(loss.start), loss([1.0, 2.0])
    (25.0, (5.0, array([2., 4.])))

    Each of value, gradient, `Objective.jvp` and `Objective.hvp` is planned when it is first asked for, and then runs
    with other parameters. The tables of the session stay as they are, until `Objective.update`. Of the other tables
    that the loss reads, DataFusion takes the rows as they are when it plans; see `Objective.replace`.

    Args:
        session: a session of datafusion with ``grad``, or a DuckDB connection.
        loss: a query of one row and one column, a number, in SQL or as a DataFrame of this session. It reads the
            relations by the names in ``wrt``, also in views made by ``CREATE VIEW``.
        wrt: the columns of Float64 or Float32 that are the parameters, each with the table that has it: ``"w.val"``.
            Tables of one row are tables like others.
        where: which rows are parameters: a condition in SQL over the columns of the relation, if there is one
            relation, or a mapping of the names of relations to such conditions. A row is a parameter where the
            condition is true when the objective is made. The other rows stay as they are, and so does NULL.

    Returns:
        An `Objective`.

    Raises:
        ImportError: NumPy is not installed.
        TypeError: this is no session, the loss is neither SQL nor a DataFrame, or a column is not given by its name.
        MissingEngineError: the sessions of this process do not differentiate.
        VariableError: a column is not one of floats, or the loss does not read it.
        NotNumericError: the loss is not a number.
        ValueError: the loss has more columns than one; there is no such table or column; no column is given, or one
            twice, or one without its table; the loss reads a table in a way that no other can be put in its place; or
            no ``grad`` is registered.
    """
    host = _host(session, "objective")
    relations = _relations(host, wrt, where)
    host.prepare(loss, relations)
    evaluator = Evaluator(host, Parameters(relations))
    host.check(evaluator.value(evaluator.parameters.start()))
    return Objective(evaluator)


def propagate(
    session: Session,
    sql: str,
    wrt: str | Sequence[str],
    covariance: ArrayLike,
    *,
    where: str | Mapping[str, str] | None = None,
) -> Derived:
    """What a query computes from measured numbers, with the errors that these have, to first order.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> measured = ctx.from_pydict({"u": [6.0], "i": [2.0]}, name="measured")
    >>> resistance = "SELECT u / i AS r FROM measured"
    >>> found = xql_ffi.propagate(ctx, resistance, ["measured.u", "measured.i"], [[0.04, 0.0], [0.0, 0.01]])
    >>> found.value, round(found.error, 6)
    (3.0, 0.180278)

    The covariance of what it computes is ``J @ covariance @ J.T`` with its derivatives ``J`` by the numbers, as the
    GUM (JCGM 100:2008, 5.2) has it for correlated inputs.

    Args:
        session: a session of datafusion with ``grad``, or a DuckDB connection.
        sql: the query, as `Objective.delta` takes it.
        wrt: the columns with the numbers, as `objective` takes them: columns of one row, or of several.
        covariance: that of the numbers, of the shape (n, n), by table as in ``wrt``, then by column, then by row:
            ``numpy.diag(errors**2)`` where they are independent.
        where: which rows have errors, as `objective` takes it. The others are constants.

    Returns:
        The numbers, their errors and their covariance.

    Raises:
        DifferentiationError: what the query computes has no derivative.
        ImportError, TypeError, MissingEngineError, VariableError: as for `objective`.
        ValueError: as for `objective` and `Objective.delta`.
    """
    host = _host(session, "propagate")
    relations = _relations(host, wrt, where)
    host.take("", relations)
    numbers = Objective(Evaluator(host, Parameters(relations)))
    return numbers.delta(numbers.start, sql, covariance=covariance)


def _relations(host: Host, wrt: str | Sequence[str], where: str | Mapping[str, str] | None) -> list[Relation]:
    """Returns the relations of columns, with their rows."""
    columns_of = variables(wrt)
    conditions = _conditions(where, list(columns_of))
    relations = []
    for name, columns in columns_of.items():
        rows = host.rows(name)
        for column in columns:
            if column not in rows.schema.names:
                has = ", ".join(map(repr, rows.schema.names))
                msg = f"{name} has no column {column!r} to differentiate by, only {has}"
                raise ValueError(msg)
        chosen = host.where(name, rows, conditions[name]) if name in conditions else None
        relations.append(relation(name, rows, columns, chosen))
    return relations


def _host(session: Any, asked: str) -> Host:
    """Returns the host of a session, which the function of this name has received."""
    if find_spec("numpy") is None:
        msg = f"the vectors of {asked} are those of NumPy, which is not installed: pip install numpy"
        raise ImportError(msg)
    if is_duckdb(session):
        return DuckDB(session)
    if not is_session(session):
        msg = (
            f"{asked} takes a session of datafusion or a DuckDB connection; "
            f"{shown(session)} is neither. {other_engine(session)}"
        )
        raise TypeError(msg)
    if not is_active():
        msg = f"{asked} needs sessions that differentiate: {way_out()}"
        raise MissingEngineError(msg)
    check_registered(session)
    # `import xql_ffi` is not to wait for data sets of pyarrow.
    from xql_ffi._objective.in_datafusion import DataFusion

    return DataFusion(session)


def _conditions(where: str | Mapping[str, str] | None, relations: Sequence[str]) -> Mapping[str, str]:
    """Returns the conditions by the relations that they hold for."""
    if where is None:
        return {}
    if isinstance(where, str):
        if len(relations) > 1:
            msg = f"where must say which relation it is about: write {{{relations[0]!r}: {where!r}}}"
            raise ValueError(msg)
        return {relations[0]: where}
    for name in where:
        if name not in relations:
            msg = f"where names {name!r}, which has no parameters, only {', '.join(map(repr, relations))}"
            raise ValueError(msg)
    return where
