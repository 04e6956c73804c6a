"""Where calls stand in a text, and texts with other parts."""

import pytest
from sqlglot import tokenize

from xql_ffi import HostError
from xql_ffi._text.dialects.edits import Edit, Place, closing, edited, place


def test_parts_take_their_places_in_any_order() -> None:
    text = "SELECT a, b FROM t"
    assert (
        edited(text, [Edit(10, 11, "2"), Edit(7, 8, "one"), Edit(18, 18, " -- end")]) == "SELECT one, 2 FROM t -- end"
    )
    assert edited(text, []) == text
    assert edited("", [Edit(0, 0, "x")]) == "x"


def test_the_place_of_a_call() -> None:
    text = "SELECT grad((a + b) * [c][1], a) FROM t"
    tokens = tokenize(text, read="duckdb")
    found = place(tokens, text.index("grad"))
    assert found == Place(1, 2, closing(tokens, 2))
    assert [tokens[number].text for number in (found.name, found.opening, found.closing)] == ["grad", "(", ")"]
    assert tokens[found.closing + 1].text == "FROM"


@pytest.mark.parametrize("start", ["a", "FROM", "t"])
def test_what_is_no_call(start: str) -> None:
    text = "SELECT grad(a, a) FROM t"
    with pytest.raises(HostError, match="place of a call"):
        place(tokenize(text), text.rindex(start))


def test_a_call_without_end() -> None:
    with pytest.raises(HostError, match="end of a call"):
        closing(tokenize("grad(a, (b)"), 1)
