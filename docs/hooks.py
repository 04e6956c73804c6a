"""What mkdocs does with the pages beyond its own: formulas are written as MathML, and nothing is loaded from elsewhere.

Browsers show MathML by themselves. So the site needs no script for formulas, which would come from another server.
"""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# What arithmatex writes: \(...\) within a line, \[...\] as a line of its own.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# What a page loads, rather than links to.
_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
_LOADED_LINKS = {"stylesheet", "preload", "modulepreload", "icon", "preconnect", "dns-prefetch", "manifest"}
_ELSEWHERE = re.compile(r"(https?:)?//", re.IGNORECASE)
_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


def on_page_content(content: str, **_: Any) -> str:
    """Writes the formulas of a page as MathML."""
    return _FORMULA.sub(lambda formula: mathml(html.unescape(formula[2]), formula[1] == "div"), content)


def on_post_build(config: Any, **_: Any) -> None:
    """Ends the build if a page would load something from another server."""
    if found := elsewhere(Path(config["site_dir"])):
        raise PluginError("the site loads from other servers:\n" + "\n".join(found))


def mathml(latex: str, block: bool) -> str:
    """A formula as MathML."""
    return convert(latex.strip(), display="block" if block else "inline")


def elsewhere(site: Path) -> list[str]:
    """The addresses of other servers that pages and styles of a site load from, each with its file."""
    found = []
    for page in sorted(site.rglob("*.html")):
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        found += [f"{page.relative_to(site)}: {address}" for address in loads.found]
    for style in sorted(site.rglob("*.css")):
        addresses = _STYLE.findall(style.read_text(encoding="utf-8"))
        found += [f"{style.relative_to(site)}: {address}" for address in addresses]
    return found


class _Loads(HTMLParser):
    """Collects what a page loads from other servers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Looks at one element."""
        values = {name: value or "" for name, value in attrs}
        address = values.get(_LOADS.get(tag, ""), "")
        if tag == "link" and _LOADED_LINKS & set(values.get("rel", "").split()):
            address = values.get("href", "")
        if _ELSEWHERE.match(address):
            self.found.append(address)
        # The script of the theme takes mermaid from another server for a page that has such an element.
        if "mermaid" in values.get("class", "").split():
            self.found.append("mermaid")
        self.found += _STYLE.findall(values.get("style", ""))
