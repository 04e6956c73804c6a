"""Draws the pictures of the pages that come from no example: ``python docs/pictures.py [FOLDER]``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

HERE = Path(__file__).resolve().parent
MOVES, STAYS, CHANGES = "#E69F00", "#DDDDDD", "#56B4E9"  # told apart by the colour-blind
ROWS = 4
ASKED = 1  # the row whose derivative is looked at


def which_rows_move() -> Figure:
    """For one row of the result: the cells that move, and the rows that move with them."""
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    figure.suptitle("Which cells move for the derivative in the second row?", fontsize=13)
    every, own = set(range(ROWS)), {ASKED}
    panels: list[tuple[str, str, set[int], set[tuple[int, int]]]] = [
        ("grad(sin(x) * y, x)", "Rows do not mix.\nThe row's own cell moves.", own, {(ASKED, ASKED)}),
        (
            "grad(SUM(x) OVER (), x)",
            "Rows mix.\nThe row's own cell moves,\nthe others are held fixed.",
            own,
            {(ASKED, ASKED)},
        ),
        (
            "jvp(SUM(x) OVER (), x, 1)",
            "Rows mix.\nAll cells move together.",
            every,
            {(row, ASKED) for row in every},
        ),
        (
            "grad((SELECT l FROM loss), x)",
            "One value of all rows.\nThe row's own cell moves it.",
            own,
            {(ASKED, -1)},
        ),
    ]
    upper, lower = figure.subplots(2, 2)
    for ax, panel in zip((*upper, *lower), panels, strict=True):
        rows(ax, *panel)
    legend(figure)
    return figure


def rows(ax: Axes, call: str, says: str, moving: set[int], arrows: set[tuple[int, int]]) -> None:
    """A column of cells on the left, and what is computed of them on the right."""
    ax.set(xlim=(0, 10), ylim=(-0.4, ROWS + 0.9))
    ax.set_axis_off()
    ax.set_title(call, family="monospace", fontsize=11)
    ax.text(0.85, ROWS + 0.25, "x", ha="center", family="monospace")
    single = any(to < 0 for _, to in arrows)
    ax.text(4.85, ROWS + 0.25, "value", ha="center")
    for row in range(ROWS):
        height = ROWS - 1 - row
        box(ax, 0.1, height, MOVES if row in moving else STAYS, f"x{row + 1}")
        if not single:
            box(ax, 4.1, height, CHANGES if row == ASKED else STAYS, f"f{row + 1}")
    if single:
        box(ax, 4.1, ROWS / 2 - 0.5, CHANGES, "l")
    for start, end in arrows:
        to = ROWS / 2 if end < 0 else ROWS - 0.5 - end
        arrow(ax, (1.7, ROWS - 0.5 - start), (4.0, to))
    ax.text(6.1, ROWS / 2, says, va="center", fontsize=10)


def which_parameter_moves() -> Figure:
    """A parameter that a join repeats: one cell, many rows."""
    figure = Figure(figsize=(10, 3.1), layout="constrained")
    figure.suptitle("A parameter has one cell, in however many rows a join repeats it", fontsize=13)
    ax = figure.subplots()
    ax.set(xlim=(0, 15), ylim=(-0.4, ROWS + 0.5))
    ax.set_axis_off()
    for x, head in ((0.85, "parameters"), (5.85, "rows of the join"), (10.1, "grad(w * x, w)")):
        ax.text(x, ROWS + 0.2, head, ha="center", family="monospace")
    box(ax, 0.1, ROWS / 2 - 0.5, MOVES, "w")
    for row in range(ROWS):
        height = ROWS - 1 - row
        box(ax, 4.2, height, MOVES, "w")
        box(ax, 5.9, height, STAYS, f"x{row + 1}")
        box(ax, 9.3, height, CHANGES, f"x{row + 1}")
        arrow(ax, (1.7, ROWS / 2), (4.1, height + 0.5))
        arrow(ax, (7.5, height + 0.5), (9.2, height + 0.5))
    ax.text(
        11.3,
        ROWS / 2,
        "AVG(grad(w * x, w)) is\nthe derivative of the\naverage, for all rows\nmove with the one cell.",
        va="center",
    )
    legend(figure)
    return figure


def planning() -> Figure:
    """The way of a call through the planner."""
    figure = Figure(figsize=(10, 2.5), layout="constrained")
    ax = figure.subplots()
    ax.set(xlim=(0, 20), ylim=(0, 5))
    ax.set_axis_off()
    step(ax, 0.2, 2.8, 4.6, "SELECT grad(sin(x) * y, x)", "the statement")
    step(ax, 6.6, 2.8, 4.6, "binds names and types,\ncalls simplify", "DataFusion's planner, in the engine")
    step(ax, 13.6, 2.8, 6.0, "sin(x) * y, x   ->   y * cos(x)", "the calculus, in the plugin")
    step(ax, 6.6, 0.2, 4.6, "SELECT y * cos(x)", "what is executed")
    arrow(ax, (4.9, 3.6), (6.5, 3.6))
    arrow(ax, (11.3, 3.8), (13.5, 3.8))
    arrow(ax, (13.5, 3.2), (11.3, 3.2))
    arrow(ax, (8.9, 2.7), (8.9, 1.85))
    return figure


def box(ax: Axes, x: float, y: float, color: str, text: str) -> None:
    """A cell."""
    ax.add_patch(Rectangle((x, y + 0.06), 1.5, 0.88, facecolor=color, edgecolor="black", linewidth=0.8))
    ax.text(x + 0.75, y + 0.5, text, ha="center", va="center", family="monospace", fontsize=9)


def step(ax: Axes, x: float, y: float, width: float, text: str, head: str) -> None:
    """A box with a head above it."""
    shape = FancyBboxPatch((x, y), width, 1.5, boxstyle="round,pad=0.05", facecolor="#F3F6FA", edgecolor="#0072B2")
    ax.add_patch(shape)
    ax.text(x + width / 2, y + 0.75, text, ha="center", va="center", family="monospace", fontsize=9)
    below = y < 1
    ax.text(x + width + 0.3 if below else x + width / 2, y + 0.75 if below else y + 1.75, head,
            ha="left" if below else "center", va="center" if below else "bottom", fontsize=9)  # fmt: skip


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from a cell to what it moves."""
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color="black", linewidth=1))


def legend(figure: Figure) -> None:
    """What the colours mean."""
    meanings = {"moves": MOVES, "is held fixed, or not looked at": STAYS, "the derivative is of this": CHANGES}
    handles = [Rectangle((0, 0), 1, 1, facecolor=color, edgecolor="black") for color in meanings.values()]
    figure.legend(handles, list(meanings), loc="outside lower center", ncols=3, frameon=False)


PICTURES: dict[str, Callable[[], Figure]] = {
    "which-rows-move": which_rows_move,
    "which-parameter-moves": which_parameter_moves,
    "planning": planning,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "images"
    for name, draw in PICTURES.items():
        draw().savefig(folder / f"{name}.png", dpi=110)
