"""Random choices that are recorded, so that what is made of them can be made again, and smaller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A source of choices: at random, or those that another one made, and the first option when they run out."""

    def __init__(self, source: random.Random | Sequence[int]) -> None:
        self._source = source if isinstance(source, random.Random) else iter(source)
        self.made: list[int] = []

    def below(self, number: int) -> int:
        if isinstance(self._source, random.Random):
            value = self._source.randrange(number)
        else:
            value = min(next(self._source, 0), number - 1)
        self.made.append(value)
        return value

    def of(self, options: Sequence[T]) -> T:
        """One of the options. The simplest is the first."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def some(self, options: Sequence[T], percent: int) -> list[T]:
        """Each of the options with this probability."""
        return [option for option in options if self.chance(percent)]


def smallest(made: Sequence[int], fails: Callable[[Sequence[int]], bool], *, attempts: int = 80) -> list[int]:
    """Fewer and smaller choices that fail as well."""
    best = list(made)
    tried: set[tuple[int, ...]] = set()
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(best):
            if tuple(candidate) in tried:
                continue
            if len(tried) >= attempts:
                return best
            tried.add(tuple(candidate))
            if fails(candidate):
                best, progress = candidate, True
                break
    return best


def _smaller(made: list[int]) -> Iterator[list[int]]:
    size = len(made) // 2
    while size:
        for start in range(0, len(made), size):
            yield made[:start] + made[start + size :]
            if any(made[start : start + size]):
                yield made[:start] + [0] * len(made[start : start + size]) + made[start + size :]
        size //= 2
