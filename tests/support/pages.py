"""README and the pages, and the blocks of code on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Three pages show parts of examples, which have tests of their own.
OF_EXAMPLES = {DOCS / "example.md", DOCS / "digits.md", DOCS / "assimilation.md"}


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(language: str | None = None) -> Iterator[Block]:
    """The blocks in a language, or all."""
    for page in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^```([a-z]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if language in (None, found[1]):
                yield Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])


def is_statement(block: Block) -> bool:
    """Whether a block is one or several statements that are complete. What is left out of one is written `...`."""
    complete = re.match(r"(SELECT|WITH|EXPLAIN)\b", block.text) and "..." not in block.text
    return block.page not in OF_EXAMPLES and bool(complete)
