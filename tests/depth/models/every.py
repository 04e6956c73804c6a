"""All models by their names: what makes one of a depth, the depth of daily tests and a larger one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from depth.models import (
    autoencoder,
    batch_norm,
    convolution,
    experts,
    graph_network,
    heads,
    hidden_markov,
    kalman,
    memory_cells,
    neural_ode,
    ratings,
    residual,
    u_shaped,
    words,
)
from depth.models.model import Model


class Named(NamedTuple):
    """A model by its depth: its layers, rounds, times or steps."""

    make: Callable[[int], Model]
    daily: int
    deep: int


MODELS = {
    "residual network": Named(residual.model, 2, 8),
    "long short-term memory, unrolled": Named(memory_cells.unrolled, 2, 6),
    "long short-term memory, a recursion": Named(memory_cells.recursive, 2, 6),
    "u-shaped network": Named(u_shaped.model, 2, 4),
    **{f"mixture of experts, {way}": Named(partial(experts.model, way=way), 1, 3) for way in experts.BEST},
    "graph network": Named(graph_network.model, 2, 8),
    "graph network, a recursion": Named(graph_network.recursive, 2, 8),
    "variational autoencoder": Named(autoencoder.model, 1, 3),
    "kalman filter and smoother": Named(kalman.model, 3, 8),
    "convolution network": Named(convolution.model, 1, 3),
    "normalised batches": Named(batch_norm.model, 2, 6),
    "attention of several heads": Named(heads.model, 1, 4),
    "vectors of words": Named(words.model, 6, 40),
    "hidden markov model": Named(hidden_markov.model, 3, 8),
    "neural differential equation": Named(neural_ode.model, 2, 6),
    "ratings": Named(ratings.model, 1, 4),
}
