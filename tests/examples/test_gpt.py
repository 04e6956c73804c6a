"""The model of ``examples/gpt.py`` in small, against its twin in JAX, which is compared with one written out here."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.programs import load

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load("examples/gpt")


def test_losses_are_those_of_jax(example: ModuleType) -> None:
    sizes = example.Sizes(layers=2, heads=2, width=8, tokens=6, sequences=2)
    trained, ctx, batches = example.train(sizes, steps=4)
    np.testing.assert_allclose(trained.losses, trained.in_jax, rtol=1e-9)
    assert len(set(trained.losses)) == 4
    trained.objective.update(trained.at)
    # More characters than the model reads at once.
    said = example.sample(ctx, sizes, batches.characters, "A gradient", 8)
    assert said == sampled_in_jax(example, trained, batches.characters, "A gradient", 8, sizes)


def sampled_in_jax(
    example: ModuleType, trained: Any, characters: list[str], prompt: str, length: int, sizes: Any
) -> str:
    arrays = example.weights(sizes, len(characters))
    parts = np.split(trained.at, np.cumsum([array.size for array in arrays.values()])[:-1])
    w = {name: part.reshape(array.shape) for (name, array), part in zip(arrays.items(), parts, strict=True)}
    tokens = [characters.index(character) for character in prompt]
    for draw in np.random.default_rng(example.SEED + 2).random(length):
        last = example.logits_in_jax(w, np.array([tokens[-sizes.tokens :]]), sizes)[0, -1]
        upto = np.cumsum(np.exp(last - last.max()))
        tokens.append(int(np.searchsorted(upto, draw * upto[-1])))
    return "".join(characters[token] for token in tokens)


def test_the_twin_in_jax(example: ModuleType) -> None:
    """One head of one layer, character by character."""
    sizes = example.Sizes(layers=1, heads=1, width=4, tokens=3, sequences=1)
    w = {name: jnp.asarray(array) * 20 for name, array in example.weights(sizes, 5).items()}
    tokens, following = np.array([[1, 4, 2]]), np.array([[4, 2, 0]])

    def norm(x: jax.Array, by: jax.Array) -> jax.Array:
        return (x - x.mean()) / jnp.sqrt(x.var() + 1e-5) * by

    x = [w["wte"][token] + w["wpe"][place] for place, token in enumerate(tokens[0])]
    n = [norm(each, w["ln1_0"]) for each in x]
    losses = []
    for place in range(3):
        odds = jnp.exp(jnp.array([n[place] @ w["wq_0"] @ (n[u] @ w["wk_0"]) / 2 for u in range(place + 1)]))
        read = sum(odd / odds.sum() * (n[u] @ w["wv_0"]) for u, odd in enumerate(odds))
        y = x[place] + read @ w["wo_0"]
        z = y + jax.nn.gelu(norm(y, w["ln2_0"]) @ w["w1_0"], approximate=True) @ w["w2_0"]
        logits = norm(z, w["lnf"]) @ w["wte"].T
        losses.append(jnp.log(jnp.exp(logits).sum()) - logits[following[0, place]])
    found = example.loss_in_jax(w, tokens, following, sizes)
    assert float(found) == pytest.approx(float(jnp.mean(jnp.array(losses))), rel=1e-12)
