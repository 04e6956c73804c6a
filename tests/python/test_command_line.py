"""The command line."""

import io
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.pages import ROOT
from xql_ffi import _doctor
from xql_ffi.__main__ import main

STATEMENT = "SELECT grad(sin(x) * y, x) AS d /* slope */ FROM t"


def expanded(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["expand", *arguments]) == 0
    return capsys.readouterr().out.strip()


@pytest.fixture
def query(tmp_path: Path) -> str:
    path = tmp_path / "query.sql"
    path.write_text(STATEMENT)
    return str(path)


def test_doctor_differentiates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "datafusion       54.0.0" in said
    assert "engine: active" in said
    assert said.count(": works") == 2


def test_doctor_says_what_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_doctor, "EXPECTED", 7.0)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "where 7.0 is right" in said
    assert "pip install" in said


def test_a_file_is_expanded(query: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = expanded(query, "--schema", "t=x:double,y:double", capsys=capsys)
    assert text.startswith("SELECT ")
    assert text.endswith(" AS d /* slope */ FROM t")
    assert "cos(x)" in text
    assert "grad" not in text


def test_tables_of_a_database_and_other_dialects(
    tmp_path: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "some.duckdb")
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t (X DOUBLE NOT NULL, y DOUBLE NOT NULL)")
    assert expanded(query, "--duckdb", path, capsys=capsys) == "SELECT y * cos(x) AS d /* slope */ FROM t"
    text = expanded(query, "--schema", "t=x:double,y:double", "--dialect", "postgres", capsys=capsys)
    assert text.endswith(" AS d /* slope */ FROM t")
    for arguments in (["--duckdb", query], ["--duckdb", path, "--schema", "t=x:double"]):
        assert main(["expand", query, *arguments]) == 2
    assert "DuckDB file" in capsys.readouterr().err


def test_doctor_names_the_variable_that_switches_the_engine_off() -> None:
    for value, off in {
        "0": "it is switched off by XQL_FFI_ENGINE=0",
        "never": "XQL_FFI_ENGINE=never is neither",
    }.items():
        environment = os.environ | {"XQL_FFI_ENGINE": value}
        arguments = [sys.executable, "-m", "xql_ffi", "doctor"]
        result = subprocess.run(arguments, capture_output=True, text=True, env=environment)
        assert result.returncode == 0
        said = next(line for line in result.stdout.splitlines() if line.startswith("xql_ffi.register(ctx)"))
        assert f"fails: sessions do not differentiate: {off}" in said
        assert said.endswith(". Unset the variable XQL_FFI_ENGINE and start Python again")


@pytest.mark.parametrize("by", ["file", "standard input"])
def test_a_byte_order_mark_is_no_part_of_a_statement(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "query.sql"
    path.write_text(STATEMENT, encoding="utf-8-sig")
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeff" + STATEMENT))
    text = expanded(str(path) if by == "file" else "-", "--schema", "t=x:double,y:double", capsys=capsys)
    assert text.startswith("SELECT ")


def test_standard_input_and_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], query: str
) -> None:
    pq.write_table(pa.table({"x": [1.0], "y": [2.0]}), tmp_path / "t.parquet")
    monkeypatch.setattr("sys.stdin", io.StringIO(STATEMENT))
    text = expanded("--parquet", f"t={tmp_path / 't.parquet'}", capsys=capsys)
    assert text == expanded(query, "--schema", "t=x:double,y:double", capsys=capsys)


def test_what_cannot_be_differentiated_is_an_error(query: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", query, "--schema", "t=x:string,y:double"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.sql"], "there is no file 'missing.sql'. Name a file, write the statement in quotes, or -"),
        ([""], "there is no file ''"),
        (["QUERY", "--parquet", "t=missing-*.parquet"], "no file matches missing-*.parquet"),
        (["QUERY", "--schema", "t"], "'t' does not name a table: write --schema t="),
        (["QUERY", "--parquet", "some.parquet"], "'some.parquet' does not name a table: write --parquet t=FILE"),
        (["QUERY", "--schema", "t=x"], "write 'name:type'"),
        (["QUERY", "--schema", "t=x:real number"], "is not a type of pyarrow"),
        (["QUERY", "--parquet", "t=missing.parquet"], "cannot be read as Parquet"),
        (["QUERY", "--schema", "t=x:double", "--schema", "t=x:float"], "the table 't' is given twice"),
    ],
)
def test_bad_input(arguments: list[str], said: str, query: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", *(query if argument == "QUERY" else argument for argument in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_an_argument_may_be_the_statement(capsys: pytest.CaptureFixture[str]) -> None:
    assert expanded("SELECT grad(x * x, x) AS d FROM t", "--schema", "t=x:double", capsys=capsys).endswith(
        " AS d FROM t"
    )


def test_empty_input_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["expand", "--schema", "t=x:double"]) == 2
    assert "the input is empty" in capsys.readouterr().err


def test_a_terminal_is_told_to_type(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO("SELECT 1")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["expand"]) == 0
    said = capsys.readouterr()
    assert "Type the statement" in said.err
    assert said.out == "SELECT 1\n"


def test_ctrl_c_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    terminal = io.StringIO()
    terminal.read = lambda _size=-1: interrupted()  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["expand"]) == 130


@pytest.mark.parametrize("dialect", ["datafusion", "duckdb"])
def test_advice_is_in_options_of_the_command(dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", "SELECT grad(x * x, x) AS d FROM nowhere", "--dialect", dialect]) == 1
    assert capsys.readouterr().err == (
        "error: there is no table called nowhere. Give its columns: --schema nowhere=x:double,y:double, "
        "--parquet nowhere=FILE or --duckdb FILE\n"
    )
    assert main(["expand", "SELECT grad(f(x), x) AS d FROM t", "--schema", "t=x:double", "--dialect", dialect]) == 1
    said = capsys.readouterr().err
    assert "The command line knows the functions of the dialect" in said
    assert "hand over" not in said


def test_a_pattern_of_parquet_files(tmp_path: Path, query: str, capsys: pytest.CaptureFixture[str]) -> None:
    for year in (2016, 2017):
        pq.write_table(pa.table({"x": [1.0], "y": [2.0]}), tmp_path / f"t-{year}.parquet")
    text = expanded(query, "--parquet", f"t={tmp_path / 't-*.parquet'}", capsys=capsys)
    assert text == expanded(query, "--schema", "t=x:double,y:double", capsys=capsys)


def test_warnings_are_lines_of_the_command(query: str) -> None:
    arguments = ["-m", "xql_ffi", "expand", query, "--schema", "t=x:double,y:double", "--dialect", "redshift"]
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert result.stderr.startswith("warning: sqlglot writes the SQL of redshift")
    assert ".py" not in result.stderr


def test_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "atan2"]) == 0
    assert capsys.readouterr().out.split(None, 2)[:2] == ["atan2(y,", "x)"]
    assert main(["rules", "no such function"]) == 1
    assert "there is no rule" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "kind"), [("avg", "an aggregate"), ("lag", "a window function")])
def test_rules_of_what_is_over_many_rows(name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", name]) == 0
    said = capsys.readouterr().out
    assert f"{name} is {kind}. The rules are for scalar functions and operators." in said
    assert "docs/relations.md#what-derivatives-pass-through" in said
    assert "## What derivatives pass through" in (ROOT / "docs" / "relations.md").read_text()
