"""Steps as bars of tqdm, which is not always installed."""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from xql_ffi._progress.events import Step, values

# The seconds between two pictures of a bar, and how many times longer than it takes to look at the values of a step.
INTERVAL, PATIENCE = 0.1, 20
# Columns of a terminal that a line leaves free, for numbers that get longer before the values are looked at again.
FREE = 4


def tqdm_here() -> Any:
    """The class of `tqdm.auto`, if it is installed and there is a terminal or a notebook to show bars in, or None."""
    if _is_terminal() or _is_notebook():
        # An installation of tqdm that is broken is as good as none.
        with contextlib.suppress(Exception):
            from tqdm.auto import tqdm

            return _unlocking(tqdm)
    return None


@functools.cache
def _unlocking(tqdm: Any) -> Any:
    """A class of bars that unlock when they fail: those of tqdm would have all others of the process wait for ever."""

    class Bar(tqdm):  # type: ignore[misc]
        def refresh(self, nolock: bool = False, lock_args: object = None) -> bool:
            with contextlib.suppress(Exception), contextlib.nullcontext() if nolock else self.get_lock():
                self.display()
            return True

    return Bar


def _is_terminal() -> bool:
    # Standard error may be closed, or None where a program has no console.
    with contextlib.suppress(Exception):
        return sys.stderr.isatty()
    return False


def _is_notebook() -> bool:
    """Returns whether this is a kernel of Jupyter."""
    with contextlib.suppress(Exception):
        return "IPKernelApp" in sys.modules["IPython"].get_ipython().config
    return False


class Bars:
    """A bar for each query and each objective, by its name. What goes wrong with one ends no query."""

    def __init__(self, tqdm: Any, watch: Sequence[str] | None, total: int | None) -> None:
        self._tqdm, self._watch, self._total = tqdm, watch, total
        self._bars: dict[str, _Bar] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def show(self, step: Step) -> None:
        """Moves the bar of a step, which is made if there is none."""
        with self._lock, contextlib.suppress(Exception):
            if self._is_closed:
                return
            if step.query not in self._bars:
                # With a delay tqdm writes nothing before there is a bar that can be closed.
                bar = self._tqdm(
                    desc=step.query,
                    total=self._total,
                    initial=step.number,
                    unit=step.unit,
                    mininterval=0,
                    miniters=1,
                    delay=1e-9,
                )
                self._bars[step.query] = _Bar(bar, self._watch)
            for bar in self._bars.values():
                bar.draw_if_due()
            self._bars[step.query].show(step)

    def close(self) -> None:
        """Leaves the bars as the last steps have them."""
        with self._lock:
            self._is_closed = True
            for bar in self._bars.values():
                with contextlib.suppress(Exception):
                    bar.close()


class _Bar:
    """A bar of tqdm, which is drawn a few times a second."""

    def __init__(self, bar: Any, watch: Sequence[str] | None) -> None:
        self._bar, self._watch = bar, watch
        # A terminal that does not know its size says that it has no columns, in which tqdm writes nothing. A bar that
        # the environment disables has no width at all.
        if isinstance(width := getattr(bar, "ncols", None), int) and width <= 0:
            columns, lines = shutil.get_terminal_size()
            bar.ncols, bar.nrows = columns - 1, lines - 1
        self._told, self._next = time.monotonic(), 0.0
        self._waiting: Step | None = None

    def show(self, step: Step) -> None:
        """Moves the bar."""
        if self._bar.disable:
            return
        self._told = time.monotonic()
        if step.number == 0 and self._bar.n:
            # Another query of this name.
            self._bar.reset()
            self._next = 0.0
        self._waiting = step
        self.draw_if_due()

    def draw_if_due(self) -> None:
        """Draws the bar with the last step, if it was told since the last time and that is some time ago."""
        step, now = self._waiting, time.monotonic()
        if step is None or now < self._next:
            return
        self._waiting, self._next = None, now + INTERVAL
        self._write(step)
        self._next = max(self._next, now + PATIENCE * (time.monotonic() - now))
        if not self._bar.update(step.number - self._bar.n):
            self._bar.refresh()

    def _write(self, step: Step) -> None:
        """Writes the values of a step behind the bar, as many as the terminal has room for."""
        shown, bar = values(step, self._watch), self._bar
        # A notebook has no width. Without one, a bar is ten characters wide.
        if isinstance(bar.ncols, int):
            line = bar.format_meter(**{**bar.format_dict, "ncols": None, "postfix": None})
            room = bar.ncols - len(f"{line}, ") - FREE
            while len(shown) > 1 and len(", ".join(shown)) > room:
                shown.pop()
            shown = [text[: max(room, 0)] for text in shown]
        bar.set_postfix_str(", ".join(shown), refresh=False)

    def close(self) -> None:
        """Leaves the bar as the last step has it, with its rate over the time in which there were steps."""
        bar = self._bar
        try:
            if self._waiting is not None:
                self._write(self._waiting)
                bar.n = self._waiting.number
            idle = time.monotonic() - self._told
            bar.start_t += idle
            bar.last_print_t += idle
        finally:
            bar.close()
