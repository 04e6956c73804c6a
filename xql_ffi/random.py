"""The random numbers that ``random_uniform`` and ``random_normal`` are in SQL, in NumPy and as macros of DuckDB.

A number is a function of a seed and of keys, whole numbers of 64 bits, as in `jax.random`. So it is the same wherever
both are: in every plan, partition, session and database. The generator is Philox4x64-10, of Salmon, Moraes, Dror and
Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). Its key is the seed and the number of keys, and its counter
the keys:

>>> import numpy as np
>>> of_7_and_3 = np.random.Philox(key=7 + (1 << 64), counter=3 - 1)  # NumPy counts before it draws
>>> float(uniform(7, 3)) == np.random.Generator(of_7_and_3).random()
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xql_ffi._expressions import shown
from xql_ffi._special import RANDOM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Words = NDArray[np.uint64]
    Floats = NDArray[np.float64]

# The words of a counter.
MAX_KEYS = 4
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_WORD = (1 << 64) - 1


def uniform(seed: ArrayLike, *keys: ArrayLike) -> Floats:
    """Uniform numbers in [0, 1), multiples of 2^-53, as ``random_uniform(seed, key, ...)`` gives them.

    >>> uniform(7, range(3)).tolist()
    [0.47131543477349913, 0.8824668302545412, 0.718174498323604]

    Args:
        seed: a whole number, or an array of such.
        keys: from one to four of these, which are broadcast together.

    Raises:
        TypeError: there are no keys or too many, or one is not of whole numbers.
        OverflowError: a number is 2^63 or greater, which is no BIGINT.
    """
    return _unit(_words("uniform", seed, keys)[0])


def normal(seed: ArrayLike, *keys: ArrayLike) -> Floats:
    """Normal numbers of mean 0 and variance 1, as ``random_normal(seed, key, ...)`` gives them.

    They are those of Box and Muller, of other words of the generator than ``uniform`` has for the same keys. SQL has
    the same digits on all platforms, and NumPy and DuckDB those to an absolute error of 1e-14.

    >>> normal(7, range(3)).round(12).tolist()
    [1.046395036688, -0.954183631167, -1.176815818881]

    Args:
        seed: a whole number, or an array of such.
        keys: from one to four of these, which are broadcast together.

    Raises:
        TypeError: there are no keys or too many, or one is not of whole numbers.
        OverflowError: a number is 2^63 or greater, which is no BIGINT.
    """
    import numpy as np

    words = _words("normal", seed, keys)
    made: Floats = np.sqrt(-2.0 * np.log(1.0 - _unit(words[1]))) * np.cos(2.0 * np.pi * _unit(words[2]))
    return made


def create_macros(connection: Any) -> None:
    """Makes ``random_uniform`` and ``random_normal`` macros of DuckDB, which have the same numbers.

    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> create_macros(connection)
    >>> connection.sql("SELECT random_uniform(7, 2) AS u").fetchall()
    [(0.718174498323604,)]

    Args:
        connection: a connection of DuckDB 1.3 or newer. The macros stay in its current schema.
    """
    for name in RANDOM:
        overloads = ", ".join(_macro(name, number) for number in range(1, MAX_KEYS + 1))
        connection.execute(f"CREATE OR REPLACE MACRO {name}{overloads}")


def _words(name: str, seed: ArrayLike, keys: tuple[ArrayLike, ...]) -> tuple[Words, Words, Words, Words]:
    """Returns the four words of the generator for each seed and its keys."""
    import numpy as np

    if not 1 <= len(keys) <= MAX_KEYS:
        msg = f"{name} takes a seed and from 1 to {MAX_KEYS} keys, not {len(keys)} keys: {name}(42, ids)"
        raise TypeError(msg)
    key, *counter = np.broadcast_arrays(*(_integers(name, numbers) for numbers in (seed, *keys)))
    a, b, c, d = (counter[place] if place < len(counter) else np.zeros_like(key) for place in range(MAX_KEYS))
    with np.errstate(over="ignore"):
        for number in range(_ROUNDS):
            high, low = _product(a, _MULTIPLIERS[0])
            other_high, other_low = _product(c, _MULTIPLIERS[1])
            left, right = key + np.uint64(number * _WEYL[0] & _WORD), np.uint64(_right(len(keys), number))
            a, b, c, d = other_high ^ b ^ left, other_low, high ^ d ^ right, low
    return a, b, c, d


def _right(keys: int, number: int) -> int:
    """Returns the second word of the key in a round."""
    return (keys + number * _WEYL[1]) & _WORD


def _integers(name: str, numbers: ArrayLike) -> Words:
    import numpy as np

    given = np.asarray(numbers)
    if given.dtype.kind not in "iu":
        msg = f"{name} takes whole numbers of 64 bits, not {shown(numbers)}"
        raise TypeError(msg)
    if given.dtype.kind == "u" and (given > _WORD >> 1).any():
        msg = f"{name} takes whole numbers below 2^63, not {given.max()}"
        raise OverflowError(msg)
    return given.astype(np.uint64)


def _product(a: Words, b: int) -> tuple[Words, Words]:
    """Returns the high and the low word of a product, by halves of words."""
    import numpy as np

    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    upper, lower = np.uint64(b >> 32), np.uint64(b & 0xFFFFFFFF)
    middle = (a & low) * upper + ((a & low) * lower >> half)
    other = (a >> half) * lower + (middle & low)
    return (a >> half) * upper + (middle >> half) + (other >> half), a * np.uint64(b)


def _unit(words: Words) -> Floats:
    """Returns the first 53 bits of words as numbers in [0, 1)."""
    import numpy as np

    made: Floats = (words >> np.uint64(11)) * 2.0**-53
    return made


def _macro(name: str, keys: int) -> str:
    """Returns the parameters and the body of a macro of so many keys.

    A round is a function of a list of one struct, so that the rounds stand in one another, each once.
    """
    names = [f"key{number}" for number in range(1, keys + 1)]
    words = [f"({key}::BIGINT::HUGEINT & {_WORD})::UBIGINT" for key in ("seed", *names)]
    words += ["0::UBIGINT"] * (MAX_KEYS - keys)
    state = "[{" + ", ".join(f"'{part}': {word}" for part, word in zip("kabcd", words, strict=True)) + "}]"
    for number in range(_ROUNDS):
        state = f"list_transform({state}, lambda s: {_round(keys, number)})"
    body = f"list_transform({state}, lambda s: {_BODIES[name]})[1]"
    return f"({', '.join(('seed', *names))}) AS {body}"


def _round(keys: int, number: int) -> str:
    """Returns the struct after a round, in DuckDB's SQL over the struct ``s`` before it."""
    high, low = (f"(s.{{0}}::UHUGEINT * {{1}}::UHUGEINT {of})::UBIGINT" for of in (">> 64", f"& {_WORD}::UHUGEINT"))
    parts = {
        "k": f"((s.k::UHUGEINT + {_WEYL[0]}) & {_WORD}::UHUGEINT)::UBIGINT",
        "a": f"xor(xor({high.format('c', _MULTIPLIERS[1])}, s.b), s.k)",
        "b": low.format("c", _MULTIPLIERS[1]),
        "c": f"xor(xor({high.format('a', _MULTIPLIERS[0])}, s.d), {_right(keys, number)}::UBIGINT)",
        "d": low.format("a", _MULTIPLIERS[0]),
    }
    return "{" + ", ".join(f"'{part}': {value}" for part, value in parts.items()) + "}"


def _unit_in_duckdb(word: str) -> str:
    return f"((s.{word} >> 11)::DOUBLE * {2.0**-53!r}::DOUBLE)"


_SIZE = f"sqrt(-2.0::DOUBLE * ln(1.0::DOUBLE - {_unit_in_duckdb('b')}))"
_BODIES = {
    "random_uniform": _unit_in_duckdb("a"),
    "random_normal": f"{_SIZE} * cos(2.0::DOUBLE * pi() * {_unit_in_duckdb('c')})",
}
