"""What is found wrong with generated statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What is wrong with a statement, in a word, and in detail."""

    kind: str
    detail: str
    # Where the statement stands: alone, in a view, prepared.
    place: str
    views: Mapping[str, str]
    query: str

    def __str__(self) -> str:
        made = "".join(f"CREATE VIEW {name} AS {text};\n" for name, text in self.views.items())
        return f"{self.kind} ({self.place}):\n{made}{self.query}\n{self.detail}"
