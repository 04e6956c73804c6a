"""Gradients by row of random values on a host: those of the engine."""

from __future__ import annotations

import math
import random
from typing import Any

import xql_ffi
from by_row import verdict
from by_row.generation import Value, random_value
from by_row.plans import Writer
from by_row.tables import add_row_tables
from by_row.verdict import apart, found_in
from hosts.forward import Session
from hosts.host import Host, HostError, RefusedError, tables_of
from hosts.reasons import reason
from support.choices import Choices
from support.findings import Finding
from support.seed import SEED


class Judge(verdict.Judge):
    """Compares a host with the engine, and counts what it refuses. What it says of the value is its own affair."""

    def __init__(self, host: Host) -> None:
        super().__init__(xql_ffi.register)
        # It has what a judge asks of a session.
        self._session: Any = Session(host)
        host.open(tables_of(add_row_tables))

    def compare(self, value: Value) -> Finding | None:
        """The first thing that the host has otherwise."""
        self.counts["values"] += 1
        try:
            return self._compared(value)
        finally:
            self._session.forget()

    def _compared(self, value: Value) -> Finding | None:
        expression = value.own or "m"
        try:
            found = self._gradients(self._ctx, value, expression)
        except Exception as error:
            self.counts[f"the engine refuses: {reason(error)}"] += 1
            return None
        try:
            if not self._has(value):
                self.counts["the host has another value"] += 1
                return None
        except HostError as primal:
            self.counts[f"the host has no such value: {reason(primal)}"] += 1
            return None
        try:
            again = self._gradients(self._session, value, expression)
        except RefusedError as error:
            self.counts[f"refused: {reason(error)}"] += 1
            return None
        except HostError as error:
            return found_in(value, "fails on the host", f"{str(error)[:700]}\n{self._session.text}")
        except AssertionError as error:
            return found_in(value, "rows apart", str(error))
        if detail := apart(value, found, again):
            return found_in(value, "another gradient", f"{detail}\n{self._session.text}")
        self.counts["values that agree"] += 1
        return None

    def _has(self, value: Value) -> bool:
        """Whether the host computes the value that the engine computes."""
        ours, theirs = (self._value(session, value, Writer()) for session in (self._ctx, self._session))
        if ours is None or theirs is None:
            return ours is theirs
        return math.isclose(ours, theirs, rel_tol=1e-6) or (math.isnan(ours) and math.isnan(theirs))


def judged(host: Host, numbers: range, seed: int = SEED) -> tuple[Judge, list[Finding]]:
    """What a host makes of the gradients of these values."""
    judge = Judge(host)
    found = [judge.compare(random_value(Choices(random.Random(f"{seed} {number} 0")))) for number in numbers]
    return judge, [finding for finding in found if finding]
