"""The command line."""

import io
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
        (["missing.sql"], "the statement cannot be read"),
        (["QUERY", "--schema", "t"], "does not name a table"),
        (["QUERY", "--schema", "t=x"], "write 'name:type'"),
        (["QUERY", "--schema", "t=x:real number"], "is not a type of pyarrow"),
        (["QUERY", "--parquet", "t=missing.parquet"], "cannot be read as Parquet"),
        (["QUERY", "--schema", "t=x:double", "--schema", "t=x:float"], "the table 't' is given twice"),
    ],
)
def test_bad_input(arguments: list[str], said: str, query: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", *(query if argument == "QUERY" else argument for argument in arguments)]) == 2
    assert said in capsys.readouterr().err


def test_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "atan2"]) == 0
    assert capsys.readouterr().out.split(None, 2)[:2] == ["atan2(y,", "x)"]
    assert main(["rules", "no such function"]) == 1
    assert "there is no rule" in capsys.readouterr().err
