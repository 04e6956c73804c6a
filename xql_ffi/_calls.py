"""The operators that SQL may call, by name."""

from __future__ import annotations

DERIVATIVES = ("grad", "jvp", "vjp")
STOP = "stop_gradient"
OPERATORS = frozenset((*DERIVATIVES, STOP))


def may_differentiate(text: str) -> bool:
    """Returns whether a text has the name of an operator that differentiates, as a call of one does."""
    folded = text.lower()
    return any(name in folded for name in DERIVATIVES)
