"""Times a step of training the GPT of `examples/gpt.py`, beside the same in JAX.

    build/fresh-55/bin/python bench/nanogpt.py [--layers 4] [--heads 4] [--width 128] [--tokens 64] [--sequences 12]

A step is the value of the loss and its gradient by all weights, in double precision: by an objective, whose first call
has been planned before, and by a function that JAX has compiled, each in one thread. As in training, the weights are
others in each step. The figures are processor time, the least of the rounds, and by how much the process grew at most
from before the objective was made to after them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import sys
from pathlib import Path

# Before JAX is imported, which reads it then.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import numpy as np
from datafusion import SessionConfig, SessionContext
from results import Column, Results, parse, seconds

import xql_ffi

sys.path.append(str(Path(__file__).parent.parent / "examples"))
import gpt


def peak() -> float:
    """The most memory that the process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(sizes: gpt.Sizes, rounds: int, results: Results) -> None:
    """Adds the figures of models of some sizes."""
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    batches = gpt.Batches(gpt.text(), sizes)
    arrays = gpt.weights(sizes, len(batches.characters))
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    for name, array in arrays.items():
        ctx.from_arrow(gpt.table(name, array), name=name)
    tokens, following = batches.arrays()
    ctx.from_arrow(gpt.rows(tokens, following), name="batch")
    before = peak()
    objective = xql_ffi.objective(ctx, gpt.loss(sizes), [f"{name}.val" for name in arrays])
    at = np.asarray(objective.start)
    steps = itertools.count(1)
    # What is computed from weights that have not changed is not computed again.
    train = lambda: objective(at * (1 + 1e-6 * next(steps)))  # noqa: E731
    first = seconds(train, 1)
    step = seconds(train, rounds)
    memory = peak() - before
    of_jax = jax.jit(jax.value_and_grad(lambda w: gpt.loss_in_jax(w, tokens, following, sizes)))
    jax.block_until_ready(of_jax(arrays))  # type: ignore[no-untyped-call]
    beside = seconds(lambda: jax.block_until_ready(of_jax(arrays)), rounds)  # type: ignore[no-untyped-call]
    columns = [Column("first call", "s", 2), Column("a step", "s", 2), Column("JAX", "s", 2), Column("over JAX")]
    table = results.table("weights", *columns, Column("memory", "MB", 0))
    table.line(f"{at.size}", first, step, beside, step / beside, memory)


def main() -> None:
    """Prints a line of figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for size, default in vars(gpt.Sizes()).items():
        parser.add_argument(f"--{size}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=6)
    options, results = parse(parser, layers=1, heads=2, width=16, tokens=8, sequences=2, rounds=1)
    measure(gpt.Sizes(**{size: getattr(options, size) for size in vars(gpt.Sizes())}), options.rounds, results)
    results.write()


if __name__ == "__main__":
    main()
