"""A character-level GPT as one SQL query, trained by its gradients and sampled by SQL.

    python examples/gpt.py [--output DIR] [--steps N] [--layers 4] [--heads 4] [--width 128] [--tokens 64]

The text is the documentation of this project. Each matrix of the model is a table with a row for each number, and the
model is a list of CTEs that ends in one number, the loss of a batch:

1. Training: an objective over all tables at once gives the loss and its gradient, AdamW moves the weights. Beside it
   the same model in JAX, of which the first losses are equal to 1e-9.
2. Sampling: a recursive query writes a text, one character in each step, drawn from what the model says of it.

The sizes are those of nanoGPT for processors (https://github.com/karpathy/nanoGPT), without dropout. The function
between the dense layers is the approximation of GELU by tanh (Hendrycks and Gimpel, https://arxiv.org/abs/1606.08415).
AdamW is that of Loshchilov and Hutter (https://arxiv.org/abs/1711.05101).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datafusion import SessionContext
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from report import heading, save

import xql_ffi

ROOT = Path(__file__).resolve().parent.parent
SEED = 1337
RATE, LEAST_RATE, WARM_UP, DECAY, CLIP = 1e-3, 1e-4, 100, 0.1, 1.0
BETAS = (0.9, 0.99)
SAME = 20  # how many losses are compared with those of JAX

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """How large a model is: `width` numbers for each of `tokens` characters in `sequences` pieces of text."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    tokens: int = 64
    sequences: int = 12


# --------------------------------------------------------------------------------------------------------------------
# The model
#
# A relation has a row for each number: b is the piece of text, t the place of a character in it, c a unit, h a head, u
# the place of an earlier character, v a character.
# --------------------------------------------------------------------------------------------------------------------


def normalized(x: str, by: str, name: str) -> dict[str, str]:
    """Layer normalization of the units of each character, as CTEs of which the last has this name."""
    return {
        f"{name}_of": f"SELECT b, t, AVG(val) AS mean, AVG(val * val) AS square FROM {x} GROUP BY b, t",
        name: f"""SELECT x.b, x.t, x.c, (x.val - m.mean) / sqrt(m.square - m.mean * m.mean + 1e-5) * g.val AS val
            FROM {x} x JOIN {name}_of m ON x.b = m.b AND x.t = m.t JOIN {by} g ON x.c = g.c""",
    }


def product(x: str, w: str) -> str:
    """What a matrix makes of the units of each character."""
    return f"""SELECT x.b, x.t, w.o AS c, SUM(x.val * w.val) AS val
        FROM {x} x JOIN {w} w ON x.c = w.c GROUP BY x.b, x.t, w.o"""


def added(x: str, y: str) -> str:
    """The sum of two relations."""
    return f"SELECT x.b, x.t, x.c, x.val + y.val AS val FROM {x} x JOIN {y} y ON x.b = y.b AND x.t = y.t AND x.c = y.c"


def layer(n: int, sizes: Sizes) -> dict[str, str]:
    """A block: attention and two dense layers, each added to what it reads."""
    units = sizes.width // sizes.heads
    of_heads = f"SELECT b, t, c / {units} AS h, c, val FROM"
    ctes = normalized(f"x{n}", f"ln1_{n}", f"n{n}")
    ctes |= {f"{name}{n}": f"{of_heads} ({product(f'n{n}', f'w{name}_{n}')}) AS made" for name in "qkv"}
    ctes |= {
        f"score{n}": f"""SELECT q.b, q.h, q.t, k.t AS u, SUM(q.val * k.val) / {math.sqrt(units)!r} AS val
            FROM q{n} q JOIN k{n} k ON q.b = k.b AND q.h = k.h AND q.c = k.c WHERE k.t <= q.t
            GROUP BY q.b, q.h, q.t, k.t""",
        f"top{n}": f"SELECT b, h, t, MAX(val) AS val FROM score{n} GROUP BY b, h, t",
        f"e{n}": f"""SELECT s.b, s.h, s.t, s.u, exp(s.val - stop_gradient(m.val)) AS val
            FROM score{n} s JOIN top{n} m ON s.b = m.b AND s.h = m.h AND s.t = m.t""",
        f"total{n}": f"SELECT b, h, t, SUM(val) AS val FROM e{n} GROUP BY b, h, t",
        f"weight{n}": f"""SELECT e.b, e.h, e.t, e.u, e.val / z.val AS val
            FROM e{n} e JOIN total{n} z ON e.b = z.b AND e.h = z.h AND e.t = z.t""",
        f"read{n}": f"""SELECT p.b, p.t, v.c, SUM(p.val * v.val) AS val
            FROM weight{n} p JOIN v{n} v ON p.b = v.b AND p.h = v.h AND p.u = v.t GROUP BY p.b, p.t, v.c""",
        f"out{n}": product(f"read{n}", f"wo_{n}"),
        f"y{n}": added(f"x{n}", f"out{n}"),
    }
    ctes |= normalized(f"y{n}", f"ln2_{n}", f"m{n}")
    ctes |= {
        f"fc{n}": product(f"m{n}", f"w1_{n}"),
        f"gelu{n}": f"""SELECT b, t, c, 0.5 * val
            * (1 + tanh({math.sqrt(2 / math.pi)!r} * (val + 0.044715 * val * val * val))) AS val FROM fc{n}""",
        f"mlp{n}": product(f"gelu{n}", f"w2_{n}"),
        f"x{n + 1}": added(f"y{n}", f"mlp{n}"),
    }
    return ctes


def logits(sizes: Sizes) -> dict[str, str]:
    """The model over a relation `tokens` of (b, t, tok): what it says of the next characters, as CTEs."""
    ctes = {
        "x0": """SELECT s.b, s.t, e.c, e.val + p.val AS val
            FROM tokens s JOIN wte e ON s.tok = e.v JOIN wpe p ON s.t = p.t AND e.c = p.c"""
    }
    for n in range(sizes.layers):
        ctes |= layer(n, sizes)
    ctes |= normalized(f"x{sizes.layers}", "lnf", "last")
    return ctes | {
        "logits": """SELECT x.b, x.t, e.v, SUM(x.val * e.val) AS val FROM last x JOIN wte e ON x.c = e.c
            GROUP BY x.b, x.t, e.v"""
    }


def loss(sizes: Sizes) -> str:
    """The mean cross entropy of the next characters of a batch, a relation of (b, t, tok, nxt)."""
    ctes = {
        "tokens": "SELECT b, t, tok FROM batch",
        **logits(sizes),
        "top": "SELECT b, t, MAX(val) AS val FROM logits GROUP BY b, t",
        "total": """SELECT l.b, l.t, SUM(exp(l.val - stop_gradient(m.val))) AS val
            FROM logits l JOIN top m ON l.b = m.b AND l.t = m.t GROUP BY l.b, l.t""",
        "said": "SELECT l.b, l.t, l.val FROM logits l JOIN batch s ON l.b = s.b AND l.t = s.t AND l.v = s.nxt",
    }
    written = ", ".join(f"{name} AS ({query})" for name, query in ctes.items())
    return f"""WITH {written} SELECT AVG(ln(z.val) + stop_gradient(m.val) - s.val) AS loss
        FROM total z JOIN top m ON z.b = m.b AND z.t = m.t JOIN said s ON z.b = s.b AND z.t = s.t"""


def weights(sizes: Sizes, characters: int) -> dict[str, Array]:
    """The weights at the start, by their tables."""
    draw = np.random.default_rng(SEED)
    width = sizes.width
    found = {"wte": (characters, width), "wpe": (sizes.tokens, width)}
    for n in range(sizes.layers):
        found |= {f"w{name}_{n}": (width, width) for name in "qkvo"}
        found |= {f"w1_{n}": (width, 4 * width), f"w2_{n}": (4 * width, width)}
    arrays = {name: 0.02 * draw.standard_normal(shape) for name, shape in found.items()}
    for name, array in arrays.items():
        if name.startswith(("wo_", "w2_")):
            array /= math.sqrt(2 * sizes.layers)
    return (
        arrays | {f"ln{k}_{n}": np.ones(width) for n in range(sizes.layers) for k in (1, 2)} | {"lnf": np.ones(width)}
    )


KEYS = {"wte": ("v", "c"), "wpe": ("t", "c")}


def table(name: str, array: Array) -> pa.Table:
    """A row for each number of an array."""
    keys = KEYS.get(name, ("c", "o")[: array.ndim])
    places = np.indices(array.shape)
    return pa.table({**{key: place.ravel() for key, place in zip(keys, places, strict=True)}, "val": array.ravel()})


# --------------------------------------------------------------------------------------------------------------------
# The same in JAX
# --------------------------------------------------------------------------------------------------------------------


def logits_in_jax(w: Mapping[str, Any], tokens: Any, sizes: Sizes) -> Any:
    """What the model says of the next characters, of arrays."""

    def norm(x: Any, by: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt((x * x).mean(-1, keepdims=True) - mean * mean + 1e-5) * by

    def heads(x: Any) -> Any:
        return x.reshape(*x.shape[:-1], sizes.heads, -1)

    x = w["wte"][tokens] + w["wpe"][: tokens.shape[1]]
    is_earlier = jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))
    for n in range(sizes.layers):
        y = norm(x, w[f"ln1_{n}"])
        q, k, v = (heads(y @ w[f"w{name}_{n}"]) for name in "qkv")
        scores = jnp.einsum("bthc,buhc->bhtu", q, k) / math.sqrt(sizes.width // sizes.heads)
        attention = jax.nn.softmax(jnp.where(is_earlier, scores, -jnp.inf), axis=-1)
        x = x + jnp.einsum("bhtu,buhc->bthc", attention, v).reshape(x.shape) @ w[f"wo_{n}"]
        y = norm(x, w[f"ln2_{n}"]) @ w[f"w1_{n}"]
        x = x + jax.nn.gelu(y, approximate=True) @ w[f"w2_{n}"]
    return norm(x, w["lnf"]) @ w["wte"].T


def loss_in_jax(w: Mapping[str, Any], tokens: Any, following: Any, sizes: Sizes) -> Any:
    """The loss of a batch, of arrays."""
    said = logits_in_jax(w, tokens, sizes)
    return -jnp.take_along_axis(jax.nn.log_softmax(said), following[..., None], axis=-1).mean()


# --------------------------------------------------------------------------------------------------------------------
# Training
# --------------------------------------------------------------------------------------------------------------------


class AdamW:
    """Moves numbers against their gradient: with decay of matrices, a warm-up, a cosine and clipping."""

    def __init__(self, decays: npt.NDArray[np.bool_], steps: int) -> None:
        self._decays, self._steps, self._step = decays, steps, 0
        self._mean, self._square = np.zeros((2, decays.size))

    def __call__(self, at: Array, gradient: Array) -> Array:
        """The numbers after a step."""
        self._step += 1
        gradient = gradient * min(1.0, CLIP / (float(np.linalg.norm(gradient)) + 1e-6))
        self._mean = BETAS[0] * self._mean + (1 - BETAS[0]) * gradient
        self._square = BETAS[1] * self._square + (1 - BETAS[1]) * gradient**2
        mean, square = self._mean / (1 - BETAS[0] ** self._step), self._square / (1 - BETAS[1] ** self._step)
        rate = self._rate()
        moved: Array = at * (1 - rate * DECAY * self._decays) - rate * mean / (np.sqrt(square) + 1e-8)
        return moved

    def _rate(self) -> float:
        if self._step < WARM_UP:
            return RATE * self._step / WARM_UP
        done = min((self._step - WARM_UP) / max(self._steps - WARM_UP, 1), 1.0)
        return LEAST_RATE + (RATE - LEAST_RATE) * (1 + math.cos(math.pi * done)) / 2


def text() -> str:
    """The documentation of this project."""
    return "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))


class Batches:
    """Pieces of a text, drawn anew for each step."""

    def __init__(self, written: str, sizes: Sizes) -> None:
        self.characters = sorted(set(written))
        self._numbers = np.array([self.characters.index(character) for character in written])
        self._sizes, self._draw = sizes, np.random.default_rng(SEED + 1)

    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The characters of the pieces, and those that follow each."""
        starts = self._draw.integers(0, self._numbers.size - self._sizes.tokens, self._sizes.sequences)
        places = starts[:, None] + np.arange(self._sizes.tokens)
        return self._numbers[places], self._numbers[places + 1]


def rows(tokens: npt.NDArray[np.int64], following: npt.NDArray[np.int64]) -> pa.Table:
    """A batch as a table."""
    b, t = np.indices(tokens.shape)
    return pa.table({"b": b.ravel(), "t": t.ravel(), "tok": tokens.ravel(), "nxt": following.ravel()})


@dataclass(frozen=True)
class Trained:
    """What training has made."""

    objective: xql_ffi.Objective
    at: Array
    losses: Sequence[float]
    in_jax: Sequence[float]


def train(sizes: Sizes, steps: int, compared: int = SAME) -> tuple[Trained, SessionContext, Batches]:
    """Trains a model for so many steps, as many of which JAX takes too, from the same weights and batches."""
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    batches = Batches(text(), sizes)
    arrays = weights(sizes, len(batches.characters))
    ctx = xql_ffi.register(SessionContext())
    for name, array in arrays.items():
        ctx.from_arrow(table(name, array), name=name)
    tokens, following = batches.arrays()
    ctx.from_arrow(rows(tokens, following), name="batch")
    objective = xql_ffi.objective(ctx, loss(sizes), [f"{name}.val" for name in arrays])
    decays = np.concatenate([np.full(array.size, array.ndim > 1) for array in arrays.values()])
    bounds = np.cumsum([array.size for array in arrays.values()])[:-1]
    of_jax = jax.jit(jax.value_and_grad(lambda w, tokens, following: loss_in_jax(w, tokens, following, sizes)))
    ours, theirs = AdamW(decays, steps), AdamW(decays, steps)
    at, there = np.asarray(objective.start), np.asarray(objective.start)
    losses, in_jax = [], []
    for step in range(steps):
        started = time.perf_counter()
        value, gradient = objective(at)
        seconds = time.perf_counter() - started
        at = ours(at, gradient)
        losses.append(float(value))
        beside = ""
        if step < compared:
            parts = zip(arrays.items(), np.split(there, bounds), strict=True)
            w = {name: part.reshape(array.shape) for (name, array), part in parts}
            started = time.perf_counter()
            of_them, slopes = of_jax(w, tokens, following)
            in_jax.append(float(of_them))
            flat = np.concatenate([np.ravel(slopes[name]) for name in arrays])
            beside = f"   JAX {in_jax[-1]:.6f}, {time.perf_counter() - started:.2f} s"
            there = theirs(there, flat)
        print(f"step {step:4}   loss {losses[-1]:.6f}, {seconds:.2f} s{beside}", flush=True)
        tokens, following = batches.arrays()
        objective.replace("batch", rows(tokens, following))
    return Trained(objective, at, losses, in_jax), ctx, batches


# --------------------------------------------------------------------------------------------------------------------
# Sampling
# --------------------------------------------------------------------------------------------------------------------


def sampling(sizes: Sizes, length: int) -> str:
    """The characters of `prompt`, (t, tok), and more, each where its draw, (step, r), stands among all odds."""
    ctes = {
        "seen": f"SELECT step, t, tok FROM written WHERE step < {length}",
        "at": "SELECT step, MAX(t) AS t FROM seen GROUP BY step",
        "tokens": f"""SELECT 0 AS b, s.t - greatest(a.t - {sizes.tokens - 1}, 0) AS t, s.tok
            FROM seen s CROSS JOIN at a WHERE s.t > a.t - {sizes.tokens}""",
        **logits(sizes),
        "odds": """SELECT v, exp(val - MAX(val) OVER ()) AS val FROM logits
            WHERE t = (SELECT MAX(t) FROM tokens)""",
        "sums": "SELECT v, SUM(val) OVER (ORDER BY v) AS upto, SUM(val) OVER () AS total FROM odds",
        "following": """SELECT a.step, a.t + 1 AS t, MIN(s.v) AS tok
            FROM at a JOIN draws d ON a.step = d.step JOIN sums s ON s.upto >= d.r * s.total GROUP BY a.step, a.t""",
    }
    of_step = ", ".join(f"{name} AS MATERIALIZED ({query})" for name, query in ctes.items())
    return f"""WITH RECURSIVE written AS (
            SELECT 0 AS step, t, tok FROM prompt
            UNION ALL
            SELECT * FROM (WITH {of_step}
                SELECT step + 1 AS step, t, tok FROM seen UNION ALL SELECT step + 1, t, tok FROM following) AS longer)
        SELECT tok FROM written WHERE step = {length} ORDER BY t"""


def sample(ctx: SessionContext, sizes: Sizes, characters: Sequence[str], prompt: str, length: int) -> str:
    """A text that begins as this one."""
    tokens = [characters.index(character) for character in prompt]
    tables: dict[str, dict[str, Sequence[Any]]] = {
        "prompt": {"t": range(len(tokens)), "tok": tokens},
        "draws": {"step": range(length), "r": np.random.default_rng(SEED + 2).random(length).tolist()},
    }
    for name, columns in tables.items():
        ctx.deregister_table(name)
        ctx.from_pydict({column: list(values) for column, values in columns.items()}, name=name)
    found = ctx.sql(sampling(sizes, length)).to_pydict()["tok"]
    return "".join(characters[token] for token in found)


def plot(trained: Trained) -> Figure:
    """The loss of each step, and that of JAX."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(trained.losses, label="SQL")
    axes.plot(trained.in_jax, ".", label="JAX")
    axes.set(xlabel="step", ylabel="cross entropy of a character")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return figure


def main() -> None:
    """Trains, compares with JAX and writes a text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "example")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--length", type=int, default=80, help="how many characters are sampled")
    for size, default in vars(Sizes()).items():
        parser.add_argument(f"--{size}", type=int, default=default)
    options = parser.parse_args()
    sizes = Sizes(**{size: getattr(options, size) for size in vars(Sizes())})
    heading("Training")
    trained, ctx, batches = train(sizes, options.steps)
    apart = max(abs(ours - theirs) for ours, theirs in zip(trained.losses, trained.in_jax, strict=False))
    print(f"the first {len(trained.in_jax)} losses are those of JAX to {apart:.1e}")
    options.output.mkdir(parents=True, exist_ok=True)
    save(plot(trained), options.output / "gpt.png")
    heading("Sampling")
    trained.objective.update(trained.at)
    print(sample(ctx, sizes, batches.characters, "A gradient", options.length))


if __name__ == "__main__":
    main()
