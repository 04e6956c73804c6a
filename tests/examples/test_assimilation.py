"""The results of ``examples/assimilation.py``, against JAX in double precision.

The model, the cost and the algorithm are written here once more; the SQL and JAX of the example are not used. Sums of a
few hundred terms in another order, through at most 16 steps of a chaotic model: 1e-10 of the largest.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from support.programs import load

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Array = npt.NDArray[np.float64]

EXPERIMENTS, CYCLES = 2, 2
NEAR = 1e-10
FIRST_CYCLE = 1e-8


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load("examples/assimilation")


@pytest.fixture(scope="module")
def ctx(example: ModuleType) -> Any:
    return example.connect()


@pytest.fixture(scope="module")
def true(example: ModuleType, ctx: Any) -> Array:
    fields: Array = example.truth(ctx, EXPERIMENTS, 20)
    return fields


@pytest.fixture(scope="module")
def observed(true: Array) -> Array:
    values: Array = true + np.random.default_rng(7).standard_normal(true.shape)
    return values


@jax.jit
def step(x: jax.Array) -> jax.Array:
    """A step of 0.05 of dx_i/dt = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + 8, by indexes modulo 40."""
    i = jnp.arange(40)

    def slopes(x: jax.Array) -> jax.Array:
        return (x[..., (i + 1) % 40] - x[..., (i - 2) % 40]) * x[..., (i - 1) % 40] - x + 8

    k1 = slopes(x)
    k2 = slopes(x + 0.025 * k1)
    k3 = slopes(x + 0.025 * k2)
    k4 = slopes(x + 0.05 * k3)
    return x + (0.05 * k1 + 0.1 * k2 + 0.1 * k3 + 0.05 * k4) / 6


def after(x: jax.Array, steps: int) -> jax.Array:
    for _ in range(steps):
        x = step(x)
    return x


def assert_near(found: Array, expected: Any, tolerance: float = NEAR) -> None:
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


def test_truth_is_a_run_of_the_model(true: Array) -> None:
    assert true.shape == (21, EXPERIMENTS, 40)
    assert 3.0 < true.std() < 4.5  # 3.64 in the long run
    for before, found in pairwise(true):
        assert_near(found, step(jnp.asarray(before)))


@pytest.mark.parametrize("name", ["0.2:1", "0.2:4", "0.05:4"])
def test_cost_and_gradient_are_those_of_jax(
    example: ModuleType, ctx: Any, true: Array, observed: Array, name: str
) -> None:
    steps, spread = {"0.2:1": (4, 0.2), "0.2:4": (16, 0.025), "0.05:4": (4, 0.05)}[name]
    background, fields = true[0] + 0.3, true[0] - 0.2 * np.cos(true[0])

    def cost(x: jax.Array) -> jax.Array:
        misfit = (after(x, steps) - observed[steps]) ** 2
        return 0.5 * jnp.sum(misfit) + 0.5 * jnp.sum((x - background) ** 2) / spread

    value, gradient = jax.value_and_grad(cost)(jnp.asarray(fields))
    found, slopes = example.cost_in_sql(ctx, example.SETTINGS[name], background, observed[steps])(fields.ravel())
    assert_near(np.array(found), value)
    assert_near(slopes.reshape(gradient.shape), gradient)


def test_the_first_cycle_is_that_of_jax(example: ModuleType, ctx: Any, true: Array, observed: Array) -> None:
    setting = example.SETTINGS["0.2:1"]
    cycles = example.assimilate(ctx, setting, true, observed, CYCLES)
    assert [cycle.step for cycle in cycles] == [0, 4]
    # The first background has errors of the assumed variance, drawn by the example.
    background = true[0] + np.sqrt(0.2) * np.random.default_rng(example.SEED + 1).standard_normal(true[0].shape)

    @jax.jit
    @jax.value_and_grad
    def cost(x: jax.Array) -> jax.Array:
        x = x.reshape(background.shape)
        return 0.5 * jnp.sum((after(x, 4) - observed[4]) ** 2) + 0.5 * jnp.sum((x - background) ** 2) / 0.2

    found = minimize(
        lambda x: tuple(map(np.asarray, cost(x))),
        background.ravel(),
        jac=True,
        method="L-BFGS-B",
        options=example.STOP,
    )
    fields = found.x.reshape(background.shape)
    np.testing.assert_allclose(cycles[0].fields[0], fields, rtol=0, atol=FIRST_CYCLE)
    analysis = np.asarray(after(jnp.asarray(fields), 4))
    assert_near(cycles[0].fields[4], analysis, FIRST_CYCLE)
    np.testing.assert_allclose(
        cycles[0].analysis, np.sqrt(np.mean((analysis - true[4]) ** 2, axis=1)), rtol=0, atol=FIRST_CYCLE
    )
    assert (cycles[0].analysis < cycles[0].background).all()


def test_flow_is_the_gradient_by_the_field_of_every_step(example: ModuleType, ctx: Any, true: Array) -> None:
    steps, target = 12, 5
    found = example.flow_of(ctx, true[0, 0], steps, target)
    assert found.shape == (steps + 1, 40)
    fields = [jnp.asarray(true[0, 0])]
    for _ in range(steps):
        fields.append(step(fields[-1]))
    expected = jnp.zeros(40).at[target].set(1.0)
    assert_near(found[steps], expected)
    pulled_back = jax.jit(lambda x, cotangent: jax.vjp(step, x)[1](cotangent)[0])
    for number in reversed(range(steps)):
        expected = pulled_back(fields[number], expected)
        assert_near(found[number], expected)


def test_one_command(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole example, made small: the errors as it goes, and a figure for each question."""
    output = tmp_path / "figures"
    size = ["--experiments", "2", "--cycles", "2", "--spin-up", "1", "--settings", "0.05:4"]
    example.main(["--output", str(output), *size])
    found = capsys.readouterr()
    lines = found.out.splitlines()
    titles = [lines[i - 1] for i, line in enumerate(lines) if line and set(line) == {"-"}]
    assert [title.split(":")[0] for title in titles] == ["Truth", "Assimilation", "Flow"]
    assert [line.split()[1] for line in lines if line.startswith("  cycle ")] == ["1", "2"]
    (mean,) = (line.split() for line in lines if line.startswith("  mean error "))
    assert 0 < float(mean[2]) < 1
    assert mean[-1] == "0.41"
    (near,) = (line for line in lines if "that JAX finds" in line)
    assert float(near.split()[-1]) < FIRST_CYCLE
    assert found.err.startswith("model step 0: ")
    assert "model step 240: " in found.err
    for name in ("fields", "errors", "flow"):
        figure = output / f"assimilation-{name}.png"
        assert figure.read_bytes().startswith(b"\x89PNG")
        assert any(str(figure) in line for line in lines)


def test_cycles_that_no_mean_counts_are_not_all(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        example.main(["--cycles", "3", "--spin-up", "3"])
    assert "no cycles after the spin-up" in capsys.readouterr().err
