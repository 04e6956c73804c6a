"""The page of all rules is the one that its program writes."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_page_is_up_to_date() -> None:
    page: str = runpy.run_path(str(DOCS / "rules.py"))["page"]()
    assert (DOCS / "rules.md").read_text(encoding="utf-8") == page, "run `python docs/rules.py > docs/rules.md`"
