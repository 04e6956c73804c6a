"""What the examples write: sections of their output, and figures."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure


def heading(text: str) -> None:
    """The title of a section of the output."""
    print(f"\n{text}\n{'-' * len(text)}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    figure.savefig(path, dpi=100)
    print(f"\n  figure: {path}")
