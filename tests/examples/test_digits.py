"""The results of ``examples/digits.py``, against JAX in double precision on the same images.

The network, its training and the derivatives are written here once more; the SQL and JAX of the example are not used.
Losses are sums of a hundred terms in another order, repeated over the steps: 1e-9.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from sklearn.datasets import load_digits

from support.programs import load

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Array = npt.NDArray[np.float64]
Weights = tuple[jax.Array, ...]

STEPS = 100
LOSS = 1e-9
PIXEL = 1e-9


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load("examples/digits")


@pytest.fixture(scope="module")
def images() -> Array:
    values: Array = load_digits().data / 16.0
    return values


@pytest.fixture(scope="module")
def labels() -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = load_digits().target
    return values


@pytest.fixture(scope="module")
def ctx(example: ModuleType) -> Any:
    return example.connect(*example.open_digits())


@pytest.fixture(scope="module")
def progress() -> list[tuple[int, float]]:
    """What the training reports while it runs."""
    return []


@pytest.fixture(scope="module")
def losses(example: ModuleType, ctx: Any, progress: list[tuple[int, float]]) -> Array:
    """The loss before each step; the session has the trained weights from here on."""
    found: Array = example.train(ctx, STEPS, lambda step, loss: progress.append((step, loss)))
    return found


def weights_of(ctx: Any, table: str) -> Weights:
    """The weights of a table as matrices, the biases in the last row."""
    rows = ctx.sql(f"SELECT layer, inp, out, val FROM {table}").to_pylist()
    matrices = []
    for layer, shape in ((1, (65, 32)), (2, (33, 16)), (3, (17, 10))):
        matrix = np.full(shape, np.nan)
        for row in rows:
            if row["layer"] == layer:
                matrix[row["inp"], row["out"]] = row["val"]
        assert not np.isnan(matrix).any()
        matrices.append(jnp.asarray(matrix))
    return tuple(matrices)


def scores(weights: Weights, x: Any) -> jax.Array:
    first, second, third = weights
    x = jnp.tanh(x @ first[:64] + first[64])
    x = jnp.tanh(x @ second[:32] + second[32])
    result: jax.Array = x @ third[:16] + third[16]
    return result


def cross_entropy(weights: Weights, x: Array, y: npt.NDArray[np.int64]) -> jax.Array:
    loss: jax.Array = -jnp.mean(jax.nn.log_softmax(scores(weights, x))[jnp.arange(len(y)), y])
    return loss


@pytest.fixture(scope="module")
def reference(ctx: Any, images: Array, labels: npt.NDArray[np.int64]) -> tuple[Array, Weights]:
    """The loss before each step, and the weights after the last, by JAX."""
    weights = weights_of(ctx, "initial")
    value_and_grad = jax.jit(jax.value_and_grad(cross_entropy))
    losses = []
    for step in range(STEPS):
        batch = [n for n in range(step % 16, 1797, 16) if n % 7]
        loss, gradient = value_and_grad(weights, images[batch], labels[batch])
        weights = tuple(w - g for w, g in zip(weights, gradient, strict=True))
        losses.append(float(loss))
    return np.array(losses), weights


def test_tables_have_all_images(ctx: Any, images: Array, labels: npt.NDArray[np.int64]) -> None:
    pixels = ctx.sql("SELECT brightness, unit FROM pixels ORDER BY image, unit").to_arrow_table()
    np.testing.assert_array_equal(pixels["brightness"].to_numpy().reshape(images.shape), images)
    np.testing.assert_array_equal(pixels["unit"].to_numpy().reshape(images.shape)[0], np.arange(64))
    known = ctx.sql("SELECT label FROM labels ORDER BY image").to_arrow_table()
    np.testing.assert_array_equal(known["label"].to_numpy(), labels)


def test_loss_of_every_step_is_that_of_jax(losses: Array, reference: tuple[Array, Weights]) -> None:
    assert losses.shape == (STEPS,)
    np.testing.assert_allclose(losses, reference[0], rtol=LOSS, atol=0)


def test_weights_are_those_of_jax(ctx: Any, losses: Array, reference: tuple[Array, Weights]) -> None:
    for found, expected in zip(weights_of(ctx, "weights"), reference[1], strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_every_step_is_reported_when_it_is_done(losses: Array, progress: list[tuple[int, float]]) -> None:
    assert [step for step, _ in progress] == list(range(1, STEPS + 1))
    np.testing.assert_array_equal([loss for _, loss in progress], losses)


def test_more_than_95_percent_of_held_out_images_are_read(
    example: ModuleType, ctx: Any, losses: Array, images: Array, labels: npt.NDArray[np.int64]
) -> None:
    held_out = np.arange(0, 1797, 7)
    read = example.reading(ctx)
    np.testing.assert_array_equal(read["image"].to_numpy(), held_out)
    np.testing.assert_array_equal(read["label"].to_numpy(), labels[held_out])
    best = scores(weights_of(ctx, "weights"), images[held_out])
    np.testing.assert_array_equal(read["digit"].to_numpy(), best.argmax(axis=1))
    np.testing.assert_allclose(read["score"].to_numpy(), best.max(axis=1), rtol=0, atol=PIXEL)
    assert np.mean(read["digit"].to_numpy() == labels[held_out]) > 0.95


def test_saliency_is_the_gradient_by_the_image(example: ModuleType, ctx: Any, losses: Array, images: Array) -> None:
    result: xr.Dataset = example.saliency(ctx).load()
    held_out = np.arange(0, 1797, 7)
    np.testing.assert_array_equal(result["image"].values, held_out)
    weights = weights_of(ctx, "weights")
    gradient = jax.vmap(jax.grad(lambda x: scores(weights, x).max()))(images[held_out])
    np.testing.assert_allclose(result["saliency"].values.reshape(-1, 64), gradient, rtol=0, atol=PIXEL)
    np.testing.assert_array_equal(result["brightness"].values.reshape(-1, 64), images[held_out])


def test_one_command(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole example, with few steps: the loss as it goes, and a figure for each question."""
    output = tmp_path / "figures"
    example.main(["--output", str(output), "--steps", "3"])
    lines = capsys.readouterr().out.splitlines()
    titles = [lines[i - 1] for i, line in enumerate(lines) if line and set(line) == {"-"}]
    assert [title.split(":")[0] for title in titles] == ["Training", "Reading", "Saliency"]
    steps = [line.split()[1] for line in lines if line.startswith("  step ")]
    assert steps == ["1", "2", "3"]
    for name in ("training", "reading", "saliency"):
        figure = output / f"digits-{name}.png"
        assert figure.read_bytes().startswith(b"\x89PNG")
        assert any(str(figure) in line for line in lines)
