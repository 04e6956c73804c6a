"""The operators whose calls stand in SQL, by their names."""

from __future__ import annotations

DERIVATIVES = ("grad", "jvp", "vjp")
STOP = "stop_gradient"
OPERATORS = frozenset((*DERIVATIVES, STOP))


def may_differentiate(text: str) -> bool:
    """Whether a text has the name of an operator that differentiates, as a call of one does."""
    folded = text.lower()
    return any(name in folded for name in DERIVATIVES)
