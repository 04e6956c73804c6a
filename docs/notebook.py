"""Writes the tutorial as a notebook: ``python docs/notebook.py > examples/tutorial.ipynb``."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext

HERE = Path(__file__).resolve().parent


def notebook() -> str:
    """The page as a notebook: blocks of Python are cells, all else is text."""
    page = (HERE / "tutorial.md").read_text(encoding="utf-8")
    # The notebook draws the pictures itself, and its links lead to the site.
    page = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n\n", "", page, flags=re.MULTILINE)
    page = re.sub(r"\]\(([a-z-]+)\.md", r"](https://xql-ffi.github.io/xql-ffi/\1/", page)
    page = re.sub(
        r"This page is\nalso a notebook,[^\n]*\n", "It runs beside the data, in the folder `examples`.\n", page
    )
    page = page.replace("```sh\n", "```console\n")  # to be read, not to be run
    made = jupytext.reads(page, fmt="md")
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    made.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return str(jupytext.writes(made, fmt="ipynb")) + "\n"


if __name__ == "__main__":
    print(notebook(), end="")
