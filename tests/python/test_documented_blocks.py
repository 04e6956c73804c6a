"""Every block of code in README and on the pages runs, or is named here with the reason why it does not."""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
import subprocess
import sys
import tokenize
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat
import pyarrow as pa
import pytest
from nbclient import NotebookClient

from support.pages import DOCS, ROOT, Block, blocks, is_statement
from support.programs import load

TUTORIAL, NOTEBOOK = DOCS / "tutorial.md", ROOT / "examples" / "tutorial.ipynb"

# Blocks that do not run, by how they begin.
NOT_RUN = {
    # sql
    "UNION ALL\n(WITH loss AS (... FROM state ...)": "a part of a statement, which docs/digits.md has in full",
    "SET xql.contractions": "tests/by_row/test_contractions.py sets it",
    "SELECT x.sample, w.out, SUM(x.val * w.val)": "a part of statements on docs/by-row.md",
    "SET xql.checkpoints": "tests/by_row/test_checkpoints.py sets it",
    "SET xql.fixed_point": "tests/by_row/test_fixed_points.py sets it",
    "CREATE TABLE steps": "tests/examples/test_training_page.py runs it",
    "INSERT INTO steps": "tests/examples/test_training_page.py runs it",
    "CREATE EXTERNAL TABLE steps": "tests/examples/test_training_page.py runs it",
    "SET datafusion.execution.minimum_parallel_output_files": "tests/examples/test_training_page.py sets it",
    # python
    "from ballista import": "in short what tests/examples/test_scale_out.py runs",
    "from pysail.spark import": "in short what tests/examples/test_scale_out.py runs",
    "for arrived in ctx.sql(training(200)).execute_stream()": "tests/examples/test_digits.py reads the stream",
    "import torch": "tests/python/test_objective.py runs it where torch is installed",
    "from numpyro.infer import": "tests/python/test_objective.py runs it and compares it with the closed form",
    # sh
    "pip install": "`dev.py wheels` installs the wheels into a fresh environment and tests them there",
    "curl": "it downloads",
    "python -m venv sail": "it downloads",
    "python3 dev.py": "it is the command that runs this test",
    "python examples/": "tests/examples runs the examples",
    "build/fresh/bin/python": "it measures with the wheels of `dev.py wheels`",
    "source .venv/bin/activate": "it builds; `dev.py test` does",
    "cd native": "it measures",
    "python -m xql_ffi expand query.sql": "the files are those of the reader",
    # rust
    "#[repr(C)]\npub struct FFI_ScalarUDFSimplify": "the struct of native/simplify-ffi/src/abi.rs",
}
# Blocks in these are data or output, and not for running.
NO_CODE = {"text", "toml", "diff", ""}


def reason(block: Block) -> str | None:
    """Why a block does not run."""
    return next((why for begin, why in NOT_RUN.items() if block.text.startswith(begin)), None)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


EXAMPLES = squeezed(" ".join(path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")))


def in_an_example(block: Block) -> bool:
    """Whether a block is a part of an example, which has tests of its own."""
    return squeezed(block.text) in EXAMPLES


def test_all_languages_are_known() -> None:
    assert {block.language for block in blocks()} <= {"python", "sql", "sh", "rust", *NO_CODE}


# ------------------------------------------------------------------------------------------------------------- SQL


@functools.cache
def written_by_examples() -> str:
    """The SQL that examples put together."""
    digits, era5 = load("examples/digits"), load("examples/era5_sensitivity")
    written = [digits.training(200), digits.READING, digits.SALIENCY, era5.saturation_pressure("t")]
    assimilation = load("examples/assimilation")
    written += [assimilation.descent(4, 0.2), assimilation.flow(assimilation.FLOW, assimilation.TARGET)]
    gpt = load("examples/gpt")
    written += [gpt.loss(gpt.Sizes()), gpt.sampling(gpt.Sizes(), 80)]
    return squeezed(" ".join(written))


def test_sql() -> None:
    """Statements on most pages run in test_documented_statements; the others are parts of examples."""
    for block in blocks("sql"):
        runs = is_statement(block) or in_an_example(block) or reason(block)
        assert runs or squeezed(block.text) in written_by_examples(), block


# ---------------------------------------------------------------------------------------------------------- Python

FUNCTIONS = """
import math
import pyarrow as pa
from datafusion import SessionContext, col, functions as f, udf
import xql_ffi
"""

# What a page takes for granted.
GIVEN = {
    "README.md": FUNCTIONS + 'df = SessionContext().from_pydict({"x": [0.5]})',
    "digits.md": "from support.programs import load; globals().update(vars(load('examples/digits')))",
    "example.md": "from support.programs import load; globals().update(vars(load('examples/era5_sensitivity')))",
}


def pages_of_python() -> list[Path]:
    """Pages with blocks of Python. docs/python.md has a test of its own, and the tutorial runs as a notebook."""
    own = {DOCS / "python.md", TUTORIAL}
    return sorted({block.page for block in blocks("python") if not in_an_example(block)} - own)


@pytest.mark.parametrize("page", pages_of_python(), ids=lambda page: page.name)
def test_python(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page, one after the other. What an expression gives is in the comment after it."""
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(GIVEN.get(page.name, FUNCTIONS), names)
    for block in blocks("python"):
        if block.page == page and not reason(block) and not in_an_example(block):
            run(block, names)


def test_functions_of_the_page_of_rules_pass_null_on() -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        if block.page == DOCS / "custom-rules.md":
            run(block, names)
    values = pa.array([None, 1.0])
    for found in (names["softplus"](values), names["hypot"](values, values), names["slope"](values)):
        assert found.is_null().to_pylist() == [True, False]
        assert found.type == pa.float64()


def run(block: Block, names: dict[str, Any]) -> None:
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(block.text).readline)
        if token.type == tokenize.COMMENT
    }
    for statement in ast.parse(block.text).body:
        assert statement.end_lineno is not None
        said = comments.get(statement.end_lineno, "")
        ast.increment_lineno(statement, block.line - 1)
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), str(block), "exec"), names)
            continue
        found = eval(compile(ast.Expression(statement.value), str(block), "eval"), names)
        try:
            expected = ast.literal_eval(said)
        except (SyntaxError, ValueError):
            continue
        if hasattr(found, "to_pydict"):
            found = found.to_pydict()
        if isinstance(found, dict) and isinstance(expected, float):
            ((found,),) = found.values()
        assert found == (pytest.approx(expected) if isinstance(expected, float) else expected), f"{block}: {said}"


def test_the_notebook_is_the_tutorial() -> None:
    written = load("docs/notebook").notebook()
    assert json.loads(NOTEBOOK.read_text(encoding="utf-8")) == json.loads(written), (
        "the page has changed: python docs/notebook.py > examples/tutorial.ipynb"
    )


# Jupyter's own: it warns about TCP and about its event loop.
@pytest.mark.filterwarnings("default")
def test_the_notebook() -> None:
    notebook = nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(
        notebook, timeout=300, startup_timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = "".join(output.get("text", "") for output in outputs)
    assert "{'long_name': 'derivative of vapour pressure with respect to t', 'units': 'hPa K-1'}" in shown
    assert re.search(r"^t +100 +0 +0 +0 ", shown, re.MULTILINE)
    assert "largest spread:     2.362 hPa" in shown
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1


# ----------------------------------------------------------------------------------------------------------- Shell


def commands() -> dict[str, Block]:
    """The commands that run, each with the first block that has it."""
    found: dict[str, Block] = {}
    for block in blocks("sh"):
        for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
            command = line.partition(" #")[0].strip()
            if command and not reason(block) and not any(command.startswith(begin) for begin in NOT_RUN):
                found.setdefault(command, block)
    return found


@pytest.mark.parametrize("command", [pytest.param(each, id=f"{block} {each}") for each, block in commands().items()])
def test_command(command: str, tmp_path: Path) -> None:
    assert "python -" in command
    command = command.replace("python -", f"{shlex.quote(sys.executable)} -")
    result = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_jobs_of_dev() -> None:
    jobs = re.findall(r"dev\.py (\w+)", (ROOT / "dev.py").read_text(encoding="utf-8").partition('"""\n')[0])
    for block in blocks("sh"):
        for job in re.findall(r"dev\.py (\w+)", block.text):
            assert job in jobs, block


def test_files_of_commands() -> None:
    for block in blocks("sh"):
        for path in re.findall(r"python ((?:examples|docs|bench)/\S+\.py)", block.text):
            assert (ROOT / path).exists(), f"{block}: {path}"


# ------------------------------------------------------------------------------------------------------------ Rust


def test_rust() -> None:
    """Blocks of Rust are documentation tests of a crate."""
    crates = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "native").glob("*/src/lib.rs"))
    for block in blocks("rust"):
        assert reason(block) or f'include_str!("../../../docs/{block.page.name}")' in crates, block


def test_the_list_is_short() -> None:
    """Nothing is on the list that is on no page."""
    lines = [line for block in blocks() for line in (block.text, *block.text.splitlines())]
    for begin in NOT_RUN:
        assert any(line.startswith(begin) for line in lines), begin
