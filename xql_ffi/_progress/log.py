"""Steps as lines on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from xql_ffi._progress.events import Step, line


class Lines:
    """Writes the first step, the last one and some between to ``sys.stderr``."""

    def __init__(self, watch: Sequence[str] | None, every: float) -> None:
        self._watch, self._every = watch, every
        self._printed = -every
        self._waiting: Step | None = None

    def show(self, step: Step) -> None:
        """Writes a step if the last one that was written is some time ago."""
        if step.seconds - self._printed < self._every:
            self._waiting = step
            return
        self._printed, self._waiting = step.seconds, None
        self._write(step)

    def close(self) -> None:
        """Writes the last step."""
        if self._waiting is not None:
            self._write(self._waiting)
            self._waiting = None

    def _write(self, step: Step) -> None:
        """Writes a step to ``sys.stderr``, which may be closed, or take no such characters."""
        with contextlib.suppress(OSError, ValueError):
            print(line(step, self._watch), file=sys.stderr, flush=True)
