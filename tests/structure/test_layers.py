"""No file of the project stands in an import circle; and the check of that finds the circles that there are."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from structure import layers

ROOT = Path(__file__).parents[2]
PROJECT = layers.project(ROOT)


@pytest.mark.parametrize("name", PROJECT)
def test_no_circle(name: str) -> None:
    graph = PROJECT[name]
    assert not layers.circles(graph), "\n".join(layers.described(graph, c, ROOT) for c in layers.circles(graph))


@pytest.mark.parametrize("name", PROJECT)
def test_no_circle_of_folders(name: str) -> None:
    found = [(beside, circle) for _, beside in layers.folded(PROJECT[name]) for circle in layers.circles(beside)]
    assert not found, "\n".join(layers.described(beside, circle, ROOT) for beside, circle in found)


def test_all_of_the_project_is_seen() -> None:
    assert set(PROJECT) == {f"native/{p.parent.parent.name}" for p in ROOT.glob("native/*/src/lib.rs")} | {"Python"}
    for name, graph in PROJECT.items():
        # A file alone imports no other.
        assert len(graph) == 1 or sum(map(len, graph.values())) >= 4, name
    within = PROJECT["Python"]
    assert "grad_capsule" in within[ROOT / "xql_ffi/__init__.py"][ROOT / "xql_ffi/_operators.py"]
    assert "T" in within[ROOT / "tests/plans/test_subqueries.py"][ROOT / "tests/support/tables.py"]
    folders = {file.relative_to(ROOT).parts[0] for file in within}
    assert folders >= {"bench", "docs", "examples", "native", "tests", "xql_ffi"}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text), encoding="utf-8")
    return folder


def names(folder: Path, graph: layers.Graph) -> list[list[str]]:
    return [sorted(str(file.relative_to(folder)) for file in circle) for circle in layers.circles(graph)]


PARENT_AND_CHILD = ["src/a/b.rs", "src/a/mod.rs"]
SIBLINGS = ["src/a.rs", "src/b.rs"]
CIRCLES = {
    "an item each, parent and child": (
        {"src/lib.rs": "mod a;", "src/a/mod.rs": "mod b; use b::f; fn g() {}", "src/a/b.rs": "use super::g; fn f() {}"},
        PARENT_AND_CHILD,
    ),
    "exported again": (
        {"src/lib.rs": "mod a;", "src/a/mod.rs": "mod b; pub use b::{f, h};", "src/a/b.rs": "use super::super::a::g;"},
        PARENT_AND_CHILD,
    ),
    "a child's path without use": (
        {"src/lib.rs": "mod a;", "src/a/mod.rs": "mod b; fn g() { b::f() }", "src/a/b.rs": "fn f() { super::g() }"},
        PARENT_AND_CHILD,
    ),
    "a child by self": (
        {"src/lib.rs": "mod a;", "src/a/mod.rs": "mod b; use self::b::f;", "src/a/b.rs": "use crate::a::g;"},
        PARENT_AND_CHILD,
    ),
    "a folder beside its file": (
        {"src/lib.rs": "mod a;", "src/a.rs": "mod b; use b::f;", "src/a/b.rs": "use super::g;"},
        ["src/a.rs", "src/a/b.rs"],
    ),
    "the root": ({"src/lib.rs": "mod a; pub use a::f;", "src/a.rs": "use crate::G;"}, ["src/a.rs", "src/lib.rs"]),
    "siblings": (
        {"src/lib.rs": "mod a; mod b;", "src/a.rs": "use crate::b::f;", "src/b.rs": "use super::a::g;"},
        SIBLINGS,
    ),
    "in a group": (
        {
            "src/lib.rs": "mod a; mod b;",
            "src/a.rs": "pub(crate) use crate::{c::{D, self}, b::{\n    f as h,\n    E,\n}};",
            "src/b.rs": "use super::{a::*};",
        },
        SIBLINGS,
    ),
    "by another name": (
        {
            "src/lib.rs": "mod a; mod b;",
            "src/a.rs": "use crate::{b as c}; fn f() { c::h(); }",
            "src/b.rs": "use super::a;",
        },
        SIBLINGS,
    ),
    "by the names of all of the parent": (
        {"src/lib.rs": "mod a; mod b;", "src/a.rs": "use super::*; fn f() { b::g() }", "src/b.rs": "use crate::a::f;"},
        SIBLINGS,
    ),
    "through a module that is exported again": (
        {
            "src/lib.rs": "mod a; mod c; pub use c::b;",
            "src/a.rs": "use crate::b::f;",
            "src/c/mod.rs": "pub mod b;",
            "src/c/b.rs": "use crate::a::g;",
        },
        ["src/a.rs", "src/c/b.rs"],
    ),
    "through another name of that": (
        {
            "src/lib.rs": "mod a; mod c; pub use c::b as e;",
            "src/a.rs": "use crate::e as g; fn h() { g::d::f() }",
            "src/c/mod.rs": "pub mod b;",
            "src/c/b/mod.rs": "pub mod d;",
            "src/c/b/d.rs": "use crate::a::h;",
        },
        ["src/a.rs", "src/c/b/d.rs"],
    ),
    "in tests within the file": (
        {
            "src/lib.rs": "mod a; mod b;",
            "src/a.rs": "#[cfg(test)] mod tests { use super::*; mod deeper { use super::super::super::b::f; } }",
            "src/b.rs": "fn f() { 'a'; crate::a::g::<'_>() }",
        },
        SIBLINGS,
    ),
    "after an inline module": (
        {
            "src/lib.rs": "mod a; mod b;",
            "src/a.rs": "mod m { fn f() {} } use super::b::f;",
            "src/b.rs": "use super::a::g;",
        },
        SIBLINGS,
    ),
    "below an inline module": (
        {
            "src/lib.rs": "mod m { mod a; mod b; }",
            "src/m/a.rs": "use super::b::f;",
            "src/m/b.rs": "use crate::m::a::g;",
        },
        ["src/m/a.rs", "src/m/b.rs"],
    ),
    "of three": (
        {
            "src/lib.rs": "mod a; mod b; mod c; mod d;",
            "src/a.rs": "use crate::b::f;",
            "src/b.rs": "use crate::c::f;",
            "src/c.rs": "use crate::a::f;",
            "src/d.rs": "use crate::a::f;",
        },
        [*SIBLINGS, "src/c.rs"],
    ),
    "of an integration test": (
        {"tests/it/main.rs": "mod a; mod b;", "tests/it/a.rs": "use crate::b::f;", "tests/it/b.rs": "use crate::a::f;"},
        ["tests/it/a.rs", "tests/it/b.rs"],
    ),
}


@pytest.mark.parametrize(("files", "circle"), CIRCLES.values(), ids=CIRCLES)
def test_circles_of_rust(tmp_path: Path, files: dict[str, str], circle: list[str]) -> None:
    assert names(tmp_path, layers.rust(written(tmp_path, files))) == [sorted(circle)]


@pytest.mark.parametrize(
    "text",
    [
        "// use crate::a::f;",
        "/* crate::a::f() */",
        "//! See [`crate::a::f`].",
        'const SQL: &str = "crate::a::f \\" crate::a::g";',
        'const SQL: &str = r#"a " crate::a::f"#;',
        "const QUOTE: char = '\"'; // crate::a::f \"",
        "pub(in crate::a) fn f() {}",
        "use std::a::f; fn g() { std::crate_::a::f() }",
        "use super::c::f;",
        "mod tests { use super::*; use super::super::c::g; }",
    ],
)
def test_what_is_no_import_of_rust(tmp_path: Path, text: str) -> None:
    files = {"src/lib.rs": "mod a; mod b; mod c;", "src/a.rs": "use crate::b::g;", "src/b.rs": text, "src/c.rs": ""}
    assert names(tmp_path, layers.rust(written(tmp_path, files))) == []


def test_a_module_is_no_import(tmp_path: Path) -> None:
    files = {
        "src/lib.rs": "pub mod a;",
        "src/a/mod.rs": "mod b; pub mod c;",
        "src/a/b.rs": "use super::{G, c::f};",
        "src/a/c.rs": "use super::super::Error;",
    }
    graph = layers.rust(written(tmp_path, files))
    assert names(tmp_path, graph) == []
    assert graph[tmp_path / "src/a/b.rs"] == {tmp_path / "src/a/mod.rs": {"G"}, tmp_path / "src/a/c.rs": {"f"}}
    assert graph[tmp_path / "src/a/c.rs"] == {tmp_path / "src/lib.rs": {"Error"}}


def test_a_file_of_no_module_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no module of .*: .*/a/lost.rs$"):
        layers.rust(written(tmp_path, {"src/lib.rs": "mod a;", "src/a.rs": "", "src/a/lost.rs": ""}))


def test_the_circle_is_shown(tmp_path: Path) -> None:
    files = {"src/lib.rs": "mod a; mod b;", "src/a.rs": "use crate::b::{F, g};", "src/b.rs": "use crate::a::H;"}
    graph = layers.rust(written(tmp_path, files))
    shown = "a circle of 2 files:\n  src/a.rs -> src/b.rs: F, g\n  src/b.rs -> src/a.rs: H"
    assert [layers.described(graph, circle, tmp_path) for circle in layers.circles(graph)] == [shown]


def test_two_circles_are_two(tmp_path: Path) -> None:
    """Also if one leads to the other."""
    files = {
        "src/lib.rs": "mod a; mod b; mod c; mod d;",
        "src/a.rs": "use crate::b::f;",
        "src/b.rs": "use crate::{a::f, c::f};",
        "src/c.rs": "use crate::d::f;",
        "src/d.rs": "use crate::c::f;",
    }
    assert names(tmp_path, layers.rust(written(tmp_path, files))) == [SIBLINGS, ["src/c.rs", "src/d.rs"]]


def test_circles_of_folders(tmp_path: Path) -> None:
    """Also where no two files import one another."""
    files = {
        "src/lib.rs": "mod a; mod b; mod c;",
        "src/a/mod.rs": "mod d; mod e;",
        "src/a/d.rs": "use crate::b::f;",
        "src/a/e.rs": "",
        "src/b.rs": "use crate::a::e::g;",
        "src/c.rs": "use crate::a::d::h;",
    }
    graph = layers.rust(written(tmp_path, files))
    assert names(tmp_path, graph) == []
    found = [(folder, names(tmp_path, beside)) for folder, beside in layers.folded(graph) if layers.circles(beside)]
    assert found == [(tmp_path / "src", [["src/a", "src/b.rs"]])]


PYTHON = {
    "modules": (
        {"p/__init__.py": "", "p/a.py": "from p import b", "p/b.py": "from p.a import f"},
        ["p/a.py", "p/b.py"],
    ),
    "import": ({"p/__init__.py": "", "p/a.py": "import p.b as c", "p/b.py": "import p.a"}, ["p/a.py", "p/b.py"]),
    "relative": (
        {"p/__init__.py": "", "p/a.py": "from . import b", "p/b.py": "from .a import f"},
        ["p/a.py", "p/b.py"],
    ),
    "relative, a package up": (
        {"p/__init__.py": "", "p/a.py": "from .q.b import f", "p/q/__init__.py": "", "p/q/b.py": "from ..a import g"},
        ["p/a.py", "p/q/b.py"],
    ),
    "of the package itself": (
        {"p/__init__.py": "from p.a import f", "p/a.py": "from p import g"},
        ["p/__init__.py", "p/a.py"],
    ),
    "in a function": (
        {"p/__init__.py": "", "p/a.py": "def f():\n    from p import b", "p/b.py": "from p.a import f"},
        ["p/a.py", "p/b.py"],
    ),
    "for types": (
        {
            "p/__init__.py": "",
            "p/a.py": "if TYPE_CHECKING:\n    from p.b import C",
            "p/b.py": "from p.a import f",
        },
        ["p/a.py", "p/b.py"],
    ),
    "scripts": ({"p/a.py": "import b", "p/b.py": "from a import f"}, ["p/a.py", "p/b.py"]),
    "of stubs": (
        {"p/__init__.py": "", "p/a.py": "from p.b import C", "p/b.pyi": "from p.a import D"},
        ["p/a.py", "p/b.pyi"],
    ),
}


@pytest.mark.parametrize(("files", "circle"), PYTHON.values(), ids=PYTHON)
def test_circles_of_python(tmp_path: Path, files: dict[str, str], circle: list[str]) -> None:
    assert names(tmp_path, layers.python(written(tmp_path, files), ["p"])) == [sorted(circle)]


def test_no_circle_of_python(tmp_path: Path) -> None:
    """A package that exports what its modules have, which import one another, and one of the build's."""
    files = {
        "xql_ffi/__init__.py": "from xql_ffi import a\nfrom xql_ffi.b import f",
        "xql_ffi/a.py": "import xql_ffi.b\nfrom xql_ffi import _plugin, b\nimport xql_ffi._plugin.c",
        "xql_ffi/b.py": "import re\nfrom json import a",
        "xql_ffi/_plugin/__init__.py": "from xql_ffi import a",
    }
    assert names(tmp_path, layers.python(written(tmp_path, files), ["xql_ffi"])) == []
