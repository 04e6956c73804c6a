"""What is too large, in too many places or undocumented: the limits of the project, and what is beyond them.

    python tests/structure/measures.py [CHECKOUT]

Of Rust, in the sources of each crate but their unit tests:

- `impl T`: the `impl` blocks of a type stand in more than two files.
- `circle of T`: files in which the type's methods call one another in a circle. An import does not show this, for
  nobody names the file of a method.
- `lines of f`: a function has more than 60 lines.
- `parameters of f`: a function takes more than 6 values, without `self`; a tuple counts as its parts.
- `fields of T`: a struct has more than 9 fields, and its comment does not say why it has so many fields.
- `document T`, `document T::f`: an item, a method or a variant with any `pub` has no comment.
- `document the fields of T`: a field with `pub` has none.

Of Python, in what is handed out, lines, parameters and fields in the same way. A docstring is no line of a function,
and ruff looks for docstrings that are missing. Beside these:

- `import m in f`: a function imports what could be imported at the head of the file. That is all but a dependency that
  users may lack, and what `import xql_ffi` is not to wait for: `sqlglot` and data sets of pyarrow, and the modules
  that stand on them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import tree_sitter_rust
from tree_sitter import Language, Node, Parser

sys.path.append(str(Path(__file__).parent.parent))
from structure import layers

IMPL_FILES, LINES, PARAMETERS, FIELDS = 2, 60, 6, 9
# What every installation has, and what of it is imported where it is first needed: tests/python/test_import.py.
ALWAYS_THERE = {*sys.stdlib_module_names, "xql_ffi", "_cffi_backend", "cffi", "datafusion", "pyarrow", "sqlglot"}
LATE = ("sqlglot", "xql_ffi._text.dialects", "xql_ffi._objective.in_datafusion", "xql_ffi._prepared.stepping")

_PARSER = Parser(Language(tree_sitter_rust.language()))
_COMMENTS = ("line_comment", "block_comment")
_ITEMS = (
    "const_item",
    "enum_item",
    "function_item",
    "macro_definition",
    "mod_item",
    "static_item",
    "struct_item",
    "trait_item",
    "type_item",
    "union_item",
)


def rust(crate: Path) -> list[str]:
    """What is beyond the limits in a crate."""
    files = {file: _PARSER.parse(file.read_bytes()).root_node for file in sorted(crate.glob("src/**/*.rs"))}
    found: set[str] = set()
    for file, root in files.items():
        if root.has_error:
            msg = f"{file} cannot be parsed"
            raise ValueError(msg)
        for node in _walk(root):
            found |= {*_too_large(node), *_undocumented(node, file)}
    return sorted(found | {*_scattered(layers.rust(crate), files)})


def _walk(node: Node) -> Iterator[Node]:
    """A node and all in it, without unit tests."""
    yield node
    for child in node.children:
        if not (child.type in _ITEMS and any("cfg(test)" in _text(part) for part in _head(child))):
            yield from _walk(child)


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode()


def _head(node: Node) -> Iterator[Node]:
    """The comments and attributes above an item, from the last one up."""
    above = node.prev_sibling
    # What ends the line before, such as the comma between two fields, has its own comment behind it.
    while above is not None and above.type in (*_COMMENTS, "attribute_item"):
        yield above
        above = above.prev_sibling


def _documented(node: Node) -> bool:
    return any(_text(part).startswith(("///", "/**", "#[doc")) for part in _head(node))


def _name(node: Node) -> str:
    """The name of an item, after that of the type or trait that it belongs to."""
    own = _text(node.child_by_field_name("name"))
    outer = node.parent
    while outer is not None and outer.type not in ("impl_item", "trait_item", "enum_item"):
        outer = outer.parent
    if outer is None:
        return own
    return f"{_type_name(outer.child_by_field_name('type')) or _text(outer.child_by_field_name('name'))}::{own}"


def _type_name(node: Node | None) -> str:
    """The last name of a type, without what it is generic over: `Given` of `super::Given<F>`."""
    if node is None:
        return ""
    if node.type in ("generic_type", "reference_type"):
        return _type_name(node.child_by_field_name("type"))
    return _text(node.child_by_field_name("name") or node)


def _too_large(node: Node) -> Iterator[str]:
    if node.type in ("function_item", "function_signature_item"):
        if node.end_point.row - node.start_point.row + 1 > LINES:
            yield f"lines of {_name(node)}"
        parameters = node.child_by_field_name("parameters")
        if parameters is not None and sum(map(_values, parameters.named_children)) > PARAMETERS:
            yield f"parameters of {_name(node)}"
    elif node.type in ("struct_item", "enum_variant") and (body := node.child_by_field_name("body")):
        fields = [part for part in body.named_children if part.type == "field_declaration"]
        positions = body.children_by_field_name("type") if body.type == "ordered_field_declaration_list" else []
        reason = any("fields" in _text(part) for part in _head(node))
        if max(len(fields), len(positions)) > FIELDS and not reason:
            yield f"fields of {_name(node)}"


def _values(parameter: Node) -> int:
    """How many values a parameter has: those of a tuple are its parts."""
    if parameter.type != "parameter":
        return 0
    return _parts(parameter.child_by_field_name("type"))


def _parts(kind: Node | None) -> int:
    if kind is not None and kind.type == "reference_type":
        return _parts(kind.child_by_field_name("type"))
    if kind is not None and kind.type == "tuple_type":
        return sum(map(_parts, kind.named_children))
    return 1


def _undocumented(node: Node, file: Path) -> Iterator[str]:
    outer = node.parent.parent if node.parent else None
    # A variant is as public as its enum is, and a method that a trait declares as public as the trait.
    of_outer = outer is not None and (node.type == "enum_variant" or outer.type == "trait_item")
    decides = outer if outer is not None and of_outer else node
    public = any(child.type == "visibility_modifier" for child in decides.children)
    if not public or _documented(node):
        return
    if node.type == "field_declaration" and outer is not None:
        yield f"document the fields of {_name(outer)}"
    elif node.type == "mod_item" and node.child_by_field_name("body") is None:
        name = _text(node.child_by_field_name("name"))
        folder = file.parent if file.stem in ("lib", "main", "mod") else file.with_suffix("")
        texts = [path.read_text(encoding="utf-8") for path in _sources(folder, name)]
        if not all(text.startswith("//!") for text in texts):
            yield f"document {name}"
    elif node.type in (*_ITEMS, "function_signature_item", "enum_variant"):
        yield f"document {_name(node)}"


def _sources(folder: Path, name: str) -> list[Path]:
    return [path for path in (folder / f"{name}.rs", folder / name / "mod.rs") if path.is_file()]


def _scattered(imports: layers.Graph, files: dict[Path, Node]) -> Iterator[str]:
    """The types whose `impl` blocks are in too many files, or whose methods call one another from file to file."""
    own = {_text(n.child_by_field_name("name")) for root in files.values() for n in _walk(root) if _is_type(n)}
    blocks: dict[str, list[tuple[Path, Node]]] = defaultdict(list)
    for file, root in files.items():
        for node in _walk(root):
            if node.type == "impl_item" and (name := _type_name(node.child_by_field_name("type"))) in own:
                blocks[name].append((file, node))
    for name, of_type in blocks.items():
        if len({file for file, _ in of_type}) > IMPL_FILES:
            yield f"impl {name}"
        arrows = list(_calls_of_self(of_type))
        graph = {file: {target: set(names) for target, names in targets.items()} for file, targets in imports.items()}
        for source, target, method in arrows:
            graph[source].setdefault(target, set()).add(method)
        ends = {(source, target) for source, target, _ in arrows}
        if any({*end} <= {*circle} for circle in layers.circles(graph) for end in ends):
            yield f"circle of {name}"


def _is_type(node: Node) -> bool:
    return node.type in ("struct_item", "enum_item", "union_item")


def _calls_of_self(blocks: list[tuple[Path, Node]]) -> Iterator[tuple[Path, Path, str]]:
    """The files of a method that is called on `self`, or as one of `Self`, and of the methods that call it."""
    methods: dict[str, Path] = {}
    for file, block in blocks:
        if block.child_by_field_name("trait") is None:
            methods |= {_text(n.child_by_field_name("name")): file for n in _walk(block) if n.type == "function_item"}
    for file, block in blocks:
        for found in re.finditer(r"\b(?:self\s*\.\s*|Self\s*::\s*)(\w+)\s*(?:::<[^(]*>)?\(", _code(block)):
            target = methods.get(found[1], file)
            if target != file:
                yield file, target, found[1]


def _code(block: Node) -> str:
    return re.sub(r"//[^\n]*", "", _text(block))


def python(files: Iterable[Path]) -> list[str]:
    """What is beyond the limits in Python files."""
    found: set[str] = set()
    for file in files:
        for name, node in _named(ast.parse(file.read_text(encoding="utf-8")), ""):
            found |= {*_of_python(f"{file.stem}.{name}", node)}
    return sorted(found)


def _named(node: ast.AST, outer: str) -> Iterator[tuple[str, ast.AST]]:
    """Each function and class with its name after those of what it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield f"{outer}{child.name}", child
            yield from _named(child, f"{outer}{child.name}.")
        else:
            yield from _named(child, outer)


def _of_python(name: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        if len(fields) > FIELDS and "fields" not in (ast.get_docstring(node) or ""):
            yield f"fields of {name}"
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        inner = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.ClassDef))]
        said = node.body[0] if ast.get_docstring(node) is not None else None
        ignored = 0 if said is None else (said.end_lineno or 0) - said.lineno + 1
        if (node.end_lineno or 0) - node.lineno + 1 - ignored > LINES:
            yield f"lines of {name}"
        taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        taken = [a for a in taken if a.arg not in ("self", "cls")]
        if len(taken) + sum(a is not None for a in (node.args.vararg, node.args.kwarg)) > PARAMETERS:
            yield f"parameters of {name}"
        deeper = {id(part) for function in inner for part in ast.walk(function)}
        for part in ast.walk(node):
            if isinstance(part, (ast.Import, ast.ImportFrom)) and id(part) not in deeper:
                modules = [part.module or ""] if isinstance(part, ast.ImportFrom) else [a.name for a in part.names]
                own = isinstance(part, ast.ImportFrom) and part.level
                needed = [m for m in modules if own or (m.partition(".")[0] in ALWAYS_THERE and m not in LATE)]
                yield from (f"import {m} in {name}" for m in needed)


def project(root: Path) -> dict[str, list[str]]:
    """What is beyond the limits in every crate, and in each folder of Python that is handed out."""
    crates = sorted(path.parent.parent for path in root.glob("native/*/src/lib.rs"))
    found = {crate.name: rust(crate) for crate in crates}
    for folder in ("xql_ffi", "native/engine/python"):
        files = [file for file in sorted((root / folder).rglob("*.py")) if "_plugin" not in file.parts]
        found[folder] = python(files)
    return found


if __name__ == "__main__":
    for where, beyond in project(Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parents[2])).items():
        print(f"{where}: {len(beyond)}")
        for line in beyond:
            print(f"  {line}")
