"""What a statement of this package calls things is not what messages call them."""

import pytest

from support.errors import internal_names
from xql_ffi._errors import untagged

TAG = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (f"step_{TAG}", "the direction"),
        (f"steps_{TAG}.step_{TAG}", "the direction.the direction"),
        (f"loss_{TAG}", "the loss"),
        (f"row_{TAG}", "the number of a row"),
        (f"part_0_{TAG}", "the number of a row"),
        (f'"rows_1_{TAG}"', "v"),
        (f"moved_0_{TAG}", "w"),
        (f"rows_2_{TAG}", "a table"),
        (f"tangent_1_{TAG}", "the direction"),
        (f"c1_2_{TAG}", "a column"),
    ],
)
def test_names_of_statements(name: str, shown: str) -> None:
    assert untagged(f"no {name} here", ["w", "v"]) == f"no {shown} here"
    assert internal_names(name)
    assert not internal_names(shown)


def test_other_names_stay() -> None:
    message = "no field named step_1, loss_of_it or row"
    assert untagged(message) == message
