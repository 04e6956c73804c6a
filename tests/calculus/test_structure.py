"""What is differentiated, or not, because of how an expression is built, through all that SQL makes of it."""

import pyarrow as pa
import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import assert_says, message_at_planning

# x, y and n of the rows, and the function that is differentiated there.
X, Y, N = [1.5, -2.25, 4.0], [3.0, 0.5, -4.0], [2.0, None, 0.25]


_ROWS = {
    "id": [1, 2, 3],
    "x": X,
    "y": Y,
    "n": N,
    "i": [1, 2, 3],
    "s": [{"a": 5.0, "b": "u"}, {"a": 6.0, "b": "v"}, {"a": 7.0, "b": "w"}],
    "l": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "m": pa.array([[("a", 0.5)], [("a", 1.5)], [("a", 2.5)]], pa.map_(pa.string(), pa.float64())),
    "d": [pa.scalar(day, pa.date32()).as_py() for day in (0, 1, 2)],
}
TABLES = {"t": pa.RecordBatch.from_pydict(_ROWS)}


DIFFERENTIATED = [
    ("CASE WHEN x > y THEN x * x ELSE 3 * x END", [3.0, 3.0, 8.0]),
    ("CASE x WHEN y THEN x * x WHEN 1.5 THEN 5 * x ELSE 3 * x END", [5.0, 3.0, 3.0]),
    ("CASE i WHEN 1 THEN x * x WHEN 2 THEN x * y END", [3.0, 0.5, None]),
    ("CASE WHEN x BETWEEN 1 AND 2 THEN x * x ELSE x END", [3.0, 1.0, 1.0]),
    ("CASE WHEN x NOT BETWEEN 1 AND 2 THEN x * x ELSE x END", [1.0, -4.5, 8.0]),
    ("CASE WHEN x BETWEEN x - 1 AND x * x THEN x * x ELSE x END", [3.0, -4.5, 8.0]),
    ("CASE WHEN x IN (1.5, y) THEN x * x ELSE x END", [3.0, 1.0, 1.0]),
    ("CASE WHEN x IS DISTINCT FROM 4 THEN x * x ELSE x END", [3.0, -4.5, 1.0]),
    ("CASE WHEN n IS NULL OR x < 0 THEN x * x WHEN NOT (x = y) THEN x END", [1.0, -4.5, 1.0]),
    ("CASE WHEN n > 1 OR y < 1 THEN n + x * x ELSE x END", [3.0, None, 8.0]),
    ("x * x + TRY_CAST(concat(n, '') AS DOUBLE)", [3.0, None, 8.0]),
    ("CASE WHEN CAST(x AS VARCHAR) LIKE '1%' THEN x * x ELSE x END", [3.0, 1.0, 1.0]),
    ("coalesce(n * x, x * x)", [2.0, -4.5, 0.25]),
    ("coalesce(n, x, y)", [0.0, 1.0, 0.0]),
    ("coalesce(n * x, 5)", [2.0, 0.0, 0.25]),
    ("nvl(n * x, x * x)", [2.0, -4.5, 0.25]),
    ("ifnull(n, x * x)", [0.0, -4.5, 0.0]),
    ("nvl2(n, x * x, 3 * x)", [3.0, 3.0, 8.0]),
    ("nullif(x * x, 16)", [3.0, -4.5, None]),
    ("nanvl(x * x / (x - x) * 0, 3 * x)", [3.0, 3.0, 3.0]),
    ("greatest(x * x, y, 5 * x)", [5.0, -4.5, 5.0]),
    ("least(x * x, y, 5 * x)", [3.0, 5.0, 0.0]),
    ("greatest(x)", [1.0, 1.0, 1.0]),
    ("greatest(n * x, n)", [2.0, None, 0.25]),
    ("x + greatest(n, n * y)", [1.0, None, 1.0]),
    ("n + atan(x)", [1 / 3.25, None, 1 / 17]),
    ("greatest(y * greatest(x * y, 0) - 2, 0)", [9.0, 0.0, 0.0]),
    ("greatest(x, greatest(n * x, y) * n)", [4.0, 1.0, 1.0]),
    ("power(CAST(greatest(CAST(x AS REAL), CAST(1 AS REAL)) AS DOUBLE), 2)", [3.0, 0.0, 8.0]),
    ("greatest(CAST(greatest(CAST(x AS REAL), CAST(i AS REAL)) AS DOUBLE) * x, y - 3)", [3.0, 0.0, 8.0]),
    ("greatest(CASE WHEN greatest(x, y) > 2 THEN greatest(x, y) * x ELSE x END, 1)", [3.0, 0.0, 8.0]),
    ("least(abs(greatest(x * y, y * y) - 20), x * x)", [3.0, -4.5, 0.0]),
    (
        "CASE WHEN greatest(x, y) * x > 5 THEN greatest(x, y) * x ELSE 0.5 * (greatest(x, y) * x) END",
        [1.5, 0.25, 8.0],
    ),
    (
        "CASE WHEN x * greatest(x, y) > 4 AND y > 1 THEN x * greatest(x, y) ELSE y * abs(x) END",
        [3.0, -0.5, -4.0],
    ),
    ("+x * +x", [3.0, -4.5, 8.0]),
    ("- - x", [1.0, 1.0, 1.0]),
    ("-(+(-(x * x)))", [3.0, -4.5, 8.0]),
    ("pow(x, 2) + rand() + pi()", [3.0, -4.5, 8.0]),
    ("CAST(x AS DOUBLE) * TRY_CAST(x AS DOUBLE)", [3.0, -4.5, 8.0]),
    ("x::DOUBLE * arrow_cast(x, 'Float64') * arrow_try_cast(x, 'Float64')", [6.75, 15.1875, 48.0]),
    ("arrow_cast(x * x, 'Float32')", [3.0, -4.5, 8.0]),
    ("cast_to_type(x * x, y) + try_cast_to_type(x, y)", [4.0, -3.5, 9.0]),
    ("with_metadata(x * x, 'unit', 'm')", [3.0, -4.5, 8.0]),
    ("with_metadata(n * x, 'unit', 'm', 'of', 'x')", [2.0, None, 0.25]),
]

PIECEWISE_CONSTANT = [
    "floor(x) + ceil(x) + round(x) + trunc(x) + signum(x)",
    "round(x, 1) + trunc(x, 1) + round(x * i, i)",
    "factorial(CAST(abs(x) AS BIGINT))",
    "gcd(CAST(x AS BIGINT), 6) + lcm(CAST(x AS BIGINT), 6)",
    "(CAST(x AS BIGINT) & 3) + (CAST(x AS BIGINT) | 3) + (CAST(x AS BIGINT) ^ 3)",
    "(CAST(x AS BIGINT) << 1) + (CAST(x AS BIGINT) >> 1)",
    "CAST(CAST(x AS BIGINT) % 3 AS DOUBLE)",
    "CAST(x > y AS INT) + CAST(x BETWEEN 1 AND 2 AS INT) + CAST(isnan(x) OR iszero(x) AS INT)",
    "length(concat(x, 'a')) + ascii(CAST(x AS VARCHAR))",
    "array_length(make_array(x, y)) + array_position(make_array(x, y), x) + cardinality([x])",
    "array_dims([x, y])[1] + array_positions([x, y], x)[1]",
    "CAST(CAST(x > 0 AS INT) AS DECIMAL(5, 2)) + 1.5",
    "date_part('year', d) + to_unixtime(x)",
    "date_part('hour', to_timestamp(x)) + CAST(to_timestamp(x) AS BIGINT)",
    "date_part('epoch', from_unixtime(CAST(x AS BIGINT)))",
    "CASE WHEN to_timestamp(x) > to_timestamp(0) AND array_has([x], y) THEN 2 ELSE 3 END",
    "y + s['a'] + l[1] + m['a'] + s.a + get_field(s, 'a') + array_max(l)",
    "array_distance(l, [y, y]) + array_min([y, n])",
    "date_part('epoch', to_timestamp(y))",
]

REFUSED = [
    ("make_array(x, y)[1]", ["array_element", "Write the element itself"]),
    ("array_max([x, y])", ["array_max", "greatest"]),
    ("list_max([x, y])", ["array_max", "greatest"]),
    ("array_distance([x], [y])", ["array_distance", "sum over the elements"]),
    ("array_length(l) * dot_product([x], [y])", ["inner_product"]),
    ("named_struct('a', x, 'b', y)['a']", ["get_field", "Write the field itself"]),
    ("named_struct('a', x, 'b', y)['b']", ["get_field"]),
    ("map([y], [x])[y]", ["map_extract|array_element|get_field"]),
    ("date_part('epoch', to_timestamp(x))", ["date_part", "a time is not a number"]),
    ("CAST(to_timestamp(x) AS DOUBLE)", ["to_timestamp", "a time is not a number"]),
    ("CAST(CAST(x AS DECIMAL(20, 10)) AS DOUBLE)", ["decimals are not differentiated"]),
    ("-CAST(x AS DECIMAL(20, 10))", ["decimals are not differentiated"]),
    ("CASE WHEN x > 1 THEN CAST(x AS DECIMAL(20, 10)) ELSE 0.5 END", ["decimals are not differentiated"]),
    ("abs(CAST(x AS DECIMAL(20, 10)))", ["decimals are not differentiated"]),
    ("CAST(CAST(x AS VARCHAR) AS DOUBLE)", ["a conversion to Utf8"]),
    ("CAST(concat('1', x) AS DOUBLE)", ["concat"]),
    ("date_part('epoch', to_timestamp(x) - to_timestamp(0))", ["date_part", "a time is not a number"]),
    ("CASE WHEN x > 0 THEN array_max([x, y]) ELSE x END", ["array_max"]),
]


@pytest.mark.parametrize(("formula", "expected"), DIFFERENTIATED)
def test_differentiated(session: SessionContext, formula: str, expected: list[float | None]) -> None:
    found = query(session, f"SELECT grad({formula}, x) AS d FROM t ORDER BY id")
    assert_same_rows(rows_of(found), [(value,) for value in expected])


@pytest.mark.parametrize("formula", PIECEWISE_CONSTANT)
def test_piecewise_constant(session: SessionContext, formula: str) -> None:
    """A constant where it stands alone, and as a factor."""
    found = query(
        session, f"SELECT grad({formula}, x) AS d, grad(x * ({formula}), x) - ({formula}) AS e, {formula} AS f FROM t"
    )
    assert [(d, e) for d, e, f in rows_of(found) if f is not None] == [
        (0.0, 0.0) for _, _, f in rows_of(found) if f is not None
    ]
    assert all(d is None for d, _, f in rows_of(found) if f is None)


@pytest.mark.parametrize(("formula", "says"), REFUSED)
def test_refused(session: SessionContext, formula: str, says: list[str]) -> None:
    message = message_at_planning(lambda: session.sql(f"SELECT grad({formula}, x) FROM t"))
    assert_says(message, [*says, r"\bx\b", "grad"])


@pytest.mark.parametrize("variable", ["s['a']", "l[1]", "m['a']", "s.a"])
def test_a_field_is_no_variable(session: SessionContext, variable: str) -> None:
    message = message_at_planning(lambda: session.sql(f"SELECT grad(x * {variable}, {variable}) FROM t"))
    assert_says(message, ["grad's second argument must be a column; .* is an expression", "subquery or CTE"])


def test_a_field_is_a_variable_by_way_of_a_subquery(session: SessionContext) -> None:
    statement = "SELECT grad(a * a * x, a) AS d FROM (SELECT id, x, s['a'] AS a FROM t) ORDER BY id"
    assert_same_rows(rows_of(query(session, statement)), [(15.0,), (-27.0,), (56.0,)])
