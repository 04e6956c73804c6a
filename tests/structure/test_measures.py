"""Nothing of the project is beyond the limits but what `exceptions.txt` lists; and the check sees what is.

The list only gets shorter: a line of it that is no longer needed fails, too.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from structure import measures

ROOT = Path(__file__).parents[2]
FOUND = measures.project(ROOT)
LISTED = Path(__file__).with_name("exceptions.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("where", FOUND)
def test_limits(where: str) -> None:
    allowed = {line.removeprefix(f"{where}: ") for line in LISTED if line.startswith(f"{where}: ")}
    beyond, unneeded = {*FOUND[where]} - allowed, allowed - {*FOUND[where]}
    assert not beyond, f"beyond the limits of tests/structure/measures.py: {sorted(beyond)}"
    assert not unneeded, f"no exceptions any longer, to be taken out of exceptions.txt: {sorted(unneeded)}"


def test_the_list_is_of_the_project() -> None:
    assert {line.partition(": ")[0] for line in LISTED} <= {*FOUND}
    assert len(LISTED) == len({*LISTED})
    assert "autodiff" in FOUND
    assert "xql_ffi" in FOUND


def of_rust(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return measures.rust(folder)


LONG = "fn f() {\n" + "    g();\n" * 59 + "}\n"
IN_ONE_FILE = {
    "a function of 61 lines": (LONG, ["lines of f"]),
    "a function of 60 lines": (LONG.replace("    g();\n", "", 1), []),
    "seven parameters": ("fn f(a: A, b: A, c: A, d: A, e: A, f: A, g: A) {}", ["parameters of f"]),
    "six parameters and self": ("struct T;\nimpl T { fn f(&self, a: A, b: A, c: A, d: A, e: A, f: A) {} }", []),
    "parameters in tuples": ("fn f(a: (A, A), (b, c): &(A, (A, A)), d: A, e: A) {}", ["parameters of f"]),
    "tuples in a list": ("fn f(a: &[(A, A)], b: Vec<(A, A)>, c: A, d: A, e: A, f: A) {}", []),
    "ten fields": (f"struct T {{ {', '.join(f'{name}: A' for name in 'abcdefghij')} }}", ["fields of T"]),
    "ten fields by position": (f"struct T({', '.join('A' * 10)});", ["fields of T"]),
    "nine fields": (f"struct T {{ {', '.join(f'{name}: A' for name in 'abcdefghi')} }}", []),
    "a reason for ten fields": (
        f"/// It has ten fields, one a letter.\nstruct T {{ {', '.join(f'{n}: A' for n in 'abcdefghij')} }}",
        [],
    ),
    "no comment": (
        "pub fn f() {}\npub(crate) struct T;\npub const C: u8 = 1;\nimpl T { pub(super) fn g() {} fn h() {} }",
        ["document C", "document T", "document T::g", "document f"],
    ),
    "a comment for readers of the code": ("// What it does.\npub fn f() {}", ["document f"]),
    "comments": ("/// One.\npub fn f() {}\n/// Two.\n#[derive(Debug)]\npub struct T;", []),
    "fields without comments": (
        "/// One.\npub struct T { pub a: A, /// Two.\n pub b: A }",
        ["document the fields of T"],
    ),
    "fields that are private": ("/// One.\npub struct T { a: A }", []),
    "variants without comments": ("/// One.\npub enum E { A, /// Two.\n B }\nenum F { C }", ["document E::A"]),
    "methods of a trait": ("/// One.\npub trait T { fn f(); /// Two.\n fn g(); }", ["document T::f"]),
    "methods that a trait wants": ("struct S;\nimpl Clone for S { fn clone(&self) -> S { S } }", []),
    "unit tests": ("#[cfg(test)]\nmod tests { pub fn f() {} }", []),
}


@pytest.mark.parametrize(("text", "beyond"), IN_ONE_FILE.values(), ids=IN_ONE_FILE)
def test_one_file(tmp_path: Path, text: str, beyond: list[str]) -> None:
    assert of_rust(tmp_path, {"lib.rs": text}) == beyond


def test_a_type_in_many_files(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b; mod c; struct T;",
        "a.rs": "impl crate::T { fn f() {} }",
        "b.rs": "impl<A> Tr<A> for super::T<A> where A: B {}",
        "c.rs": "",
    }
    assert of_rust(tmp_path, files) == []
    files["c.rs"] = "use crate::T; impl Clone for T {} impl Clone for Vec<T> {}"
    assert of_rust(tmp_path, files) == ["impl T"]


def test_methods_in_circles(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b; struct T;",
        "a.rs": "impl crate::T { fn f(&self) { self.g() } }",
        "b.rs": "impl crate::T { fn g(&self) { h() } }",
    }
    assert of_rust(tmp_path, files) == []
    files["b.rs"] = "impl crate::T { fn g(&self) { Self::f(self) } }"
    assert of_rust(tmp_path, files) == ["circle of T"]
    files["b.rs"] = "use crate::a::h; impl crate::T { fn g(&self) { h() } }"
    assert of_rust(tmp_path, files) == ["circle of T"]


def test_a_module_without_a_comment(tmp_path: Path) -> None:
    files = {"lib.rs": "pub mod a; pub mod b; mod c;", "a.rs": "", "b/mod.rs": "//! What is in it.", "c.rs": ""}
    assert of_rust(tmp_path, files) == ["document a"]


def test_what_is_no_rust_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lib.rs cannot be parsed$"):
        of_rust(tmp_path, {"lib.rs": "fn f( {}"})


PYTHON = {
    "a function of 61 lines": ("def f():\n" + "    g()\n" * 60, ["lines of m.f"]),
    "a long docstring": ('def f():\n    """One.\n' + "\n    Two.\n" * 60 + '    """\n    return 1', []),
    "seven parameters": ("class C:\n    def f(self, a, b, /, c, d, *, e, f, **g): ...", ["parameters of m.C.f"]),
    "six parameters": ("class C:\n    def f(self, a, b, /, c, d, *, e, f): ...", []),
    "ten fields": ("class C:\n" + "".join(f"    {name}: int\n" for name in "abcdefghij"), ["fields of m.C"]),
    "a reason for ten fields": (
        'class C:\n    """Ten fields."""\n' + "".join(f"    {name}: int\n" for name in "abcdefghij"),
        [],
    ),
    "an import in a function": ("def f():\n    from xql_ffi import a", ["import xql_ffi in m.f"]),
    "a relative import in a function": ("def f():\n    from .a import b", ["import a in m.f"]),
    "one in a function of a function": ("def f():\n    def g():\n        import re", ["import re in m.f.g"]),
    "a dependency that users may lack": ("def f():\n    import polars", []),
    "an import": ("import re", []),
}


@pytest.mark.parametrize(("text", "beyond"), PYTHON.values(), ids=PYTHON)
def test_python(tmp_path: Path, text: str, beyond: list[str]) -> None:
    path = tmp_path / "m.py"
    path.write_text(dedent(text), encoding="utf-8")
    assert measures.python([path]) == beyond
