"""What is made of a float on the way, and a number again afterwards, is not taken for a constant."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import Refused, assert_refused, refusals

TEXT = "(SELECT w, x, CAST(w AS VARCHAR) AS s FROM t) AS m"
TIME = "(SELECT w, x, to_timestamp(w) AS s FROM t) AS m"


def _below(id_: str, number: str, made: str, names: str, tail: str = "") -> Refused:
    return Refused(
        id_, f"SELECT grad({number}, w) FROM (SELECT w, {made} AS s FROM t {tail}) AS m", [names, "varies with"]
    )


CASES = [
    _below("time", "date_part('epoch', s)", "to_timestamp(w)", "Timestamp"),
    _below("cast_time", "date_part('epoch', s)", "arrow_cast(w, 'Timestamp(Nanosecond, None)')", "Timestamp"),
    _below("time_of_day", "date_part('epoch', s)", "to_time(w)", "to_time"),
    _below("date", "date_part('epoch', s)", "to_date(w)", "Date32"),
    _below("interval", "date_part('epoch', s)", "to_timestamp(w) - to_timestamp(0)", "to_timestamp"),
    _below("string", "CAST(s AS DOUBLE)", "CAST(w AS VARCHAR)", "Utf8"),
    _below("binary", "CAST(decode(s, 'hex') AS DOUBLE)", "encode(CAST(w AS VARCHAR), 'hex')", "encode"),
    _below("decimal", "CAST(s AS DOUBLE)", "CAST(w * w AS DECIMAL(20, 5))", "Decimal"),
    _below("list", "s[1]", "[w, w * w]", "List"),
    _below("struct", "s['a']", "{'a': w * w}", "Struct"),
    _below("map", "s['a']", "MAP {'a': w * w}", "Map"),
    _below("maximum", "date_part('epoch', s)", "max(to_timestamp(w))", "to_timestamp", "GROUP BY w"),
    _below("joined_strings", "CAST(s AS DOUBLE)", "string_agg(CAST(w AS VARCHAR), '')", "CAST", "GROUP BY w"),
    _below("key", "CAST(s AS DOUBLE)", "CAST(w AS VARCHAR)", "CAST", "GROUP BY w, CAST(w AS VARCHAR)"),
    _below("lag", "CAST(s AS DOUBLE)", "lag(CAST(w AS VARCHAR)) OVER (ORDER BY id)", "CAST"),
    _below("union", "CAST(s AS DOUBLE)", "'1'", "CAST", "UNION ALL SELECT w, CAST(w AS VARCHAR) FROM t"),
    Refused(
        "recursion",
        "WITH RECURSIVE r AS (SELECT 1 AS step, w, CAST(w AS VARCHAR) AS s FROM t UNION ALL "
        "SELECT step + 1, w, s FROM r WHERE step < 3) SELECT grad(CAST(s AS DOUBLE), w) FROM r",
        ["varies with", "Utf8"],
    ),
]


@refusals(CASES)
def test_refused(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


# The derivative by w of an expression over a relation, by hand.
STEP = "CASE WHEN m.w = 1.5 THEN 2 * m.w ELSE 3.0 END"
CONSTANT = {
    "compared": ("CASE WHEN s = '1.5' THEN m.w * m.w ELSE 3 * m.w END", TEXT, STEP),
    "matched": ("CASE s WHEN '1.5' THEN m.w * m.w ELSE 3 * m.w END", TEXT, STEP),
    "length": ("m.w * length(s)", TEXT, "CAST(length(s) AS DOUBLE)"),
    "hour": ("x * m.w * (1 + date_part('hour', s))", TIME, "x"),
    "whole_number": ("m.w * CAST(s AS DOUBLE)", "(SELECT w, CAST(w AS BIGINT) AS s FROM t) AS m", "trunc(w)"),
    "compared_in_a_join": (
        "CASE WHEN m.s = n.s THEN m.w * x ELSE 0 END",
        f"{TEXT} JOIN (SELECT CAST(w AS VARCHAR) AS s, w AS v FROM t) AS n ON m.w = n.v",
        "x",
    ),
}


@pytest.mark.parametrize(("expression", "relation", "derivative"), CONSTANT.values(), ids=CONSTANT)
def test_conditions_and_whole_numbers_are_constant(
    ctx: SessionContext, expression: str, relation: str, derivative: str
) -> None:
    found, by_hand = (
        query(ctx, f"SELECT {slope} AS d FROM {relation} ORDER BY m.w, d")
        for slope in (f"grad({expression}, m.w)", derivative)
    )
    assert_same_rows(rows_of(found), rows_of(by_hand))
