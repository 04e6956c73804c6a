"""The command line: ``python -m xql_ffi doctor | expand | rules``."""

from __future__ import annotations

import argparse
import glob
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import SessionConfig, SessionContext

from xql_ffi import expand_sql, rule_table
from xql_ffi._doctor import examine
from xql_ffi._text.expansion import DIALECTS

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# Messages of `expand_sql` about a missing name, and the advice that takes the place of theirs.
ADVICE = (
    (
        re.compile(r"(?P<what>there is no table called (?P<name>\S+))"),
        "Give its columns: --schema {name}=x:double,y:double, --parquet {name}=FILE or --duckdb FILE",
    ),
    (
        re.compile(
            r"(?P<what>(there is no function called|\S+ has no function) (?P<name>[^:]+)): hand over .*", re.DOTALL
        ),
        "The command line knows the functions of the dialect, and the macros of a --duckdb file. For a function of "
        "your own, call xql_ffi.expand_sql(statement, session, rules=[...]) in Python",
    ),
)
RELATIONS = "https://github.com/xql-ffi/xql-ffi/blob/main/docs/relations.md#what-derivatives-pass-through"


class UsageError(Exception):
    """The arguments cannot be understood. The message says what to write instead."""


def doctor(_arguments: argparse.Namespace) -> int:
    """Prints what this environment has, and whether it differentiates."""
    report = examine()
    print(report)
    return 0 if report.healthy else EXIT_FAILED


def expand(arguments: argparse.Namespace) -> int:
    """Prints the statement without its derivatives."""
    statement = _statement(arguments.statement)
    tables = _tables(arguments)
    try:
        print(expand_sql(statement, tables, dialect=arguments.dialect))
    except ValueError as error:
        print(f"error: {_in_options(str(error))}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def _in_options(message: str) -> str:
    """Returns a message with the advice that is right on the command line."""
    for known, advice in ADVICE:
        if found := known.fullmatch(message):
            return f"{found['what']}. {advice.format(name=found['name'])}"
    return message


def rules(arguments: argparse.Namespace) -> int:
    """Prints the rules of differentiation, a line each."""
    table = rule_table()
    name = (arguments.function or "").lower()
    if name:
        table = table.filter(pc.match_substring(table["signature"], name))
    for row in table.to_pylist():
        partials = [" ".join(partial.split()) for partial in row["partials"]]
        print(f"{row['signature']:32} {row['reason'] or '; '.join(partials) or row['group']}")
    if kind := _of_many_rows(name):
        print(
            f"{name} is {kind}. The rules are for scalar functions and operators. The derivatives of aggregates and "
            f"window functions are formulas over their rows; this page lists them: {RELATIONS}"
        )
    elif not table.num_rows:
        print(
            f"error: there is no rule for {arguments.function!r}. The rules are for the scalar functions and operators "
            "of DataFusion that take or return a float: python -m xql_ffi rules",
            file=sys.stderr,
        )
        return EXIT_FAILED
    return 0


def _of_many_rows(name: str) -> str | None:
    """Returns whether DataFusion has an aggregate or a window function of a name."""
    session = SessionContext(SessionConfig().with_information_schema())
    routines = session.table("information_schema.routines").select("routine_name", "function_type").distinct()
    kinds = {row["function_type"] for row in routines.to_pylist() if row["routine_name"] == name}
    return "an aggregate" if "AGGREGATE" in kinds else "a window function" if "WINDOW" in kinds else None


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # it is too long for a name, or has a NUL
        return False


def _statement(given: str) -> str:
    """Returns the statement that an argument is, or that the file has which it names."""
    is_file = _is_file(given)
    if not is_file and re.search(r"\s", given):
        return given
    try:
        if given == "-":
            if sys.stdin.isatty():
                print("Type the statement, then Ctrl-D (see --help for other ways).", file=sys.stderr)
            text = sys.stdin.read()
        elif is_file:
            text = Path(given).read_text(encoding="utf-8")
        else:
            msg = f"there is no file {given!r}. Name a file, write the statement in quotes, or - for standard input"
            raise UsageError(msg)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the statement cannot be read: {error}"
        raise UsageError(msg) from error
    if not text.strip():
        msg = "there is no statement: the input is empty"
        raise UsageError(msg)
    # Editors of Windows put a byte order mark before a text.
    return text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")


def _tables(arguments: argparse.Namespace) -> Any:
    """Returns the schemas of the tables that options name, or the database that has them."""
    if arguments.duckdb:
        if arguments.schema or arguments.parquet:
            msg = "--duckdb gives all tables: leave out --schema and --parquet, or --duckdb"
            raise UsageError(msg)
        return _database(arguments.duckdb)
    tables: dict[str, pa.Schema] = {}
    for option, read, given, example in (
        ("schema", _schema, arguments.schema, "x:double,y:double"),
        ("parquet", _parquet, arguments.parquet, "FILE"),
    ):
        for text in given:
            name, equals, rest = text.partition("=")
            if not (name and equals and rest):
                msg = f"{text!r} does not name a table: write --{option} t={example}"
                raise UsageError(msg)
            if name in tables:
                msg = f"the table {name!r} is given twice: name each table once, by --schema or by --parquet"
                raise UsageError(msg)
            tables[name] = read(rest)
    return tables


def _schema(text: str) -> pa.Schema:
    """Returns a schema written as ``x:double,y:int64``."""
    fields = []
    for column in text.split(","):
        name, colon, type_name = column.strip().rpartition(":")
        if not (name and colon):
            msg = f"{column!r} is not a column: write 'name:type', as in 'x:double'"
            raise UsageError(msg)
        try:
            fields.append(pa.field(name.strip(), pa.type_for_alias(type_name.strip())))
        except ValueError as error:
            msg = f"{type_name!r} is not a type of pyarrow: write double, float, int64, string, bool or timestamp[us]"
            raise UsageError(msg) from error
    return pa.schema(fields)


def _parquet(path: str) -> pa.Schema:
    """Returns the schema of a Parquet file, of a folder of them, or of the first of those that a pattern names."""
    if path.startswith("~"):
        path = str(Path(path).expanduser())
    if glob.has_magic(path) and not Path(path).exists():
        found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207, it may begin at the root
        if not found:
            msg = f"no file matches {path}"
            raise UsageError(msg)
        path = found[0]
    try:
        return ds.dataset(path, format="parquet").schema
    except (OSError, pa.ArrowException) as error:
        msg = f"{path} cannot be read as Parquet: {error}"
        raise UsageError(msg) from error


def _database(path: str) -> Any:
    """Returns a connection to a DuckDB file, which stays as it is."""
    try:
        import duckdb
    except ImportError as error:
        msg = "the module duckdb is missing: pip install duckdb"
        raise UsageError(msg) from error
    try:
        return duckdb.connect(path, read_only=True)
    except duckdb.Error as error:
        msg = f"{path} cannot be read as a DuckDB file: {error}"
        raise UsageError(msg) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m xql_ffi",
        description="Derivatives in SQL.",
        epilog="exit status: 0, 1 if what was asked for failed, 2 if it cannot be read",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="doctor | expand | rules")

    def command(name: str, run: Callable[[argparse.Namespace], int], about: str, examples: str) -> Any:
        made = commands.add_parser(
            name,
            help=about,
            description=about[0].upper() + about[1:] + ".",
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=run)
        return made

    command(
        "doctor",
        doctor,
        "show the versions, what this environment can do, and the outcome of differentiating something",
        "  python -m xql_ffi doctor",
    )
    made = command(
        "expand",
        expand,
        "write a statement without grad, jvp, vjp and stop_gradient, for any engine",
        "  python -m xql_ffi expand 'SELECT grad(sin(x), x) FROM t' --schema t=x:double\n"
        "  echo 'SELECT grad(sin(x), x) FROM t' | python -m xql_ffi expand --schema t=x:double\n"
        "  python -m xql_ffi expand query.sql --parquet 'era5=data/era5-*.parquet'\n"
        "  python -m xql_ffi expand query.sql --duckdb era5.duckdb\n"
        "  python -m xql_ffi expand query.sql --schema t=x:double --dialect postgres",
    )
    _add_arguments_of_expand(made)
    made = command(
        "rules",
        rules,
        "list the rules of differentiation of scalar functions and operators",
        "  python -m xql_ffi rules\n  python -m xql_ffi rules atan2\n\n"
        f"derivatives of aggregates and window functions are formulas over their rows:\n  {RELATIONS}",
    )
    made.add_argument("function", nargs="?", help="only signatures with this in them")
    return parser


def _add_arguments_of_expand(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "statement", nargs="?", default="-", help="a file, the statement itself, or - for standard input (default)"
    )
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        metavar="TABLE=COLUMN:TYPE,...",
        help="a table and the types of its columns, by their names in pyarrow",
    )
    parser.add_argument(
        "--parquet",
        action="append",
        default=[],
        metavar="TABLE=PATH",
        help="a table as Parquet files have it: a file, a folder or a pattern",
    )
    parser.add_argument("--duckdb", metavar="FILE", help="a database that has the tables")
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        help=f"whose SQL it is: {', '.join(DIALECTS)}, or another one that sqlglot knows (default: that of the tables)",
    )


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Shows a warning without the place in the code where it arose."""
    print(f"warning: {message}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments name."""
    arguments = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            return int(arguments.run(arguments))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever reads has enough.
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
