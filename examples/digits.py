"""A network that reads handwritten digits, trained inside SQL.

    python examples/digits.py [--output DIR] [--steps N]

The 1,797 digits of scikit-learn, opened with xarray and registered as a SQL table by xarray-sql, train a network of two
hidden layers. Its weights are the rows of one table, and each is moved by ``grad(loss, val)``, the derivative of the
loss by the value in its own row:

1. Training: all steps of gradient descent on mini-batches are one recursive query, beside the same program in JAX.
2. Reading: the digits that the network has not seen.
3. Saliency: which pixels speak for the digit that was read? The derivative of its score by each pixel.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xarray as xr
from matplotlib.figure import Figure
from report import heading, save
from sklearn.datasets import load_digits
from xarray_sql import XarrayContext

from xql_ffi import register

HERE = Path(__file__).resolve().parent

Array = npt.NDArray[np.float64]

SIZES = (64, 32, 16, 10)  # units of the input, of the two hidden layers and of the output
HELD_OUT = 7  # every 7th image is kept for the test
BATCHES = 16  # each step takes every 16th of the others
RATE = 1.0
STEPS = 200
SEED = 0

# --------------------------------------------------------------------------------------------------------------------
# The queries
#
# A weight is a row of (layer, inp, out, val). In each layer a unit -1 has the value 1: the weights from it are biases.
# --------------------------------------------------------------------------------------------------------------------


def network(weights: str) -> str:
    """The network as common table expressions over a relation of weights and the images of one called ``batch``.

    The last, ``scores``, has a row for each image and digit.
    """
    return f"""
    inputs AS (
        SELECT p.image, p.unit, p.brightness AS val FROM pixels p JOIN batch b ON p.image = b.image
        UNION ALL SELECT image, -1, 1.0 FROM batch),
    hidden AS (
        SELECT i.image, w.out AS unit, tanh(SUM(i.val * w.val)) AS val
        FROM inputs i JOIN {weights} w ON w.layer = 1 AND w.inp = i.unit GROUP BY i.image, w.out
        UNION ALL SELECT image, -1, 1.0 FROM batch),
    deeper AS (
        SELECT h.image, w.out AS unit, tanh(SUM(h.val * w.val)) AS val
        FROM hidden h JOIN {weights} w ON w.layer = 2 AND w.inp = h.unit GROUP BY h.image, w.out
        UNION ALL SELECT image, -1, 1.0 FROM batch),
    scores AS (
        SELECT d.image, w.out AS digit, SUM(d.val * w.val) AS score
        FROM deeper d JOIN {weights} w ON w.layer = 3 AND w.inp = d.unit GROUP BY d.image, w.out)"""


PIXELS = "CREATE OR REPLACE TABLE pixels AS SELECT image, y, x, 8 * y + x AS unit, brightness FROM digits"


def training(steps: int) -> str:
    """Gradient descent: the weights of every step, and the loss of the step before, from which it came."""
    return f"""
    WITH RECURSIVE training AS (
        SELECT 0 AS step, layer, inp, out, val, CAST(NULL AS DOUBLE) AS loss FROM initial
        UNION ALL (
        WITH batch AS (
            SELECT image, label FROM labels CROSS JOIN (SELECT MAX(step) AS step FROM training)
            WHERE image % {HELD_OUT} <> 0 AND image % {BATCHES} = step % {BATCHES}),{network("training")},
        entropy AS (
            SELECT s.image, ln(SUM(exp(s.score))) - SUM(s.score) FILTER (WHERE s.digit = b.label) AS val
            FROM scores s JOIN batch b ON s.image = b.image GROUP BY s.image),
        loss AS (
            SELECT AVG(val) AS val FROM entropy)
        SELECT step + 1, layer, inp, out, val - {RATE} * grad((SELECT val FROM loss), val), (SELECT val FROM loss)
        FROM training WHERE step < {steps}))
    SELECT step, layer, inp, out, val, loss FROM training
"""


READING = f"""
    WITH batch AS (
        SELECT image, label FROM labels WHERE image % {HELD_OUT} = 0),{network("weights")}
    SELECT b.image, b.label, FIRST_VALUE(s.digit ORDER BY s.score DESC) AS digit, MAX(s.score) AS score
    FROM batch b JOIN scores s ON s.image = b.image GROUP BY b.image, b.label ORDER BY b.image
"""

# The sum over images has the derivative by a pixel that the score of its own image has.
SALIENCY = f"""
    WITH batch AS (
        SELECT image, label FROM labels WHERE image % {HELD_OUT} = 0),{network("weights")},
    best AS (
        SELECT image, MAX(score) AS score FROM scores GROUP BY image)
    SELECT image, y, x, brightness, grad((SELECT SUM(score) FROM best), brightness) AS saliency
    FROM pixels WHERE image % {HELD_OUT} = 0 ORDER BY image, y, x
"""

# --------------------------------------------------------------------------------------------------------------------
# Running them
# --------------------------------------------------------------------------------------------------------------------


def open_digits() -> tuple[xr.Dataset, xr.Dataset]:
    """The images, 8 x 8 pixels of brightness from 0 to 1, and the digit that each shows."""
    digits = load_digits()
    coordinates = {"image": np.arange(len(digits.target)), "y": np.arange(8), "x": np.arange(8)}
    images = xr.Dataset({"brightness": (("image", "y", "x"), digits.images / 16.0)}, coordinates)
    labels = xr.Dataset({"label": ("image", digits.target)}, {"image": coordinates["image"]})
    return images, labels


def initial_weights() -> pa.Table:
    """Weights drawn at random, of a variance of 1 over the number of inputs, and biases of 0."""
    generator = np.random.default_rng(SEED)
    columns: dict[str, list[npt.NDArray[np.int64] | Array]] = {"layer": [], "inp": [], "out": [], "val": []}
    for layer, (inputs, outputs) in enumerate(pairwise(SIZES), start=1):
        values = generator.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        inp, out = np.indices((inputs + 1, outputs))
        inp[-1] = -1
        columns["layer"].append(np.full(inp.size, layer))
        columns["inp"].append(inp.ravel())
        columns["out"].append(out.ravel())
        columns["val"].append(np.append(values.ravel(), np.zeros(outputs)))
    return pa.table({name: np.concatenate(parts) for name, parts in columns.items()})


def connect(images: xr.Dataset, labels: xr.Dataset) -> XarrayContext:
    """A SQL session that knows the tables ``digits``, ``pixels`` and ``labels``, and the ``initial`` weights."""
    ctx = register(XarrayContext())
    chunks = {"image": images.sizes["image"]}
    ctx.from_dataset("digits", images, chunks=chunks)
    ctx.from_dataset("truth", labels, chunks=chunks)
    # Every step reads these: a table of the session is in memory.
    ctx.sql(PIXELS)
    ctx.sql("CREATE OR REPLACE TABLE labels AS SELECT image, label FROM truth")
    ctx.from_arrow(initial_weights(), name="initial")
    return ctx


def train(
    ctx: XarrayContext, steps: int = STEPS, progress: Callable[[int, float], None] = lambda step, loss: None
) -> Array:
    """Trains the network, keeps the last weights as table ``weights``, and gives the loss before every step.

    The rows of a step arrive when it is done, and ``progress`` is called with its number and the loss before it.
    """
    losses: list[float] = []
    last: list[pa.RecordBatch] = []
    for arrived in ctx.sql(training(steps)).execute_stream():
        rows = arrived.to_pyarrow()
        step = rows["step"][0].as_py()
        if step > len(losses):
            losses.append(rows["loss"][0].as_py())
            progress(step, losses[-1])
            last = []
        last.append(rows)
    if ctx.table_exist("weights"):
        ctx.deregister_table("weights")
    ctx.from_arrow(pa.Table.from_batches(last).select(["layer", "inp", "out", "val"]), name="weights")
    return np.array(losses)


def reading(ctx: XarrayContext) -> pa.Table:
    """The digit that the network reads in each held-out image, beside the one that it shows."""
    return ctx.sql(READING).to_arrow_table()


def saliency(ctx: XarrayContext) -> xr.Dataset:
    """The derivative of the score of the digit that was read, by every pixel of every held-out image."""
    result: xr.Dataset = ctx.sql(SALIENCY).to_dataset(dims=["image", "y", "x"])
    return result


def train_in_jax(images: xr.Dataset, labels: xr.Dataset, steps: int = STEPS) -> Array:
    """The loss before every step, of the same program in JAX and double precision."""
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    x, y = images["brightness"].values.reshape(-1, 64), labels["label"].values
    number = np.arange(len(y))

    def loss(weights: list[jax.Array], x: Array, y: npt.NDArray[np.int64]) -> jax.Array:
        values = jnp.asarray(x)
        for layer, weight in enumerate(weights):
            sums = values @ weight[:-1] + weight[-1]
            values = jnp.tanh(sums) if layer < len(weights) - 1 else sums
        return jnp.mean(jax.nn.logsumexp(values, axis=1) - values[jnp.arange(len(y)), y])

    step = jax.jit(jax.value_and_grad(loss))
    table = initial_weights()
    values, layers = table["val"].to_numpy(), table["layer"].to_numpy()
    weights = [jnp.asarray(values[layers == n + 1].reshape(-1, outputs)) for n, outputs in enumerate(SIZES[1:])]
    losses = []
    for n in range(steps):
        batch = (number % HELD_OUT != 0) & (number % BATCHES == n % BATCHES)
        value, gradients = step(weights, x[batch], y[batch])
        weights = [weight - RATE * gradient for weight, gradient in zip(weights, gradients, strict=True)]
        losses.append(float(value))
    return np.array(losses)


# --------------------------------------------------------------------------------------------------------------------
# Figures
# --------------------------------------------------------------------------------------------------------------------


def training_figure(losses: Array, reference: Array) -> Figure:
    """The loss by step, over that of JAX, and how far the two are apart."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    descent, difference = figure.subplots(1, 2)
    steps = np.arange(len(losses))
    descent.semilogy(steps, reference, color="orange", linewidth=5, alpha=0.6, label="JAX")
    descent.semilogy(steps, losses, color="tab:blue", linewidth=1.2, label="one recursive SQL statement")
    descent.set(xlabel="step", ylabel="loss of the step's batch")
    descent.set_title("Cross entropy by step", fontsize=10)
    descent.legend(frameon=False)
    descent.grid(alpha=0.3)
    difference.semilogy(steps, np.maximum(np.abs(losses - reference), 1e-17), ".", ms=4)
    difference.set(xlabel="step", ylabel="|SQL - JAX|", ylim=(1e-17, 1e-9))
    difference.set_title("Difference of the two losses", fontsize=10)
    difference.grid(alpha=0.3)
    return figure


def reading_figure(images: xr.Dataset, read: pa.Table, columns: int = 16, rows: int = 4) -> Figure:
    """Held-out images with the digits read: first those that were misread."""
    found = read.to_pylist()
    found.sort(key=lambda row: (row["digit"] == row["label"], row["image"]))
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, row in zip(figure.subplots(rows, columns).flat, found, strict=False):
        axes.imshow(images["brightness"].sel(image=row["image"]), cmap="gray_r", vmin=0, vmax=1)
        wrong = row["digit"] != row["label"]
        title = f"{row['digit']}, is {row['label']}" if wrong else f"{row['digit']}"
        axes.set_title(title, fontsize=8, pad=2, color="tab:red" if wrong else "black")
        axes.set(xticks=[], yticks=[])
    right = sum(row["digit"] == row["label"] for row in found)
    figure.suptitle(f"Held-out images and what the network reads: {right} of {len(found)} right", fontsize=11)
    return figure


def saliency_figure(result: xr.Dataset, read: pa.Table) -> Figure:
    """The first images of each digit that were read right, and the derivative of their score by each pixel."""
    first: dict[int, int] = {}
    for row in read.to_pylist():
        if row["digit"] == row["label"]:
            first.setdefault(row["digit"], row["image"])
    chosen = [first[digit] for digit in sorted(first)]
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    above, below = figure.subplots(2, len(chosen), squeeze=False)
    for image, shown, derived in zip(chosen, above, below, strict=True):
        shown.imshow(result["brightness"].sel(image=image), cmap="gray_r", vmin=0, vmax=1)
        derivative = result["saliency"].sel(image=image)
        mesh = derived.imshow(derivative / abs(derivative).max(), cmap="RdBu_r", vmin=-1, vmax=1)
        for axes in (shown, derived):
            axes.set(xticks=[], yticks=[])
    figure.colorbar(mesh, ax=below, label="of the largest", pad=0.01)
    figure.suptitle("Images, and which pixels speak for (red) and against (blue) the digit that is read", fontsize=11)
    return figure


# --------------------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the network and show what it reads: numbers to the terminal, figures to the output directory."""
    parser = argparse.ArgumentParser(description="A network that reads handwritten digits, trained inside SQL.")
    parser.add_argument("--output", type=Path, default=HERE / "output", help="directory of the figures (%(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of gradient descent (%(default)s)")
    options = parser.parse_args(arguments)
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    images, labels = open_digits()
    ctx = connect(images, labels)

    heading("Training: gradient descent by row, in one recursive query")
    print(training(options.steps))
    every = max(options.steps // 20, 1)

    def progress(step: int, loss: float) -> None:
        if step == 1 or step % every == 0:
            print(f"  step {step:4}   loss {loss:.6f}   {time.perf_counter() - started:6.1f} s", flush=True)

    losses = train(ctx, options.steps, progress)
    reference = train_in_jax(images, labels, options.steps)
    apart = float(np.abs(losses - reference).max())
    print(f"\n  {initial_weights().num_rows:,} weights; the losses of JAX at every step, to {max(apart, 1e-15):.0e}")
    save(training_figure(losses, reference), output / "digits-training.png")

    heading("Reading: images that the network has not seen")
    read = reading(ctx)
    right = sum(row["digit"] == row["label"] for row in read.to_pylist())
    print(f"  {right} of {read.num_rows} held-out images right: {100.0 * right / read.num_rows:.1f} %")
    save(reading_figure(images, read), output / "digits-reading.png")

    heading("Saliency: the derivative of the score by each pixel")
    print(SALIENCY)
    save(saliency_figure(saliency(ctx).load(), read), output / "digits-saliency.png")

    print(f"\n{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
