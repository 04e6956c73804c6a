"""The recipes of ``docs/training.md``, against JAX and optax in double precision.

The statements and loops are those of the page, so that page and tests cannot differ; the model and what each recipe
does are written here once more. Compared are the rows of all steps: of each statement, of its recursive term in the
page's `loop`, and of the page's loop with `objective`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext

import xql_ffi
from support import sessions
from support.pages import DOCS, blocks
from support.processes import run_python
from support.stock import ON_STOCK

optax = pytest.importorskip("optax")
jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Array = npt.NDArray[np.float64]
PAGE = DOCS / "training.md"
STEPS = 20

# ---------------------------------------------------------------------------------------------------------- the page


def section(title: str) -> str:
    """The text of a section, up to the next of the same level."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def sql(title: str) -> list[str]:
    """The SQL of a section."""
    return re.findall(r"^```sql\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)


class Parts(NamedTuple):
    """A statement on the page, taken apart."""

    start: str
    step: str
    result: str

    def whole(self, result: str = "SELECT * FROM fit") -> str:
        return f"WITH RECURSIVE fit AS ({self.start} UNION ALL ({self.step})) {result}"


def parts(title: str) -> Parts:
    """The one recursive query of a section."""
    (statement,) = (text for text in sql(title) if text.startswith("WITH RECURSIVE"))
    found = re.fullmatch(
        r"WITH RECURSIVE fit AS \(\n(.+?)\n +UNION ALL \(\n(.+)\)\)\n(SELECT [^\n]+)\n", statement, re.DOTALL
    )
    assert found, title
    return Parts(*found.groups())


def changed(text: str, old: str, new: str) -> str:
    """A text with something else in it, which must have been there once."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, Any]]:
    """What the blocks of Python, one after the other, have left behind at the end of each section."""
    names: dict[str, Any] = {}
    found = {}
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for block in blocks("python"):
        if block.page == PAGE:
            exec(compile(block.text, str(block), "exec"), names)
            title = next(line for line in lines[block.line :: -1] if re.match("##? ", line))
            found[title.strip("# ")] = dict(names)
    return found


@pytest.fixture(scope="module")
def page(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What they have left behind in the end."""
    return runs["Going on"]


Tables = Mapping[str, pa.Table]


@pytest.fixture(scope="module")
def tables(page: dict[str, Any]) -> Tables:
    """The tables that the page makes."""
    names = ("x", "y", "w", "batches", "models")
    return {name: pa.table(page["ctx"].table(name).to_arrow_table()) for name in names}


@pytest.fixture
def ctx(tables: Tables) -> SessionContext:
    return sessions.session(tables)


def by_step(rows: pa.Table, column: str) -> Array:
    """A column of all steps and inputs."""
    rows = pa.table(rows).sort_by([("step", "ascending"), ("inp", "ascending")])
    step, inp = (rows[name].to_numpy() for name in ("step", "inp"))
    np.testing.assert_array_equal(step, np.repeat(np.arange(len(step) // 3), 3))
    np.testing.assert_array_equal(inp, np.tile(range(3), len(step) // 3))
    values: Array = rows[column].to_numpy(zero_copy_only=False).reshape(-1, 3).astype(float)
    return values


def rows_of(ctx: SessionContext, statement: str) -> pa.Table:
    return pa.table(ctx.sql(statement).to_arrow_table())


def looped(page: dict[str, Any], start: str, step: str) -> pa.Table:
    """The rows of all steps of the page's loop."""
    first = page["ctx"].sql(start).to_arrow_table()
    return pa.concat_tables([each.cast(first.schema) for each in page["loop"](first, step)])


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


# -------------------------------------------------------------------------------------------------------- the oracle


@pytest.fixture(scope="module")
def data(tables: Tables) -> tuple[Array, Array]:
    """The inputs of each sample, and what is to be predicted."""
    rows = tables["x"].sort_by([("sample", "ascending"), ("inp", "ascending")])
    x, y = rows["val"].to_numpy().reshape(-1, 3), tables["y"].sort_by("sample")["val"].to_numpy()
    assert x.shape == (48, 3)
    assert set(y) == {0.0, 1.0}
    return x, y


def logistic(weights: Any, x: Any, y: Any) -> jax.Array:
    return jnp.mean(jax.nn.softplus(x @ weights) - y * (x @ weights))


VALUE_AND_GRADIENT = jax.jit(jax.value_and_grad(logistic))


def gradient(weights: Any, x: Any, y: Any) -> Array:
    return np.asarray(VALUE_AND_GRADIENT(weights, x, y)[1])


class Trained(NamedTuple):
    """The weights and the states of an optimizer, from the start to the last step."""

    weights: Array
    states: list[Any]


def trained(
    optimizer: Any, data: tuple[Array, Array], steps: int = STEPS, batch: Callable[[int], Any] = lambda _: slice(None)
) -> Trained:
    """Training by optax with gradients by JAX."""
    x, y = data
    weights, state = np.zeros(3), optimizer.init(np.zeros(3))
    found, states = [weights], [state]
    for step in range(steps):
        chosen = batch(step)
        updates, state = optimizer.update(gradient(weights, x[chosen], y[chosen]), state, weights)
        weights = np.asarray(optax.apply_updates(weights, updates))
        found.append(weights)
        states.append(state)
    return Trained(np.array(found), states)


def at_client(page: dict[str, Any], name: str) -> Array:
    """The weights that a loop of the page with `objective` has found, from the start on."""
    return np.array([np.zeros(3), *(weights for weights, _ in page[name])])


# ----------------------------------------------------------------------------------------------------------- recipes


def decaying(schedule: Callable[[Any], Any]) -> Any:
    """Decay of the weights and of the learning rate, by a schedule in double precision."""
    return optax.chain(
        optax.add_decayed_weights(0.01), optax.sgd(lambda step: schedule(jnp.asarray(step, jnp.float64)))
    )


CLIPPING = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.5))
# By section: what the page calls the weights of its loop with `objective`, and the optimizer.
RECIPES = {
    "The loop": ("plain", optax.sgd(0.5)),
    "Momentum": ("momentum", optax.sgd(0.1, momentum=0.9)),
    "Adam": ("adam", optax.adam(0.1)),
    "Decay": ("decay", decaying(lambda step: 0.5 * 0.95**step)),
    "Gradient clipping": ("clipped", CLIPPING),
}


@pytest.mark.parametrize("title", RECIPES)
def test_one_statement(title: str, ctx: SessionContext, data: tuple[Array, Array]) -> None:
    (statement,) = sql(title)
    close(by_step(rows_of(ctx, statement), "val"), trained(RECIPES[title][1], data).weights)


@pytest.mark.parametrize("title", RECIPES)
def test_a_statement_for_each_step(title: str, page: dict[str, Any], data: tuple[Array, Array]) -> None:
    start, step, _ = parts(title)
    close(by_step(looped(page, start, step), "val"), trained(RECIPES[title][1], data).weights)


@pytest.mark.parametrize("title", RECIPES)
def test_objective(title: str, page: dict[str, Any], data: tuple[Array, Array]) -> None:
    name, optimizer = RECIPES[title]
    close(at_client(page, name), trained(optimizer, data).weights)


def test_the_loop_of_the_page_is_that_of_the_statement(page: dict[str, Any], data: tuple[Array, Array]) -> None:
    start, step, _ = parts("The loop")
    assert page["descent"].split() == step.split()
    assert page["last"]["step"].to_pylist() == [STEPS] * 3
    close(by_step(looped(page, start, page["descent"]), "val")[-1], trained(optax.sgd(0.5), data).weights[-1])


def test_the_loss_is_that_from_which_a_step_starts(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    losses = by_step(rows_of(ctx, sql("The loop")[0]), "loss")
    assert np.isnan(losses[0]).all()
    expected = [logistic(weights, *data) for weights in trained(optax.sgd(0.5), data).weights[:-1]]
    close(losses[1:], np.repeat(expected, 3).reshape(-1, 3))


def test_the_last_weights_alone(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    (result,) = re.findall(r"`(SELECT inp, val FROM fit [^`]+)`", section("The loop"))
    rows = rows_of(ctx, parts("The loop").whole(result)).sort_by("inp")
    close(rows["val"].to_numpy(), trained(optax.sgd(0.5), data).weights[-1])


def test_what_a_step_remembers(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    momentum = rows_of(ctx, sql("Momentum")[0])
    close(by_step(momentum, "m"), [state[0].trace for state in trained(RECIPES["Momentum"][1], data).states])
    adam, states = rows_of(ctx, sql("Adam")[0]), trained(RECIPES["Adam"][1], data).states
    close(by_step(adam, "m"), [state[0].mu for state in states])
    close(by_step(adam, "v"), [state[0].nu for state in states])


# ------------------------------------------------------------------------------------------------------------- decay


def schedules() -> dict[str, tuple[str, str]]:
    """The schedules of the page: in SQL, and in optax."""
    lines = re.findall(r"^\| ([\w ]+) \| `([^`]+)` \| `([^`]+)` \|$", section("Decay"), re.MULTILINE)
    return {name: (in_sql, in_optax) for name, in_sql, in_optax in lines}


def test_schedules(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    assert len(schedules()) == 4
    rates = set()
    for in_sql, in_optax in schedules().values():
        step = changed(parts("Decay").step, "0.5 * power(0.95, step)", in_sql)
        schedule = eval(in_optax, vars(optax))
        found = rows_of(ctx, parts("Decay")._replace(step=step).whole())
        close(by_step(found, "val"), trained(decaying(schedule), data).weights)
        rates.add(tuple(float(schedule(step)) for step in range(STEPS)))
    assert len(rates) == 4


def test_adamw(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    recipe = parts("Adam")
    step, number = re.subn(
        r"val - 0\.1 \* (.+), m, v FROM moments$", r"val - 0.1 * (\1 + 0.01 * val), m, v FROM moments", recipe.step
    )
    assert number == 1
    (optimizer,) = re.findall(r"`optax\.(adamw\([^`]+\))`", section("Decay"))
    found = rows_of(ctx, recipe._replace(step=step).whole())
    close(by_step(found, "val"), trained(eval(optimizer, vars(optax)), data).weights)


# ------------------------------------------------------------------------------------------------------ mini-batches


def test_mini_batches(ctx: SessionContext, page: dict[str, Any], tables: Tables, data: tuple[Array, Array]) -> None:
    step, sample = (tables["batches"][name].to_numpy() for name in ("step", "sample"))
    drawn = [sample[step == number] for number in range(STEPS)]
    for epoch in range(5):
        assert sorted(np.concatenate(drawn[4 * epoch : 4 * epoch + 4])) == list(range(48))
    expected = trained(optax.sgd(0.5), data, batch=lambda number: drawn[number]).weights
    (statement,) = sql("Mini-batches")
    close(by_step(rows_of(ctx, statement), "val"), expected)
    start, term, _ = parts("Mini-batches")
    close(by_step(looped(page, start, term), "val"), expected)
    close(at_client(page, "mini"), expected)
    assert np.abs(expected - trained(optax.sgd(0.5), data).weights).max() > 0.01


def test_mini_batches_by_arithmetic(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    (condition,) = re.findall(r"`(sample % [^`]+)`", section("Mini-batches"))
    recipe = parts("Mini-batches")
    drawn = "FROM (SELECT MAX(step) AS step FROM fit) AS s JOIN batches AS b ON b.step = s.step"
    counted = f"FROM (SELECT MAX(step) AS step FROM fit) AS s CROSS JOIN y AS b WHERE {condition}"
    found = rows_of(ctx, recipe._replace(step=changed(recipe.step, drawn, counted)).whole())
    expected = trained(optax.sgd(0.5), data, batch=lambda number: slice(number % 4, None, 4))
    close(by_step(found, "val"), expected.weights)


# ---------------------------------------------------------------------------------------------- clipping and stopping


def test_the_norm_is_that_of_all_rows(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    norms = by_step(rows_of(ctx, sql("Gradient clipping")[0]), "norm")
    expected = [np.linalg.norm(gradient(weights, *data)) for weights in trained(CLIPPING, data).weights[:-1]]
    close(norms[1:], np.repeat(expected, 3).reshape(-1, 3))
    # Some gradients are clipped, and some are not.
    assert max(expected) > 0.1 > min(expected)


def test_the_loop_ends_where_the_loss_is_flat(ctx: SessionContext, data: tuple[Array, Array]) -> None:
    (condition,) = re.findall(r"`WHERE (norm > [^`]+)`", section("Early stopping"))
    recipe = parts("Gradient clipping")
    step = changed(recipe.step, "step < 20", f"step < 200 AND {condition}")
    weights = trained(CLIPPING, data, 200).weights
    norms = [np.linalg.norm(gradient(each, *data)) for each in weights]
    limit = float(condition.partition("> ")[2])
    last = next(number for number, norm in enumerate(norms) if norm <= limit) + 1
    assert 20 < last < 200
    close(by_step(rows_of(ctx, recipe._replace(step=step).whole()), "val"), weights[: last + 1])


class Stopped(NamedTuple):
    """What early stopping has in each step, and finds."""

    weights: list[Array]
    kept: list[Array]
    best: list[float]
    since: list[int]


@pytest.fixture(scope="module")
def stopped(data: tuple[Array, Array]) -> Stopped:
    x, y = data
    out = np.arange(48) % 3 == 0
    found = Stopped([np.zeros(3)], [np.zeros(3)], [math.inf], [0])
    while len(found.weights) <= 200 and found.since[-1] < 3:
        weights = found.weights[-1]
        loss = float(logistic(weights, x[out], y[out]))
        better = loss < found.best[-1]
        found.weights.append(weights - 0.5 * gradient(weights, x[~out], y[~out]))
        found.kept.append(weights if better else found.kept[-1])
        found.best.append(min(loss, found.best[-1]))
        found.since.append(0 if better else found.since[-1] + 1)
    # It ends neither at once nor at the limit, and what it keeps is three steps old.
    assert 10 < len(found.weights) < 100
    np.testing.assert_array_equal(found.kept[-1], found.weights[-5])
    return found


def test_early_stopping(ctx: SessionContext, page: dict[str, Any], stopped: Stopped) -> None:
    recipe = parts("Early stopping")
    for rows in (rows_of(ctx, recipe.whole()), looped(page, recipe.start, recipe.step)):
        close(by_step(rows, "val"), stopped.weights)
        close(by_step(rows, "kept"), stopped.kept)
        close(by_step(rows, "best"), np.repeat(stopped.best, 3).reshape(-1, 3))
        np.testing.assert_array_equal(by_step(rows, "since"), np.repeat(stopped.since, 3).reshape(-1, 3))
    (statement,) = sql("Early stopping")
    result = rows_of(ctx, statement).sort_by("inp")
    close(result["val"].to_numpy(), stopped.kept[-1])
    assert result["steps"].to_pylist() == [len(stopped.weights) - 1] * 3


def test_early_stopping_by_a_client(runs: dict[str, dict[str, Any]], stopped: Stopped) -> None:
    names = runs["Early stopping"]
    close(names["weights"], stopped.weights[-1])
    close(names["kept"], stopped.kept[-1])
    close(names["best"], stopped.best[-1])
    assert (names["steps"], names["since"]) == (len(stopped.weights) - 1, stopped.since[-1])


# ---------------------------------------------------------------------------------------------------- several models


def test_several_models(ctx: SessionContext, page: dict[str, Any], tables: Tables, data: tuple[Array, Array]) -> None:
    recipe = parts("Several models at once")
    (statement,) = sql("Several models at once")
    models = dict(zip(*(tables["models"][name].to_pylist() for name in ("model", "rate")), strict=True))
    assert list(page["models"]) == list(models.values())
    assert len(models) == 3
    for rows in (rows_of(ctx, statement), looped(page, recipe.start, recipe.step)):
        assert rows.num_rows == 3 * 3 * (STEPS + 1)
        for model, rate in models.items():
            own = rows.filter(pa.compute.equal(rows["model"], model))
            expected = trained(optax.sgd(rate), data).weights
            close(by_step(own, "val"), expected)
            losses = [logistic(weights, *data) for weights in expected[:-1]]
            close(by_step(own, "loss")[1:], np.repeat(losses, 3).reshape(-1, 3))
    for rate, found in page["models"].items():
        close([weights for weights, _ in found], trained(optax.sgd(rate), data).weights[1:])


# --------------------------------------------------------------------------------------------- keeping and going on

MADE, FIRST, INSERTED, READ, EXTERNAL, SETTING = range(6)


@functools.cache
def keeping() -> list[str]:
    """The statements of the section, in their order on the page."""
    statements = sql("Keeping the steps")
    begin = ("CREATE TABLE", "INSERT INTO steps SELECT", "INSERT INTO steps\nWITH", "SELECT", "CREATE EXTERNAL", "SET ")
    assert [statement.startswith(each) for statement, each in zip(statements, begin, strict=True)] == [True] * 6
    return statements


@pytest.fixture(params=["memory", "parquet"])
def kept(request: pytest.FixtureRequest, ctx: SessionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session with the table `steps`, and the table as another session has it."""
    monkeypatch.chdir(tmp_path)
    in_memory = request.param == "memory"
    if not in_memory:
        (tmp_path / "steps").mkdir()
    ctx.sql(keeping()[MADE]).collect() if in_memory else open_folder(ctx)
    ctx.sql(keeping()[FIRST]).collect()
    return ctx, lambda: ctx if in_memory else again(ctx)


def again(ctx: SessionContext) -> SessionContext:
    """A new session, which has the tables of another and the files in `steps`."""
    names = ("x", "y", "w")
    other = sessions.session({name: pa.table(ctx.table(name).to_arrow_table()) for name in names})
    open_folder(other)
    return other


def folder_statements() -> list[str]:
    """What a session needs for the table in a folder."""
    return [keeping()[SETTING].strip(), keeping()[EXTERNAL]]


def open_folder(ctx: SessionContext) -> None:
    for statement in folder_statements():
        ctx.sql(statement).collect()


def momentum(data: tuple[Array, Array], steps: int) -> Trained:
    return trained(optax.sgd(0.1, momentum=0.9), data, steps)


def check_kept(ctx: SessionContext, data: tuple[Array, Array], steps: int) -> None:
    """Compares the table `steps` with an uninterrupted training."""
    rows, expected = rows_of(ctx, keeping()[READ]), momentum(data, steps)
    close(by_step(rows, "val"), expected.weights)
    close(by_step(rows, "m"), [state[0].trace for state in expected.states])


def test_each_execution_adds_ten_steps(kept: Any, data: tuple[Array, Array]) -> None:
    ctx, reopened = kept
    for part in range(3):
        check_kept(ctx, data, 10 * part)
        ctx.sql(keeping()[INSERTED]).collect()
    check_kept(reopened(), data, 30)
    if (folder := Path("steps")).exists():
        assert len([*folder.iterdir()]) == 4


def test_why_the_steps_are_read_in_order(ctx: SessionContext) -> None:
    for number in (MADE, FIRST, INSERTED):
        ctx.sql(keeping()[number]).collect()
    unordered = ctx.sql(keeping()[READ].partition("ORDER BY")[0])
    if ON_STOCK:
        assert unordered.to_arrow_table().num_rows == 33
    else:
        with pytest.raises(pa.ArrowInvalid, match="Schema at index 1 was different"):
            unordered.to_arrow_table()


def test_an_interruption(kept: Any, data: tuple[Array, Array]) -> None:
    ctx, reopened = kept
    ctx.sql(keeping()[INSERTED]).collect()

    def interrupt(step: xql_ffi.Step) -> None:
        if step.number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), xql_ffi.progress(interrupt):
        ctx.sql(keeping()[INSERTED]).collect()
    ctx = reopened()
    check_kept(ctx, data, 10)
    ctx.sql(keeping()[INSERTED]).collect()
    check_kept(ctx, data, 20)


def test_the_process_ends(ctx: SessionContext, tables: Tables, tmp_path: Path, data: tuple[Array, Array]) -> None:
    for name in ("x", "y", "w"):
        pq.write_table(tables[name], tmp_path / f"{name}.parquet")
    (tmp_path / "steps").mkdir()
    program = f"""
import os
import xql_ffi
from datafusion import SessionContext

os.chdir({str(tmp_path)!r})
ctx = xql_ffi.register(SessionContext())
for name in "xyw":
    ctx.register_parquet(name, f"{{name}}.parquet")
for statement in {[*folder_statements(), keeping()[FIRST], keeping()[INSERTED]]!r}:
    ctx.sql(statement).collect()
with xql_ffi.progress(lambda step: os._exit(7) if step.number == 4 else None):
    ctx.sql({keeping()[INSERTED]!r}).collect()
"""
    process = run_python(["-c", program], engine=True)
    assert process.returncode == 7, process.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        open_folder(ctx)
        check_kept(ctx, data, 10)
        ctx.sql(keeping()[INSERTED]).collect()
        check_kept(ctx, data, 20)


@pytest.mark.parametrize("title", RECIPES)
def test_a_table_and_a_file_keep_a_statement(
    title: str, ctx: SessionContext, tmp_path: Path, data: tuple[Array, Array]
) -> None:
    (statement,), expected = sql(title), trained(RECIPES[title][1], data).weights
    ctx.sql(f"CREATE TABLE steps AS {statement}").collect()
    close(by_step(rows_of(ctx, "SELECT * FROM steps"), "val"), expected)
    ctx.sql(f"COPY ({statement}) TO '{tmp_path / 'steps.parquet'}'").collect()
    close(by_step(pq.read_table(tmp_path / "steps.parquet"), "val"), expected)


def files(page: dict[str, Any]) -> Iterator[pa.Table]:
    """What the page's loop has written, step by step."""
    yield from (pq.read_table(path) for path in sorted(page["folder"].glob("*.parquet")))


def test_a_client_that_goes_on(page: dict[str, Any], data: tuple[Array, Array]) -> None:
    assert page["step"].split() == parts("Momentum").step.split()
    assert section("Keeping the steps").count("if number == 12:\n        break") == 1
    found = list(files(page))
    assert len(found) == STEPS + 1
    rows, expected = pa.concat_tables([each.cast(found[0].schema) for each in found]), momentum(data, STEPS)
    close(by_step(rows, "val"), expected.weights)
    close(by_step(rows, "m"), [state[0].trace for state in expected.states])


def test_an_optimizer_that_goes_on(page: dict[str, Any], data: tuple[Array, Array]) -> None:
    expected = trained(optax.adam(0.1), data).weights
    assert len(page["rest"]) == 8
    close([weights for weights, _ in page["rest"]], expected[13:])


# ----------------------------------------------------------------------------------------------------------- figures


def table_of(text: str) -> list[dict[str, str]]:
    """The table of a text whose first column is `rows`."""
    found = re.search(r"^\| rows \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    assert found
    head, _, *lines = ([cell.strip() for cell in line.strip("| ").split("|")] for line in found[0].splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_figures_are_those_of_the_program() -> None:
    measured = {line["rows"]: line for line in table_of((DOCS / "figures.md").read_text(encoding="utf-8"))}
    shown = table_of(section("Which of the two when"))
    assert len(shown) == 4
    for line in shown:
        assert line == {column: measured[line["rows"]][column] for column in line}


def test_the_ratio_is_that_of_the_other_program() -> None:
    (shown,) = re.findall(r"\[([\d.]+) of the processor time\]", section("Which of the two when"))
    line = f"| training: one statement over a client's steps | {shown} |"
    assert line in (DOCS / "figures.md").read_text(encoding="utf-8")
