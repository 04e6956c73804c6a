"""The page of figures is the one that its program writes of the records."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_page_is_up_to_date() -> None:
    page: str = runpy.run_path(str(DOCS / "figures.py"))["page"]()
    assert (DOCS / "figures.md").read_text(encoding="utf-8") == page, "run `python docs/figures.py`"
