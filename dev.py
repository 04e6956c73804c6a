#!/usr/bin/env python3
"""Sets up a checkout of xql-ffi and runs its two jobs.

    python3 dev.py example [ARGUMENTS]   build, install and run examples/era5_sensitivity.py
    python3 dev.py test [ARGUMENTS]      build, install and run every check and test; ARGUMENTS go to pytest
    python3 dev.py build                 build and install only

Needs Python 3.10 or newer, Rust and a C compiler; everything else is installed into `.venv`. Native code is built in
$CARGO_TARGET_DIR, or else in xql-ffi/target of the user's cache folder, which all checkouts share.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "native"
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
WHEELS = ROOT / "build" / "wheels"
OLDEST_PYTHON = (3, 10)


class CheckError(Exception):
    """What a check of this script found."""


def say(text: str) -> None:
    """Prints a line that stands out in a long output."""
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"{bold}== {text}{plain}", flush=True)


def check_tools(*, test: bool) -> None:
    """Ends with a message if a tool is missing that this script cannot install."""
    missing = []
    if sys.version_info < OLDEST_PYTHON:
        missing.append(f"Python 3.10 or newer; this is {sys.version.split()[0]}: run dev.py with a newer python3.")
    for module in ("venv", "ensurepip"):
        try:
            __import__(module)
        except ImportError:
            missing.append(f"Python's module `{module}`: on Debian and Ubuntu it is in the package python3-venv.")
    if not shutil.which("cargo"):
        missing.append("cargo: install Rust 1.88 or newer, for example with rustup.")
    elif test:
        for command, component in (("cargo-fmt", "rustfmt"), ("clippy-driver", "clippy")):
            if not shutil.which(command):
                missing.append(f"{command}: `rustup component add {component}`.")
    compiler = os.environ.get("CC", "cc").split()[0]
    if os.name != "nt" and not shutil.which(compiler):
        missing.append(f"a C compiler (`{compiler}`): install gcc or clang; on Debian and Ubuntu, build-essential.")
    if missing:
        sys.exit("dev.py needs\n" + "".join(f"  - {line}\n" for line in missing))


def environment() -> dict[str, str]:
    """The environment of every command: tools from the virtual environment, one target folder for all checkouts."""
    env = dict(os.environ)
    # A changed value would make cargo build again what the variable reaches, DataFusion included.
    for name in ("PROTOC", "PYTHONHOME", "PYTHONPATH"):
        env.pop(name, None)
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = str(BIN) + os.pathsep + env.get("PATH", "")
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env.setdefault("CARGO_TARGET_DIR", str(NATIVE / "target"))
    return env


def shown(command: tuple[str | Path, ...]) -> str:
    """A command as it is printed: paths by their last part."""
    return " ".join(part.name if isinstance(part, Path) else part for part in command)


def run(*command: str | Path, cwd: Path = ROOT, extra: dict[str, str] | None = None) -> None:
    """Runs a command; a failure ends the step that runs it."""
    print("$", shown(command), flush=True)
    done = subprocess.run([str(c) for c in command], cwd=cwd, env={**environment(), **(extra or {})}, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, shown(command))


def output(*command: str, cwd: Path = NATIVE) -> str:
    """What a command prints."""
    return subprocess.run(command, cwd=cwd, env=environment(), stdout=subprocess.PIPE, text=True, check=True).stdout


def fingerprint(*paths: Path, ignore: tuple[str, ...] = ()) -> str:
    """A hash over the names and contents of files and folders."""
    digest = hashlib.sha256()
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            name = file.relative_to(ROOT)
            if file.is_file() and not set(name.parts) & {"__pycache__", "target", *ignore} and file.suffix != ".so":
                digest.update(f"{name}\0{file.stat().st_size}\0".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()


class Stamp:
    """A note in the virtual environment of what was installed last, so that an unchanged step is skipped."""

    def __init__(self, name: str, value: str) -> None:
        self.file = VENV / f"{name}.stamp"
        self.value = value

    def holds(self) -> bool:
        """Whether nothing has changed since."""
        return self.file.is_file() and self.file.read_text() == self.value

    def set(self) -> None:
        """Notes that the step is done."""
        self.file.write_text(self.value)


def make_venv() -> None:
    """Makes `.venv`, again if it is of another Python."""
    stamp = Stamp("python", f"{sys.version}\n{Path(sys.base_prefix).resolve()}\n{VENV}")
    if stamp.holds() and PYTHON.exists():
        return
    say(f"virtual environment .venv, Python {sys.version.split()[0]}")
    if VENV.exists():
        shutil.rmtree(VENV)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    stamp.set()


def install_requirements(*groups: str) -> None:
    """Installs dependency groups of pyproject.toml at the versions of constraints.txt."""
    stamp = Stamp("-".join(groups), fingerprint(ROOT / "pyproject.toml", ROOT / "constraints.txt"))
    if stamp.holds():
        return
    say(f"Python packages: {', '.join(groups)}")
    pip = (PYTHON, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt")
    run(*pip, "pip")  # --group needs a recent pip
    run(*pip, *(word for group in groups for word in ("--group", group)))
    stamp.set()


def build() -> None:
    """Builds both distributions and installs them into the virtual environment."""
    sources = [ROOT / ".cargo", ROOT / "pyproject.toml", NATIVE]
    stamp = Stamp("native", f"{output('rustc', '-Vv')}{fingerprint(*sources, ignore=('tests',))}")
    plugin = list((ROOT / "xql_ffi" / "_plugin").glob("*.py"))
    if stamp.holds() and plugin:
        return
    say(f"native build in {environment()['CARGO_TARGET_DIR']}: the first takes 15 to 40 minutes, the next seconds")
    shutil.rmtree(WHEELS, ignore_errors=True)
    # Editable: the Python files stay those of the checkout, the library and its cffi module are put beside them.
    run(BIN / "maturin", "develop", "--locked")
    # A wheel, for its .pth file; uncompressed, for it is installed at once and thrown away.
    engine = NATIVE / "engine" / "pyproject.toml"
    wheel = ("--out", WHEELS, "--compression-method", "stored", "--auditwheel", "skip")
    run(BIN / "maturin", "build", "--profile", "dev", "--locked", *wheel, cwd=engine.parent)
    install = (PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall")
    run(*install, *WHEELS.glob("xql_ffi_engine-*.whl"))
    shutil.rmtree(WHEELS)
    stamp.set()


def set_up(*groups: str) -> None:
    """Everything up to an installed xql-ffi."""
    check_tools(test="test" in groups)
    make_venv()
    install_requirements("build", *groups)
    build()


class Tests:
    """Runs sections one after the other, goes on after a failure, and sums up at the end."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, float]] = []
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def section(self, name: str, job: Callable[[], None], *, after: str = "") -> None:
        """Runs a section, unless the one it needs has not succeeded."""
        start = time.monotonic()
        state = "ok"
        if after and (after, "ok") not in [row[:2] for row in self.rows]:
            state = "not run"
        else:
            say(name)
            try:
                job()
            except (subprocess.CalledProcessError, CheckError) as error:
                print(error, file=sys.stderr, flush=True)
                state = "FAILED"
        self.rows.append((name, state, time.monotonic() - start))

    def counted(self, *command: str | Path, cwd: Path = ROOT) -> None:
        """Runs a test runner, showing what it prints, and adds up the results among it."""
        print("$", shown(command), flush=True)
        colour = ["--color", "yes" if sys.stdout.isatty() else "no"] if "pytest" in command else []
        with subprocess.Popen(
            [str(c) for c in (*command, *colour)],
            cwd=cwd,
            env=environment(),
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                # cargo: "test result: ok. 3 passed; 0 failed; 1 ignored"; pytest: "=== 3 passed, 1 skipped in 2.5s ==="
                if line.startswith("test result:") or re.search(r"\b(passed|failed|error).* in [\d.]+s", line):
                    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped|ignored)", line):
                        outcome = {"error": "failed", "ignored": "skipped"}.get(word, word)
                        self.counts[outcome] += int(number)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, shown(command))

    def finish(self) -> int:
        """Prints the summary and gives the exit status."""
        say("summary")
        for name, state, seconds in self.rows:
            print(f"{name:22} {state:8} {seconds:7.1f} s")
        print(", ".join(f"{number} {outcome}" for outcome, number in self.counts.items()), flush=True)
        return 0 if all(state == "ok" for _, state, _ in self.rows) else 1


def one_build() -> None:
    """Fails if two of the ways in which cargo is called here would compile a crate of others twice.

    Cargo compiles a crate anew for every set of features. One crate on its own (maturin), the workspace and the tests
    must therefore ask for the same ones, or DataFusion is compiled again, half an hour at a time.
    """

    def crates(*selection: str, edges: str = "normal,build") -> set[str]:
        lines = output(
            "cargo", "tree", "--locked", "--prefix=none", "--format={p} [{f}]", f"--edges={edges}", *selection
        )
        return {line.replace(" (*)", "") for line in lines.splitlines() if not line.startswith("xql-")} - {""}

    ways = {
        "maturin for xql-plugin": crates("--package=xql-plugin"),
        "maturin for xql-engine": crates("--package=xql-engine"),
        "cargo test": crates("--workspace", edges="normal,build,dev"),
    }
    whole = crates("--workspace")
    differences = [
        f"{way}, unlike cargo build: {line}" for way, found in ways.items() for line in sorted(found ^ whole)
    ]
    if differences:
        raise CheckError("\n".join(differences))
    print(f"{len(whole)} crates, each with one set of features")


def clippy() -> None:
    """Runs clippy's compiler in place of rustc on our crates.

    `cargo clippy` would first check all of DataFusion, which takes as long as most of a build.
    """
    lints = {"RUSTC_WORKSPACE_WRAPPER": "clippy-driver", "CLIPPY_ARGS": "-Dwarnings"}
    cargo = ("cargo", "build", "--workspace", "--all-targets", "--locked")
    run(*cargo, cwd=NATIVE, extra=lints)


def rustdoc() -> None:
    """Documents our crates against the libraries that are built; `cargo doc` would check all of DataFusion as well."""
    libraries: dict[str, str] = {}
    cargo = ("cargo", "build", "--workspace", "--locked", "--message-format=json")
    for line in output(*cargo).splitlines():
        message = json.loads(line)
        files = [file for file in message.get("filenames", []) if file.endswith((".rlib", ".so", ".dylib", ".dll"))]
        if message["reason"] == "compiler-artifact" and files:
            # A crate that is built as a shared object too is linked as a library of Rust.
            libraries[message["package_id"]] = next((f for f in files if f.endswith(".rlib")), files[0])
    metadata: dict[str, Any] = json.loads(output("cargo", "metadata", "--format-version=1", "--locked"))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    target = Path(metadata["target_directory"])
    for member in metadata["workspace_members"]:
        package = packages[member]
        crate = next(t for t in package["targets"] if {"lib", "cdylib"} & set(t["kind"]))
        dependencies = [d for d in nodes[member]["deps"] if d["pkg"] in libraries]
        options = ROOT / "build" / f"{package['name']}.rustdoc"
        options.parent.mkdir(exist_ok=True)
        options.write_text(
            "\n".join(
                [
                    f"--edition={package['edition']}",
                    f"--crate-name={crate['name']}",
                    f"--out-dir={target / 'doc'}",
                    f"-Ldependency={target / 'debug' / 'deps'}",
                    *(f"--extern={d['name']}={libraries[d['pkg']]}" for d in dependencies),
                    crate["src_path"],
                ]
            )
        )
        version = {"CARGO_PKG_NAME": package["name"], "CARGO_PKG_VERSION": package["version"]}
        run("rustdoc", "-Dwarnings", "--document-private-items", f"@{options}", cwd=NATIVE, extra=version)


def test(arguments: list[str]) -> int:
    """Runs every check and test."""
    check_tools(test=True)
    make_venv()
    install_requirements("build", "test")
    tests = Tests()
    tests.section("rustfmt", lambda: run("cargo", "fmt", "--all", "--check", cwd=NATIVE))
    tests.section("ruff", lambda: run("ruff", "check"))
    tests.section("ruff format", lambda: run("ruff", "format", "--check"))
    tests.section("one build", one_build)
    tests.section("build", build)
    # The types of the two packages are those installed.
    tests.section("mypy", lambda: run("mypy"), after="build")
    tests.section("clippy", clippy, after="build")
    tests.section("rustdoc", rustdoc, after="build")
    cargo = ("cargo", "test", "--workspace", "--locked", "--no-fail-fast")
    tests.section("cargo test", lambda: tests.counted(*cargo, cwd=NATIVE), after="build")
    tests.section("pytest", lambda: tests.counted("pytest", *arguments), after="build")
    return tests.finish()


def main() -> int:
    """Runs the job that the command line names."""
    job, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    try:
        if job == "example":
            set_up("example")
            say("examples/era5_sensitivity.py")
            run(PYTHON, "examples/era5_sensitivity.py", *arguments)
        elif job == "test":
            return test(arguments)
        elif job == "build" and not arguments:
            set_up("example")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except subprocess.CalledProcessError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
