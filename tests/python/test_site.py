"""What the site does with formulas, and what keeps it from loading anything from other servers."""

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import xql_ffi
from support.pages import DOCS
from support.programs import load


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    return load("docs/hooks")


def test_the_reference_has_everything_public() -> None:
    shown = set(
        re.findall(r"^::: xql_ffi\.([\w.]+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    modules = {name: getattr(xql_ffi, name) for name in xql_ffi.__all__ if inspect.ismodule(getattr(xql_ffi, name))}
    within = {
        f"{name}.{function}"
        for name, module in modules.items()
        for function, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not function.startswith("_")
    }
    assert shown == {*xql_ffi.__all__, *within} - {"__version__", *modules}


def test_formulas_are_mathml(hooks: ModuleType) -> None:
    page = r'<p><span class="arithmatex">\(a &lt; b\)</span></p><div class="arithmatex">\[e_s\]</div>'
    written = hooks.on_page_content(page)
    assert "arithmatex" not in written
    assert written.count("<math") == 2
    assert 'display="block"' in written
    assert "&#x0003C;" in written or "&lt;" in written


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://cdn.example/mathjax.js"></script>',
        '<script src="//cdn.example/mathjax.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="https://example.org/a.png">',
        '<div style="background: url(https://example.org/a.png)"></div>',
        '<div class="mermaid">graph</div>',
    ],
)
def test_what_is_loaded_from_elsewhere_is_found(hooks: ModuleType, element: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f"<html>{element}</html>", encoding="utf-8")
    assert len(hooks.elsewhere(tmp_path)) == 1


def test_styles_are_looked_at(hooks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@import 'https://fonts.example/css'; b {background: url(own.png)}", encoding="utf-8"
    )
    assert hooks.elsewhere(tmp_path) == ["a.css: https://fonts.example/css"]


def test_links_and_own_files_are_fine(hooks: ModuleType, tmp_path: Path) -> None:
    page = '<a href="https://example.org">there</a><script src="assets/a.js"></script><link rel="canonical" href="https://x">'
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    assert hooks.elsewhere(tmp_path) == []
