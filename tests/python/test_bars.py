"""What a terminal and a notebook show of steps: bars of tqdm, and lines where there are none."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support.processes import run_in_terminal
from support.recursive import HALVES, NEWTON
from xql_ffi._progress import tqdm as bars
from xql_ffi._progress.events import values

tqdm = pytest.importorskip("tqdm.auto").tqdm

# Two rows in each step.
ROWS = """
    WITH RECURSIVE fit AS (
        SELECT 0 AS step, x, 'a' AS name, CAST(NULL AS DOUBLE) AS loss FROM d
        UNION ALL SELECT step + 1, x / 2, name, 0.25 FROM fit WHERE step < 2)
    SELECT COUNT(*) AS n FROM fit WHERE step >= 0 AND x > 0 AND name = 'a' AND (loss IS NULL OR loss > 0)
"""
TABLES = {"d": {"x": [1.0, 2.0]}}


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    @contextmanager
    def progress(self, **how: Any) -> Iterator[None]:
        """A block with this as standard error, which pytest would take back between a fixture and its test."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stderr", self)
            with xql_ffi.progress(**how):
                yield

    def pictures(self) -> list[str]:
        """All that has been drawn, one line after the other."""
        return [line for line in re.split(r"[\r\n]|\x1b\[A", self.getvalue()) if line.strip()]

    def left(self) -> list[str]:
        """What stands there in the end."""
        lines, at = [""], 0
        for part in re.findall(r"\r|\n|\x1b\[A|[^\r\n\x1b]+", self.getvalue()):
            if part == "\n":
                at += 1
                lines += [""] * (at + 1 - len(lines))
            elif part == "\x1b[A":
                at -= 1
            elif part != "\r":
                lines[at] = part.rstrip()
        return [line for line in lines if line]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal of 80 columns, on which every step is drawn."""
    shown = Terminal()
    monkeypatch.setattr(bars, "INTERVAL", 0.0)
    monkeypatch.setattr(bars, "PATIENCE", 0)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    yield shown
    assert not tqdm._instances


def shapes(pictures: list[str]) -> list[str]:
    """Bars without their times."""
    return [re.sub(r"\[[^,]*, +[^,\]]*", "[", picture).rstrip() for picture in pictures]


def test_a_bar(session: SessionContext, terminal: Terminal) -> None:
    with terminal.progress():
        session.sql(NEWTON).collect()
    pictures = terminal.pictures()
    assert shapes(pictures)[:3] == ["newton: 0step [, x=1]", "newton: 1step [, x=1.5]", "newton: 2step [, x=1.41667]"]
    (last,) = terminal.left()
    assert re.fullmatch(r"newton: 6step \[00:00, [\d.]+step/s, x=1\.41421\]", last), last
    assert terminal.getvalue().endswith("\n")


def test_a_bar_as_far_as_is_known(session: SessionContext, terminal: Terminal) -> None:
    with terminal.progress(total=6):
        session.sql(NEWTON).collect()
    assert [re.match(r"newton: +(\d+%)", picture)[1] for picture in terminal.pictures()[:-1]] == [  # type: ignore[index]
        *("0%", "17%", "33%", "50%", "67%", "83%", "100%")
    ]
    (last,) = terminal.left()
    assert re.fullmatch(r"newton: 100%\|█+\| 6/6 \[00:00<00:00, +[\d.]+step/s, x=1\.41421\]", last), last


def test_few_steps_are_drawn(session: SessionContext, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step, and the last one when the block ends."""
    monkeypatch.setattr(bars, "INTERVAL", 1000.0)
    with terminal.progress():
        session.sql(NEWTON).collect()
    assert shapes(terminal.pictures()) == ["newton: 0step [, x=1]", "newton: 6step [, x=1.41421]"]


def test_the_rate_is_that_of_the_steps(session: SessionContext, terminal: Terminal) -> None:
    with terminal.progress():
        session.sql(NEWTON).collect()
        time.sleep(1.5)
    (last,) = terminal.left()
    assert "newton: 6step [00:00," in last
    assert float(re.search(r", +([\d.]+)step/s", last)[1]) > 6  # type: ignore[index]


@pytest.mark.parametrize(
    ("watch", "shown"),
    [
        (None, "name=a, loss=0.25"),
        ("loss", "loss=0.25"),
        (["loss", "step"], "loss=0.25, step=2"),
        (("x", "name"), "x=0.25..0.5, name=a"),
        (["nothing"], ""),
        ([], ""),
    ],
)
def test_what_is_watched(
    watch: str | list[str] | None, shown: str, session: SessionContext, terminal: Terminal
) -> None:
    with terminal.progress(watch=watch):
        assert session.sql(ROWS).to_pydict() == {"n": [6]}
    assert shapes(terminal.left()) == [f"fit: 2step [, {shown}]" if shown else "fit: 2step [/s]".replace("/s", "")]


def test_what_is_watched_in_lines(session: SessionContext, capsys: pytest.CaptureFixture[str]) -> None:
    with xql_ffi.progress(watch=["x", "loss"], every=0.0):
        session.sql(ROWS).collect()
    lines = [line.rpartition(", ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["fit step 0: x=1..2", "fit step 1: x=0.5..1, loss=0.25", "fit step 2: x=0.25..0.5, loss=0.25"]


def test_what_cannot_be_watched() -> None:
    for watch in (3, [3], {"loss"}):
        with pytest.raises(TypeError, match="watch takes the name of a column, or several; "):
            xql_ffi.progress(watch=watch)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="total takes the number of the last step; '6' is not an integer"):
        xql_ffi.progress(total="6")  # type: ignore[arg-type]


def test_several_queries(session: SessionContext, terminal: Terminal) -> None:
    with terminal.progress():
        session.sql(NEWTON).collect()
        session.sql(HALVES).collect()
    assert shapes(terminal.left()) == ["newton: 6step [, x=1.41421]", "halves: 3step [, x=0.125]"]


def test_a_query_of_the_same_name_begins_its_bar_anew(session: SessionContext, terminal: Terminal) -> None:
    with terminal.progress():
        for _ in range(3):
            session.sql(HALVES).collect()
    assert shapes(terminal.left()) == ["halves: 3step [, x=0.125]"]
    assert sum(picture.startswith("halves: 1step") for picture in terminal.pictures()) == 3


def test_the_last_step_of_a_query_is_drawn_when_the_next_one_runs(
    session: SessionContext, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bars, "INTERVAL", 0.2)
    with terminal.progress():
        session.sql(NEWTON).collect()
        time.sleep(0.3)
        session.sql(HALVES).collect()
        assert "newton: 6step" in terminal.getvalue()


def test_queries_in_threads(session: SessionContext, terminal: Terminal) -> None:
    with terminal.progress():
        threads = [threading.Thread(target=session.sql(query).collect) for query in (NEWTON, HALVES) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(line.partition(":")[0] for line in terminal.left()) == ["halves", "newton"]


def test_blocks_within_blocks(session: SessionContext, terminal: Terminal) -> None:
    told: list[xql_ffi.Step] = []
    with terminal.progress():
        session.sql(HALVES).collect()
        with xql_ffi.progress(told.append):
            session.sql(NEWTON).collect()
        with terminal.progress(watch="step"):
            session.sql(NEWTON).collect()
    assert [step.number for step in told] == list(range(7))
    assert sorted(shapes(terminal.left())) == ["halves: 3step [, x=0.125]", "newton: 6step [, step=6]"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), KeyError("enough")], ids=type)
def test_what_leaves_the_block_closes_the_bars(
    failure: BaseException, session: SessionContext, terminal: Terminal
) -> None:
    def run() -> None:
        session.sql(HALVES).collect()
        raise failure

    with pytest.raises(type(failure)), terminal.progress():
        run()
    assert shapes(terminal.left()) == ["halves: 3step [, x=0.125]"]
    assert terminal.getvalue().endswith("\n")


def test_a_query_that_fails_closes_its_bar(session: SessionContext, terminal: Terminal) -> None:
    failing = HALVES.replace("x / 2", "x / 2 + CAST(CASE WHEN step = 2 THEN 'a' ELSE '0' END AS DOUBLE)")
    with pytest.raises(Exception, match="Cast"), terminal.progress():
        session.sql(failing).collect()
    assert terminal.left()[0].startswith("halves: ")


def test_lines_are_as_wide_as_the_terminal(session: SessionContext, terminal: Terminal) -> None:
    names = [f"a_long_name_{number}" for number in range(7)]
    query = f"""
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, {", ".join(f"1.0 AS {name}" for name in names)}
            UNION ALL SELECT step + 1, {", ".join(names)} FROM fit WHERE step < 12)
        SELECT {" + ".join(names)} AS n FROM fit WHERE step >= 0"""
    for total in (None, 12):
        with terminal.progress(total=total):
            session.sql(query).collect()
    pictures = terminal.pictures()
    assert max(map(len, pictures)) <= 80
    assert all("a_long_name_0=1" in picture for picture in pictures)
    # The bar itself has its room.
    assert re.search(r"\|█{6,}\| 12/12", terminal.getvalue())


# ------------------------------------------------------------------------------------------- what cannot be shown


def test_without_tqdm(session: SessionContext, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)
    with terminal.progress(watch="x", total=3, every=0.0):
        assert session.sql(HALVES).to_pydict() == {"total": [1.875]}
    lines = [line.rpartition(", ")[0] for line in terminal.getvalue().splitlines()]
    assert lines == [f"halves step {number}: x={0.5**number:g}" for number in range(4)]


def test_bars_that_the_environment_disables(
    session: SessionContext, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ``TQDM_DISABLE``, which tqdm reads when it is imported."""
    made: list[Any] = []

    def disabled(*_: Any, **how: Any) -> Any:
        made.append(tqdm(**how, disable=True))
        return made[-1]

    monkeypatch.setattr("xql_ffi._progress.tqdm_here", lambda: disabled)
    with terminal.progress():
        assert session.sql(HALVES).to_pydict() == {"total": [1.875]}
    assert (len(made), terminal.getvalue()) == (1, "")


def test_standard_error_that_is_a_file(session: SessionContext, capsys: pytest.CaptureFixture[str]) -> None:
    with xql_ffi.progress():
        session.sql(HALVES).collect()
    assert capsys.readouterr().err.startswith("halves step 0: x=1, ")


def test_a_terminal_that_is_closed(session: SessionContext, terminal: Terminal) -> None:
    with terminal.progress():
        session.sql(HALVES).collect()
        terminal.close()
        assert session.sql(NEWTON).to_pydict() == {"x": [pytest.approx(2**0.5)]}
        assert session.sql(HALVES).to_pydict() == {"total": [1.875]}
    with terminal.progress():
        assert session.sql(HALVES).to_pydict() == {"total": [1.875]}


def test_no_standard_error(session: SessionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with xql_ffi.progress():
        assert session.sql(HALVES).to_pydict() == {"total": [1.875]}


def test_a_terminal_that_cannot_be_written_to(
    session: SessionContext, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(text: str) -> int:
        raise OSError("no space")

    monkeypatch.setattr(terminal, "write", write)
    with terminal.progress():
        assert session.sql(HALVES).to_pydict() == {"total": [1.875]}


@pytest.mark.parametrize("method", ["__init__", "update", "refresh", "set_postfix_str"])
def test_a_bar_that_fails(
    method: str, session: SessionContext, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(method)

    with monkeypatch.context() as broken:
        broken.setattr(tqdm, method, fail)
        with terminal.progress():
            assert session.sql(HALVES).to_pydict() == {"total": [1.875]}
    # What the broken ones have left.
    tqdm._instances.clear()


@pytest.mark.parametrize(
    "value",
    [
        "arrow_cast('a', 'Utf8View')",
        "arrow_cast(1, 'Timestamp(Nanosecond, None)')",
        "arrow_cast('1 month', 'Interval(YearMonth)')",
        "named_struct('a', 1)",
        "'{0} % \\r \u2202 \u4e2d'",
        "CAST('NaN' AS DOUBLE)",
        "NULL",
    ],
)
def test_values_of_all_kinds(value: str, session: SessionContext, terminal: Terminal) -> None:
    query = f"""
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, x, {value} AS v FROM d UNION ALL SELECT step + 1, x, v FROM fit WHERE step < 2)
        SELECT COUNT(*) AS n FROM fit WHERE step >= 0 AND x IS NOT NULL AND v IS NOT DISTINCT FROM v"""
    for watch in (None, ["x", "v"]):
        with terminal.progress(watch=watch, total=2):
            assert session.sql(query).to_pydict() == {"n": [6]}
    assert "2/2" in terminal.getvalue()
    assert ("v=" in terminal.getvalue()) is (value != "NULL")


def test_a_watched_column_that_has_no_order() -> None:
    step = xql_ffi.Step("fit", 1, pa.table({"v": [[1], [2]], "loss": [1.0, 1.0]}), 2.0)
    assert values(step, ["v", "loss"]) == ["loss=1"]


# ------------------------------------------------------------------------------------------------------ notebooks


def test_a_kernel_of_jupyter_has_bars(
    session: SessionContext, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error is no terminal there."""
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with xql_ffi.progress():
        session.sql(HALVES).collect()
    assert "halves: 3step [" in capsys.readouterr().err


@pytest.mark.parametrize("shell", [None, SimpleNamespace(config={"TerminalIPythonApp": {}})], ids=["none", "terminal"])
def test_ipython_elsewhere_has_none(
    shell: object, session: SessionContext, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with xql_ffi.progress():
        session.sql(HALVES).collect()
    assert capsys.readouterr().err.startswith("halves step 0: x=1, ")


# Jupyter's own: it warns about TCP and about its event loop.
@pytest.mark.filterwarnings("default")
def test_a_notebook() -> None:
    """A bar is a widget, with the text of its last step."""
    for needed in ("ipykernel", "ipywidgets"):
        pytest.importorskip(needed)
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cell = f"""
import xql_ffi
from datafusion import SessionContext
ctx = xql_ffi.register(SessionContext())
with xql_ffi.progress(total=6):
    ctx.sql({NEWTON!r}).collect()"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbclient.NotebookClient(notebook, timeout=300, startup_timeout=300).execute()
    (output,) = notebook.cells[0].outputs
    assert "application/vnd.jupyter.widget-view+json" in output["data"]
    states = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    shown = [state["state"].get("value") for state in states]
    assert 6.0 in shown
    assert any("x=1.41421" in str(value) and "6/6" in str(value) for value in shown)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_terminal_of_its_own() -> None:
    """A process of its own in a pseudo-terminal, which does not know its size."""
    shown = f"""
import xql_ffi
from datafusion import SessionContext
ctx = xql_ffi.register(SessionContext())
with xql_ffi.progress(total=6):
    ctx.sql({NEWTON!r}).collect()
"""
    process = run_in_terminal(shown)
    assert process.returncode == 0, process.stdout + process.stderr
    assert re.search(r"newton: 100%\|█+\| 6/6 \[00:00<00:00, +[\d.]+step/s, x=1\.41421\]", process.stdout)
