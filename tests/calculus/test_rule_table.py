"""Every line of the rule table against central differences: inside its domain, beside each kink, and at it.

The tests are made from the table, so a line that is added is tested.
"""

import re

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support import sessions
from support.cases import query
from support.differences import Flags, Points, Values, of_points, step
from support.rules import Evaluator, Kink, Line, as_number, draws, lines

LINES = lines("differentiable", "piecewise constant")
INPUTS = [(line, name) for line in LINES for name in line.of(3).inputs]
KINKS = [(line, kink) for line in LINES for kink in line.kinks]

# Of the derivative, and of the function, whose rounding the derivative may inherit. Central differences of doubles bear
# out 1e-10 and no more.
DOUBLE = (1e-10, 0.0)
SINGLE = (1e-6, 1e-6)


@pytest.fixture
def session() -> SessionContext:
    """A session that has the special functions as well, with the calls of each of which the table is shown."""
    return xql_ffi.register(sessions.session(), functions=True)


@pytest.fixture(params=[pa.float64(), pa.float32()], ids=str)
def typed(request: pytest.FixtureRequest, session: SessionContext) -> Evaluator:
    return Evaluator(session, request.param)


def _number(evaluator: Evaluator, line: Line) -> str:
    return as_number(line.signature, evaluator.type_of(line.signature, line.inputs))


def _assert_derivative(typed: Evaluator, line: Line, by: str, points: Points, h: Values) -> tuple[Flags, Flags]:
    """Compares a derivative with central differences; says where they are sound, and where they lie in the domain."""
    exact = Evaluator(typed.ctx)
    f = _number(exact, line)
    expected = of_points(lambda at: exact.floats(at, f), lambda at: exact.holds(at, line.domain), points, by, h)
    found = np.full(len(h), np.nan)
    sound = expected.sound & (expected.magnitude < np.finfo(typed.type.to_pandas_dtype()).max)
    if sound.any():
        chosen = {name: values[sound] for name, values in points.items()}
        found[sound] = typed.floats(chosen, f"grad({_number(typed, line)}, {by})")
    of_derivative, of_function = DOUBLE if typed.type == pa.float64() else SINGLE
    with np.errstate(invalid="ignore"):
        tolerance = of_derivative * np.abs(expected.derivative) + of_function * expected.magnitude + expected.rounding
        tolerance += np.finfo(typed.type.to_pandas_dtype()).tiny
        wrong = sound & ~(np.abs(found - expected.derivative) <= tolerance)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        at = {name: values[row] for name, values in points.items()}
        pytest.fail(f"grad({f}, {by}) is {found[row]} instead of {expected.derivative[row]} at {at}")
    return sound, expected.inside


@pytest.mark.parametrize(("line", "by"), INPUTS, ids=[f"{line} by {name}" for line, name in INPUTS])
def test_inside_the_domain(typed: Evaluator, line: Line, by: str) -> None:
    line = line.of(3)
    # Few of the points are between 0 and 1.
    points = draws(line, 500 if line.domain == "x > 0 AND x < 1" else 150)
    sound, inside = _assert_derivative(typed, line, by, points, step(points[by]))
    assert sound.sum() >= max(20, 0.4 * inside.sum())


@pytest.mark.parametrize(("line", "by"), INPUTS, ids=[f"{line} by {name}" for line, name in INPUTS])
def test_null_and_nan(session: SessionContext, line: Line, by: str) -> None:
    """NULL exactly where the function is; and where another input is NULL or NaN and the function a number, right."""
    line = line.of(3)
    evaluator = Evaluator(session)
    points = draws(line, 80)
    inside = evaluator.holds(points, line.domain)
    points = {name: values[inside] for name, values in points.items()}
    f = _number(evaluator, line)
    for name in line.inputs:
        null = np.ma.masked_array(points[name], np.arange(inside.sum()) % 2 == 0)
        value, derivative = evaluator.columns({**points, name: null}, f, f"grad({f}, {by})")
        assert derivative.is_null().equals(value.is_null())
        if name != by:
            _assert_derivative(evaluator, line, by, {**points, name: null}, step(points[by]))
        # A whole number is never NaN.
        if name != by and "AS BIGINT" not in line.signature:
            nan = np.full(inside.sum(), np.nan)
            _assert_derivative(evaluator, line, by, {**points, name: nan}, step(points[by]))


@pytest.mark.parametrize(("line", "kink"), KINKS, ids=[f"{line} at {kink.input} = {kink.at}" for line, kink in KINKS])
def test_kink(typed: Evaluator, line: Line, kink: Kink) -> None:
    line = line.of(2)
    points = _at_kink(typed, line, kink)
    f = _number(typed, line)
    for name, partial in zip(line.inputs, kink.partials, strict=True):
        found, expected = typed.columns(points, f"CAST(grad({f}, {name}) AS DOUBLE)", f"CAST({partial} AS DOUBLE)")
        assert found.is_null().equals(expected.is_null())
        rtol = 1e-15 if typed.type == pa.float64() else 5e-7
        np.testing.assert_allclose(found.drop_null(), expected.drop_null(), rtol=rtol, atol=0, err_msg=f"by {name}")


@pytest.mark.parametrize(("line", "kink"), KINKS, ids=[f"{line} at {kink.input} = {kink.at}" for line, kink in KINKS])
def test_either_side_of_a_kink(typed: Evaluator, line: Line, kink: Kink) -> None:
    line = line.of(2)
    points = _at_kink(typed, line, kink)
    sides = 0
    for side in (-1, 1):
        for name in line.inputs:
            found = reached = 0
            for distance in (2.0**-3, 2.0**-6, 2.0**-12):
                beside = {**points, kink.input: points[kink.input] + side * distance}
                h = np.full(len(beside[name]), distance * 0.83 / 64)
                sound, inside = _assert_derivative(typed, line, name, _rounded(typed, beside), h)
                found += sound.sum()
                reached += inside.sum()
            assert bool(found) == bool(reached), f"by {name}"
            sides += bool(found)
    assert sides


def _at_kink(typed: Evaluator, line: Line, kink: Kink) -> Points:
    """Points at a kink, those of its condition."""
    points = {**draws(line, 150), "k": np.asarray(np.arange(150) % 7 - 3, np.float64)}
    exact = Evaluator(typed.ctx)
    points[kink.input] = exact.floats(points, kink.at)
    points = _rounded(typed, points)
    # In single precision, larger numbers have no room for a step beside them.
    chosen = exact.holds(points, kink.condition) & (np.abs(points[kink.input]) < 2**8)
    assert chosen.sum() >= 10
    return {name: values[chosen] for name, values in points.items()}


def _rounded(typed: Evaluator, points: Points) -> Points:
    """The points as columns of the type have them."""
    with np.errstate(over="ignore"):
        return {name: values.astype(typed.type.to_pandas_dtype()).astype(np.float64) for name, values in points.items()}


# What the table says of any number of inputs is no SQL.
@pytest.mark.parametrize("line", [line for line in LINES if line.inputs and "..." not in line.signature], ids=str)
def test_partials_are_those_of_grad(session: SessionContext, line: Line) -> None:
    """The table says what is computed; that it is right is for the other tests."""
    evaluator = Evaluator(session)
    points = draws(line, 90)
    inside = evaluator.holds(points, line.domain)
    points = {name: values[inside] for name, values in points.items()}
    row = np.arange(inside.sum())
    first = line.inputs[0]
    points[first] = np.ma.masked_array(points[first], row % 3 == 0)
    if len(line.inputs) > 1 and "AS BIGINT" not in line.signature:
        points[first][row % 3 == 1] = np.nan
    f = _number(evaluator, line)
    assert len(line.partials) == len(line.inputs)
    for name, partial in zip(line.inputs, line.partials, strict=True):
        said = partial.replace("Ω", f"({f})").replace("constant(y)", "FALSE")
        if "CAST(n AS BIGINT)" in line.signature:
            # What the function has of it.
            said = re.sub(r"\bn\b", "trunc(n)", said)
        said = f"CASE WHEN {f} IS NOT NULL THEN CAST({said} AS DOUBLE) END"
        found, expected = evaluator.columns(points, f"grad({f}, {name})", said)
        assert found.is_null().equals(expected.is_null())
        np.testing.assert_allclose(found.drop_null(), expected.drop_null(), rtol=1e-13, atol=0, err_msg=f"by {name}")


def test_table() -> None:
    table = xql_ffi.rule_table()
    assert isinstance(table, pa.Table)
    table.validate(full=True)
    strings = pa.list_(pa.field("item", pa.string(), nullable=False))
    types = {name: table.schema.field(name).type for name in table.schema.names}
    kinks = types.pop("kinks").value_type
    assert {kinks.field(i).name: kinks.field(i).type for i in range(kinks.num_fields)} == {
        "at": pa.string(),
        "partials": strings,
        "why": pa.string(),
    }
    assert types == {
        "family": pa.string(),
        "group": pa.string(),
        "signature": pa.string(),
        "inputs": strings,
        "partials": strings,
        "domain": pa.string(),
        "reason": pa.string(),
    }
    rows = table.to_pylist()
    assert len({row["signature"] for row in rows}) == len(rows)
    for row in rows:
        refused = row["group"] == "refused"
        assert (row["reason"] is not None) == refused
        assert len(row["partials"]) == (0 if refused else len(row["inputs"]))
    assert xql_ffi.rule_table().equals(table)


@pytest.mark.parametrize("line", [line for line in LINES if not line.inputs], ids=str)
def test_constants(session: SessionContext, line: Line) -> None:
    assert Evaluator(session).floats({"x": np.ones(2)}, f"grad({line} + x, x)").tolist() == [1.0, 1.0]


def test_derivatives_are_single_if_function_and_column_are(session: SessionContext) -> None:
    evaluator = Evaluator(session, pa.float32())
    single = 0
    for line in (line.of(2) for line in LINES if line.inputs):
        f = _number(evaluator, line)
        by = line.inputs[0]
        types = [evaluator.type_of(expression, line.inputs) for expression in (f, f"grad({f}, {by})")]
        assert types[0] == types[1], line
        single += types[0] == pa.float32()
    assert single > 20


REFUSED = lines("refused")


def _number_in(sql: str, type_: pa.DataType) -> str:
    """A float in a value of another type."""
    if pa.types.is_floating(type_):
        return sql
    if pa.types.is_map(type_):
        return _number_in(f"map_values({sql})", pa.list_(type_.item_type))
    if pa.types.is_list(type_):
        return _number_in(f"array_element({sql}, 1)", type_.value_type)
    if pa.types.is_struct(type_):
        return _number_in(f"get_field({sql}, '{type_[0].name}')", type_[0].type)
    if pa.types.is_temporal(type_):
        return f"date_part('epoch', {sql})"
    return f"CAST({sql} AS DOUBLE)"


@pytest.mark.parametrize("line", REFUSED, ids=str)
def test_refused(session: SessionContext, line: Line) -> None:
    """The reason is in the message, that of the outermost function if there are several."""
    session.deregister_table("columns")
    session.from_pydict({name: [1.0] for name in ("x", "y")}, name="columns")
    query(session, f"SET datafusion.sql_parser.dialect = '{'duckdb' if '->' in line.signature else 'generic'}'")
    type_ = session.sql(f"SELECT {line} AS c FROM columns").schema().field(0).type
    with pytest.raises(Exception) as caught:  # noqa: PT011 - datafusion raises plain exceptions
        session.sql(f"SELECT grad({_number_in(str(line), type_)}, x) FROM columns").execution_plan()
    message = str(caught.value)
    reasons = [line.reason] if pa.types.is_floating(type_) else [other.reason for other in REFUSED]
    assert any(reason in message for reason in reasons), message
    assert "x" in message
