"""The examples in docstrings and on the page about Python run, and give what they say."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.parametrize(
    "name",
    [
        "xql_ffi",
        "xql_ffi._attributes",
        "xql_ffi._columns",
        "xql_ffi._explain",
        "xql_ffi._expressions",
        "xql_ffi._functions",
        "xql_ffi._gradients",
        "xql_ffi._jacobians",
        "xql_ffi._objective.function",
        "xql_ffi._objective.factory",
        "xql_ffi._progress",
        "xql_ffi._text.expansion",
        "xql_ffi._units",
        "xql_ffi.random",
        "xql_ffi.testing",
        "xql_ffi.xarray",
    ],
)
def test_docstrings(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed


def test_the_page() -> None:
    """Each block in turn, in one namespace. What an expression gives is in the comment after it."""
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.+?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 7
    for block in blocks:
        exec(block, names)
    checked = 0
    for expression, columns in re.findall(r"^(df\.select\(.+?\)) +# columns? (.+)$", "".join(blocks), re.MULTILINE):
        frame = eval(expression, names)
        assert frame.schema().names == columns.split(", ")
        checked += 1
    assert checked == 5
    assert eval('result["d_t"].attrs', names) == {
        "long_name": "derivative of e_s with respect to t",
        "units": "Pa K-1",
    }
    assert eval('report["x"].verified', names) == 2
    assert eval("found.value", names) == 4.0
    assert eval("matrix.to_pydict()", names) == {"ww": [pytest.approx(13 / 3)], "wb": [0.0], "bb": [2.0]}
    averaged = (
        'model.aggregate([col("w"), col("b")], '
        '[cell for row in xql_ffi.hessian(f.avg(error * error), ["w", "b"]) for cell in row]).to_pydict()'
    )
    assert eval(averaged, names)["d_w_w"] == [pytest.approx(13 / 3)]
    losses = eval("losses", names)
    assert losses[0] is None
    assert losses[1:] == sorted(losses[1:], reverse=True)
    assert len(losses) == 21
    for table, derivatives in (("w1", [-8.0, -12.0]), ("w2", [-2.0, 4.0])):
        rows = eval(f'found.by["{table}"].sort("inp").to_pydict()', names)
        assert list(rows) == ["inp", "val", "d_val"]
        assert rows["d_val"] == derivatives
    # The errors are those of the machine.
    lines = repr(names["report"]).splitlines()
    shown = [line.rpartition(" ")[0].rstrip() for line in _PAGE.read_text(encoding="utf-8").splitlines()]
    assert {line.rpartition(" ")[0].rstrip() for line in lines} <= set(shown)


def test_the_page_is_typed(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.+?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    page = tmp_path / "page.py"
    page.write_text("\n".join(blocks), encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(page)], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr
