"""The circles in which files of the project import one another, Rust and Python: there is to be none.

    python tests/structure/layers.py [CHECKOUT]

An arrow goes from a file to each file whose items it names:

- In Rust by every `use` and every path in the code, to the file of the last module on the path: `super::types::decoded`
  leads to `types.rs`, and `super::Node` to the parent's file, also if that only exports it again. `mod child;` is no
  import, but `child::f()` and `pub use child::f` in the parent are. So a child that takes an item of its parent, which
  takes one of the child, is a circle of two. Methods are not seen: nobody names their file.
- In Python by every import, also within functions and under `TYPE_CHECKING`: such places make a circle run, and the
  reader still cannot tell which of the two files is the lower one. `import package.module` leads to the module alone.

Folders are layers as well: two that stand beside one another, or a folder and a file beside it, make a circle if each
has a file that imports one of the other, also if no file stands in a circle.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# What each file imports, as names by the file that they are in.
Graph = dict[Path, dict[Path, set[str]]]
Module = tuple[str, ...]

# Made by the build, and imports nothing of ours.
GENERATED = "xql_ffi._plugin"

_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/            # comments
    |\bb?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^\\'])'  # strings and characters, no lifetimes
    |\bpub\s*\([^)]*\)""",  # pub(in path) is no import
    re.DOTALL | re.VERBOSE,
)
_RUST = re.compile(
    r"""\bmod\s+(?P<mod>\w+)\s*(?P<opens>[;{])
    |\buse\s+(?P<use>[\w:{][^;]*);
    |(?<![\w:])(?P<path>\w+(?:\s*::\s*\w+)+)
    |(?P<brace>[{}])""",
    re.VERBOSE,
)


def circles(graph: Graph) -> list[list[Path]]:
    """The files that reach themselves, each group of those that reach one another together."""

    def reached(start: Path) -> set[Path]:
        found: set[Path] = set()
        ahead = [start]
        while ahead:
            ahead += (new := graph[ahead.pop()].keys() - found)
            found |= new
        return found

    ahead = {file: reached(file) for file in graph}
    groups = {frozenset(g for g in found if file in ahead[g]) for file, found in ahead.items()}
    return sorted(sorted(group) for group in groups if group)


def folded(graph: Graph) -> Iterator[tuple[Path, Graph]]:
    """Each folder, and the imports among what stands in it: files, and folders each of which is taken for one."""
    for folder in sorted({folder for file in graph for folder in file.parents}):
        beside: Graph = {}
        for file, targets in graph.items():
            if not file.is_relative_to(folder):
                continue
            here = folder / file.relative_to(folder).parts[0]
            arrows = beside.setdefault(here, {})
            for target in targets:
                if target.is_relative_to(folder) and (there := folder / target.relative_to(folder).parts[0]) != here:
                    arrows.setdefault(there, set()).add(f"{file.relative_to(here.parent)} -> {target.name}")
        yield folder, beside


def described(graph: Graph, circle: list[Path], root: Path) -> str:
    """A circle with its arrows and what is imported along each."""
    lines = [f"a circle of {len(circle)} files:"]
    for file in circle:
        for target, names in sorted(graph[file].items()):
            if target in circle:
                lines.append(f"  {file.relative_to(root)} -> {target.relative_to(root)}: {', '.join(sorted(names))}")
    return "\n".join(lines)


def rust(crate: Path) -> Graph:
    """The imports within a crate: of its library, and of each of its integration tests."""
    roots = [crate / "src/lib.rs", crate / "src/main.rs", crate / "build.rs"]
    roots += [*crate.glob("tests/*.rs"), *crate.glob("tests/*/main.rs")]
    graph: Graph = {}
    for root in filter(Path.is_file, roots):
        _Tree(root, graph)
    if lost := {*crate.glob("src/**/*.rs"), *crate.glob("tests/**/*.rs")} - graph.keys():
        msg = f"no module of {crate.name}: {', '.join(map(str, sorted(lost)))}"
        raise ValueError(msg)
    return graph


class _Tree:
    """The modules of one root file, whose imports are added to a graph."""

    def __init__(self, root: Path, graph: Graph) -> None:
        self.files: dict[Module, Path] = {}
        # What a module calls others by.
        self.names: dict[Module, dict[str, Module]] = {}
        self.uses: list[tuple[Module, str]] = []
        self.paths: list[tuple[Module, str]] = []
        self._read((), root, root.parent)
        graph |= {file: graph.get(file, {}) for file in self.files.values()}
        for here, path in self.uses * 2:  # one may name a module that only a later one brings
            self._bind(here, *path.split(" as "))
        for here, path in self.uses + self.paths:
            module, rest = self._resolved(here, path.partition(" as ")[0])
            if (source := self.files[here]) != (target := self.files[module]):
                graph[source].setdefault(target, set()).add(rest[0] if rest else f"mod {module[-1]}")

    def _read(self, module: Module, file: Path, folder: Path) -> None:
        """Reads a file, whose modules have their files in the folder, and those below it."""
        self.files[module], self.names[module] = file, {}
        depth, inline = 0, [(module, 0)]
        for found in _RUST.finditer(_NO_CODE.sub(_blank, file.read_text(encoding="utf-8"))):
            here = inline[-1][0]
            if name := found["mod"]:
                child = (*here, name)
                self.names[here][name] = child
                if found["opens"] == ";":
                    below = folder.joinpath(*child[len(module) : -1], name)
                    flat = below.with_suffix(".rs")
                    self._read(child, flat if flat.is_file() else below / "mod.rs", below)
                else:
                    depth += 1
                    inline.append((child, depth))
                    self.files[child], self.names[child] = file, {}
            elif tree := found["use"]:
                self.uses += [(here, path) for path in _leaves(" ".join(tree.split()))]
            elif path := found["path"]:
                self.paths.append((here, "".join(path.split())))
            elif found["brace"] == "{":
                depth += 1
            else:
                if inline[-1][1] == depth and depth:
                    inline.pop()
                depth -= 1

    def _bind(self, here: Module, path: str, alias: str = "") -> None:
        """Adds the module that a `use` names, or those that it takes with all else, to what `here` knows."""
        module, rest = self._resolved(here, path)
        if rest == ["*"]:
            self.names[here] |= self.names[module]
        elif not rest:
            self.names[here][alias or path.removesuffix("::self").rpartition("::")[2]] = module

    def _resolved(self, here: Module, path: str) -> tuple[Module, list[str]]:
        """The last module on a path, and what is left of the path."""
        module, rest = here, path.split("::")
        while rest and (step := self._step(module, rest[0])) is not None:
            module, rest = step, rest[1:]
        return module, rest

    def _step(self, module: Module, name: str) -> Module | None:
        """The module that a name means in a module."""
        return {"crate": (), "self": module, "super": module[:-1]}.get(name, self.names[module].get(name))


def _blank(found: re.Match[str]) -> str:
    return "pub" if found[0].startswith("pub") else " "


def _leaves(tree: str) -> Iterator[str]:
    """Each path of a `use`: of `a::{b, c::{d, e as f}}` the paths `a::b`, `a::c::d` and `a::c::e as f`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield tree.strip()
        return
    depth, part = 0, ""
    for character in rest.rstrip()[:-1] + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            yield from (head.strip() + leaf for leaf in _leaves(part.strip()) if leaf)
            part = ""
        else:
            part += character


def python(root: Path, folders: list[str]) -> Graph:
    """The imports among the Python files of folders: packages, or folders of scripts and packages."""
    files = sorted(
        file for folder in folders for file in (root / folder).rglob("*.py*") if file.suffix in (".py", ".pyi")
    )
    files = [file for file in files if not _dotted(file.relative_to(root)).startswith(GENERATED)]
    modules = {_dotted(file.relative_to(root)): file for file in files}
    for folder in folders:
        if not (root / folder / "__init__.py").is_file():  # then it is on the path itself
            modules |= {_dotted(f.relative_to(root / folder)): f for f in files if f.is_relative_to(root / folder)}
    graph: Graph = {file: {} for file in files}
    for file in files:
        here = _dotted(file.relative_to(root))
        package = here if file.stem == "__init__" else here.rpartition(".")[0]
        for module, name in _imports(ast.parse(file.read_text(encoding="utf-8")), package):
            full = f"{module}.{name}".strip(".")
            target = modules.get(full) or modules.get(module)
            if target and target != file and full != GENERATED:
                graph[file].setdefault(target, set()).add(name or module)
    return graph


def _dotted(file: Path) -> str:
    return ".".join(part for part in file.with_suffix("").parts if part != "__init__")


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """The module and the name of every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


def project(root: Path) -> dict[str, Graph]:
    """The imports of every crate, and those of all Python folders together."""
    crates = sorted(path.parent.parent for path in root.glob("native/*/src/lib.rs"))
    folders = {path.parent for path in [*root.glob("[!.]*/*.py"), *root.glob("native/*/python")]}
    names = sorted(str(folder.relative_to(root)) for folder in folders)
    return {str(crate.relative_to(root)): rust(crate) for crate in crates} | {"Python": python(root, names)}


def main() -> int:
    """Prints what there is of circles, and is 1 if there is one."""
    root, found = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parents[2]), 0
    for name, graph in project(root).items():
        inside = circles(graph)
        shown = [described(graph, circle, root) for circle in inside]
        shown += [described(beside, circle, root) for _, beside in folded(graph) for circle in circles(beside)]
        found += len(shown)
        print(f"{name}: {len(graph)} files, {sum(map(len, inside))} of them in {len(inside)} circles")
        print(*shown, sep="\n", end="\n" if shown else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
