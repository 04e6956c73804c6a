#!/usr/bin/env python3
"""Sets up a checkout of xql-ffi and runs its jobs.

    python3 dev.py example [ARGUMENTS]   build, install and run examples/era5_sensitivity.py
    python3 dev.py scale-out [--engine sail|ballista] [ARGUMENTS]
                                         the same for examples/scale_out.py, with Sail in an environment of its own;
                                         Ballista is compiled for it
    python3 dev.py test [--all] [ARGUMENTS]
                                         build, install and run every check and the daily tests, or all tests;
                                         ARGUMENTS go to pytest on 54
    python3 dev.py build                 build and install only, also in build/datafusion-55 beside the stock wheel
    python3 dev.py wheels [ARGUMENTS]    build the wheels for others, check and test them; ARGUMENTS go to pytest
    python3 dev.py bench [PROGRAM ...] [--engine] [--compare REF] [--profile release|dev]
                                         run programs of bench/ on DataFusion 55, or on the engine for 54, or say
                                         what is slower than in another commit

Needs Python 3.10 or newer, Rust and a C compiler; everything else is installed into `.venv`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent
SCRIPTS = "Scripts" if sys.platform == "win32" else "bin"  # where an environment has its programs
NATIVE, BUILD, TOOLS = ROOT / "native", ROOT / "build", ROOT / ".venv" / SCRIPTS
STOCK = BUILD / "datafusion-55"  # an environment with the stock wheel of DataFusion 55
# What is tested with the stock wheel, too: what judges derivatives and statements. What of it is daily is said in
# tests/support/daily.py.
ON_STOCK = (
    *(
        f"tests/{suite}"
        for suite in (
            "by_row",
            "calculus",
            "conformance",
            "datasets",
            "depth",
            "errors",
            "plans",
            "relations",
            "rules",
            "seeds",
            "stock",
        )
    ),
    "tests/examples/test_training_page.py",
    *(
        f"tests/python/test_{suite}.py"
        for suite in ("bars", "objective", "prepared", "progress", "solutions", "watched_objectives")
    ),
    *(
        f"tests/load/test_{suite}.py"
        for suite in ("cancelled", "interpreters", "memory_pool", "names", "processes", "threads")
    ),
)
# What `dev.py bench` runs: the programs that need no environment of their own.
PROGRAMS = (
    "adjoint",
    "checkpoints",
    "contraction",
    "contraction_growth",
    "derivatives",
    "engine_vs_stock",
    "fixed_point",
    "forms",
    "from_file",
    "growth",
    "jacobian",
    "layers",
    "likelihood",
    "limits",
    "memory",
    "nanogpt",
    "nn2sql",
    "objective",
    "planning",
    "relations",
    "rows",
    "startup",
    "texts",
    "training",
    "windows",
    "xarray_sql_nn",
)
LIBRARIES = {"darwin": ("lib", ".dylib"), "win32": ("", ".dll")}  # how the names of shared libraries begin and end
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
ENGINE_TO_STOCK, PLUGIN_MB = 1.10, 30.0  # the largest wheels that are handed out
# By platform, what puts the libraries into a wheel that a system may lack, and what shows which ones a wheel needs.
REPAIR, SHOW = {
    "darwin": (("delocate-wheel", "--wheel-dir"), ("delocate-listdeps", "--all")),
    "win32": (("delvewheel", "repair", "--wheel-dir"), ("delvewheel", "show")),
}.get(sys.platform, (("auditwheel", "repair", "--zip-compression-level", "9", "--wheel-dir"), ("auditwheel", "show")))


def say(text: str) -> None:
    """Prints a line that stands out in a long output."""
    print(f"\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"== {text}", flush=True)


def environment() -> dict[str, str]:
    """The environment of every command: the tools of `.venv`, and compiled crates shared with other checkouts."""
    # A changed value of these would make cargo build again what they reach, DataFusion included.
    env = {name: value for name, value in os.environ.items() if name not in ("PROTOC", "PYTHONHOME", "PYTHONPATH")}
    env |= {"VIRTUAL_ENV": str(TOOLS.parent), "PATH": f"{TOOLS}{os.pathsep}{env.get('PATH', '')}"}
    env |= {"UV_CONSTRAINT": str(ROOT / "constraints.txt")}
    if sys.platform == "win32":  # pyo3, which asks no interpreter, leaves it to the linker to find python3.lib
        env |= {"LIB": f"{Path(sys.base_prefix, 'libs')}{os.pathsep}{env.get('LIB', '')}"}
    if shutil.which("sccache", path=TOOLS):
        env = {"RUSTC_WRAPPER": "sccache", "SCCACHE_IGNORE_SERVER_IO_ERROR": "1", **env}
    return env


def run(*command: str | Path, cwd: Path = ROOT, **extra: str) -> None:
    """Runs a command; a failure ends the step that runs it."""
    print("$", *(part.name if isinstance(part, Path) else part for part in command), flush=True)
    subprocess.run(command, cwd=cwd, env=environment() | extra, check=True)


def install(tools: Path, *what: str | Path) -> None:
    """Installs into an environment, at the versions of constraints.txt."""
    run("uv", "pip", "install", "--quiet", "--python", tools / "python", *what)


def set_up(job: str) -> None:
    """Makes `.venv` with what pyproject.toml lists for building and for a job."""
    needed = {
        "cargo": "install Rust 1.88 or newer, for example with rustup",
        "cargo-fmt": "rustup component add rustfmt",
        "clippy-driver": "rustup component add clippy",
    }
    if sys.platform != "win32":  # rustc finds the compiler of Visual Studio by itself
        needed[os.environ.get("CC", "cc").split()[0]] = "install gcc or clang; on Debian and Ubuntu, build-essential"
    if missing := [f"\n  - {tool}: {advice}" for tool, advice in needed.items() if not shutil.which(tool)]:
        sys.exit(f"dev.py needs{''.join(missing)}")
    settings = TOOLS.parent / "pyvenv.cfg"
    if not settings.exists() or f"version = {platform.python_version()}\n" not in settings.read_text():
        say(f"virtual environment .venv, Python {platform.python_version()}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", TOOLS.parent], check=True)
    if not shutil.which("uv", path=TOOLS):
        run(TOOLS / "python", "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt", "uv")
    install(TOOLS, "--group=build", f"--group={job}")


def build() -> None:
    """Builds both distributions with the quick profile and installs them; cargo compiles what has changed."""
    say("native build: the first takes up to half an hour, the next seconds")
    develop()
    # A wheel, for its .pth file; uncompressed, for it is installed at once.
    shutil.rmtree(BUILD / "quick", ignore_errors=True)
    out = ("--out", BUILD / "quick", "--compression-method", "stored", "--auditwheel", "skip")
    run("maturin", "build", "--profile", "dev", "--locked", *out, cwd=NATIVE / "engine")
    install(TOOLS, "--no-deps", "--reinstall", *(BUILD / "quick").iterdir())


def develop(**extra: str) -> None:
    """Installs `xql-ffi` into an environment of DataFusion 54.

    It is editable: the Python files stay those of the checkout, the library and its cffi module are put beside them.
    The library is that for DataFusion 54, so that nothing of 55 need be compiled.
    """
    project = BUILD / "project-54"
    project.mkdir(parents=True, exist_ok=True)
    for name in ("README.md", "LICENSE"):
        shutil.copy2(ROOT / name, project)
    settings = (ROOT / "pyproject.toml").read_text()
    moved = 'manifest-path = "../../native/plugin/Cargo.toml"\npython-source = "../.."'
    (project / "pyproject.toml").write_text(settings.replace('manifest-path = "native/stock/plugin/Cargo.toml"', moved))
    run("maturin", "develop", "--uv", "--locked", cwd=project, **extra)


def build_stock() -> None:
    """Builds `xql-ffi` for DataFusion 55 and installs it beside the stock wheel, with what the tests need."""
    say("native build for DataFusion 55: the first takes a quarter of an hour, the next seconds")
    # Not editable: beside the Python files of the checkout is the library for DataFusion 54.
    out = BUILD / "quick-55"
    shutil.rmtree(out, ignore_errors=True)
    made = ("--out", out, "--compression-method", "stored", "--auditwheel", "skip")
    run("maturin", "build", "--profile", "dev", "--locked", *made)
    install_stock(STOCK, *out.iterdir())
    # The planner of another library that tests load. Selected together, both depend on crates with the same features.
    run("cargo", "build", "--locked", "--package=xql-plugin", "--package=xql-other-planner", cwd=NATIVE / "stock")
    prefix, suffix = LIBRARIES.get(sys.platform, ("lib", ".so"))
    built = NATIVE / "stock" / "target" / "debug" / f"{prefix}xql_other_planner{suffix}"
    shutil.copy2(built, STOCK / "other_planner.so")


def install_stock(folder: Path, wheel: Path) -> Path:
    """Installs a wheel of `xql-ffi` and what the tests need beside the stock wheel; returns where the programs are."""
    tools = folder / SCRIPTS
    if not (tools / "python").exists():
        run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    constraints = BUILD / "constraints-55.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    constraints.write_text("".join(line for line in lines if not line.startswith("datafusion==")))
    pip = ("uv", "pip", "install", "--quiet", "--python", tools / "python")
    run(*pip, "--group=stock", "--reinstall-package=xql-ffi", wheel, UV_CONSTRAINT=str(constraints))
    return tools


def scale_out(arguments: list[str]) -> None:
    """Runs examples/scale_out.py in an environment of its own, which has another pandas than the tests."""
    folder = BUILD / "scale-out"
    python = folder / "bin" / "python"
    if not python.exists():
        run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    pip = ("uv", "pip", "install", "--quiet", "--python", python)
    groups = ("scale-out", "ballista") if "ballista" in arguments else ("scale-out",)
    run(*pip, *(f"--group={group}" for group in groups), UV_CONSTRAINT="")
    run(*pip, "--no-deps", "--reinstall", *(BUILD / "quick").iterdir())
    develop(VIRTUAL_ENV=str(folder))
    if "ballista" in arguments and not (BUILD / "ballista" / "bin" / "ballista-executor").exists():
        run("cargo", "install", "ballista-executor", "--version=54.1.0", "--locked", f"--root={BUILD / 'ballista'}")
    run(python, "examples/scale_out.py", *arguments)


def link(checkout: Path, profile: str, out: Path, *, engine: bool = True) -> None:
    """Builds the wheels of a checkout: that of `xql-ffi`, and that of the engine for DataFusion 54."""
    shutil.rmtree(out, ignore_errors=True)
    for project in (checkout, checkout / "native" / "engine") if engine else (checkout,):
        run("maturin", "build", "--profile", profile, "--locked", "--auditwheel", "skip", "--out", out, cwd=project)


def fresh_environment(folder: Path, *wheels: Path) -> Path:
    """Makes an environment with wheels of ours and what the tests need, and returns where it has its programs."""
    shutil.rmtree(folder, ignore_errors=True)
    run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    install(folder / SCRIPTS, "--group=test", *wheels)
    return folder / SCRIPTS


def wheels(arguments: list[str]) -> None:
    """Builds both wheels with the release profile, repairs and checks them, and tests them in a fresh environment."""
    linked, dist, stock = (BUILD / name for name in ("linked", "dist", "stock"))
    for folder in (dist, stock):
        shutil.rmtree(folder, ignore_errors=True)
    link(ROOT, "release", linked)
    run(*REPAIR, dist, *linked.iterdir())
    engine, plugin = *dist.glob("xql_ffi_engine-*"), *dist.glob("xql_ffi-*")
    run(*SHOW, engine)
    run(*SHOW, plugin)
    run("abi3audit", "--strict", "--summary", engine)
    run("twine", "check", "--strict", engine, plugin)
    pip = (TOOLS / "python", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    run(*pip, "--dest", stock, "--constraint", "constraints.txt", "datafusion")
    stock_mb, engine_mb, plugin_mb = (wheel.stat().st_size / 1e6 for wheel in (*stock.iterdir(), engine, plugin))
    say(f"wheel of datafusion {stock_mb:.1f} MB, of the engine {engine_mb:.1f} MB, of xql-ffi {plugin_mb:.1f} MB")
    if engine_mb > ENGINE_TO_STOCK * stock_mb or plugin_mb > PLUGIN_MB:
        sys.exit(f"dev.py: a wheel is larger than {ENGINE_TO_STOCK} times that of datafusion, or than {PLUGIN_MB} MB")
    # Not `python -m`, which would import the package of the checkout.
    run(fresh_environment(BUILD / "fresh", engine, plugin) / "pytest", *arguments)
    shutil.rmtree(BUILD / "fresh-55", ignore_errors=True)
    run(install_stock(BUILD / "fresh-55", plugin) / "pytest", *arguments, *ON_STOCK)
    try_out(dist)


def bench(arguments: list[str]) -> int:
    """Runs programs of bench/ with wheels of this checkout, and compares them with those of another commit."""
    parser = argparse.ArgumentParser(prog="dev.py bench")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"by default {', '.join(PROGRAMS)}")
    parser.add_argument("--engine", action="store_true", help="on DataFusion 54 with the engine, rather than on 55")
    parser.add_argument("--compare", metavar="REF", help="a commit, whose figures to compare with")
    parser.add_argument("--profile", choices=("release", "dev"), default="release", help="dev is the quick one")
    options = parser.parse_args(arguments)
    programs = options.programs or PROGRAMS
    # `build/fresh` and `build/fresh-55` are what `dev.py wheels` leaves, too.
    suffix = ("" if options.engine else "-55") + ("" if options.profile == "release" else f"-{options.profile}")
    linked, records = BUILD / f"linked{suffix}", BUILD / f"bench{suffix}"
    link(ROOT, options.profile, linked, engine=options.engine)
    python = bench_environment(BUILD / f"fresh{suffix}", linked, engine=options.engine)
    records.mkdir(exist_ok=True)
    if not options.compare:
        failed = False
        for program in programs:
            say(program)
            command = (python, ROOT / "bench" / f"{program}.py", "--quick", "--json", records / f"{program}.json")
            # Some give a status, by which they say that a goal is not reached; the others are run nevertheless.
            failed |= subprocess.call(command, cwd=records, env=environment()) != 0
        return int(failed)
    revision = ("git", "rev-parse", "--verify", f"{options.compare}^{{commit}}")
    commit = subprocess.run(revision, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    other = wheels_of(commit, options.profile, suffix, engine=options.engine)
    old = bench_environment(BUILD / f"old{suffix}", other, engine=options.engine)
    say(f"this checkout, compared with {commit}")
    comparing = ("--folder", records, "--old", old, commit, "--new", python)
    return subprocess.call((python, ROOT / "bench" / "compare.py", *programs, *comparing), env=environment())


def bench_environment(folder: Path, wheels: Path, *, engine: bool) -> Path:
    """Makes an environment with the wheels of a folder, and returns its Python."""
    if engine:
        return fresh_environment(folder, *wheels.iterdir()) / "python"
    shutil.rmtree(folder, ignore_errors=True)
    return install_stock(folder, *wheels.iterdir()) / "python"


def wheels_of(commit: str, profile: str, suffix: str, *, engine: bool) -> Path:
    """Builds the wheels of another commit, and returns the folder that has them; it keeps those that are there."""
    kept = BUILD / "commits" / f"{commit}{suffix}"
    if kept.exists():
        return kept
    checkout = BUILD / "checkout"
    shutil.rmtree(checkout, ignore_errors=True)
    run("git", "worktree", "prune")
    run("git", "worktree", "add", "--quiet", "--detach", checkout, commit)
    # The crates of others are copied with their times, by which cargo knows them. The files of the new checkout are
    # younger than what was compiled of ours, so that cargo compiles ours again. One folder for both would be wrong:
    # cargo would take what the other checkout compiled for its own, since that is younger than the files here.
    name = "release" if profile == "release" else "debug"
    for target in (Path("native", "target"), Path("native", "stock", "target"))[0 if engine else 1 :]:
        for part in ("build", "deps", ".fingerprint"):
            shutil.copytree(ROOT / target / name / part, checkout / target / name / part)
        shutil.copy2(ROOT / target / ".rustc_info.json", checkout / target)
    built = BUILD / f"linked-{commit}"
    link(checkout, profile, built, engine=engine)
    kept.parent.mkdir(exist_ok=True)
    built.rename(kept)
    run("git", "worktree", "remove", "--force", checkout)
    return kept


def try_out(wheels: Path) -> None:
    """Installs the wheels as users do, in both ways and with every Python that is here, and differentiates."""
    active = "import datafusion, xql_ffi; assert xql_ffi.engine_status().startswith('active'), xql_ffi.engine_status()"
    for version in PYTHONS:
        found = subprocess.run(
            [TOOLS / "uv", "python", "find", "--no-python-downloads", version], stdout=subprocess.PIPE, text=True
        )
        if found.returncode:
            say(f"there is no Python {version} to install the wheels with")
            continue
        tried = BUILD / "tried"
        run("uv", "venv", "--quiet", "--clear", "--python", found.stdout.strip(), tried)
        python = tried / SCRIPTS / "python"
        for wanted in ("xql-ffi", "xql-ffi[engine]"):
            say(f"pip install {wanted}, Python {version}")
            command = ("uv", "pip", "install", "--quiet", "--only-binary=:all:", "--find-links", wheels)
            run(*command, "--python", python, wanted, UV_CONSTRAINT="")
            run(python, "-m", "xql_ffi", "doctor", cwd=tried)
            run(python, "-c", active, cwd=tried)


def lint(rustc: str, *arguments: str) -> int:
    """Stands in for rustc (RUSTC_WORKSPACE_WRAPPER of cargo): checks one of our crates with clippy and documents it.

    So other crates stay as they were built; `cargo clippy` and `cargo doc` would each check all of DataFusion first. No
    code is generated: where cargo looks for a library or a program of tests, it finds an empty file.
    """
    emitted = next((given for given in arguments if given.startswith("--emit=")), "")
    if "link" not in emitted or "build_script_build" in arguments:
        return subprocess.call(["clippy-driver", rustc, *arguments], close_fds=False)
    # Of libraries of ours there is what they declare.
    checked = [re.sub(r"^(xql_\w+=.*)\.rlib$", r"\1.rmeta", given) for given in arguments]
    position, out = checked.index(emitted), checked.index("--out-dir")
    checked[position] = "--emit=dep-info,metadata"
    if status := subprocess.call(["clippy-driver", rustc, *checked], close_fds=False):
        return status
    name, is_test = checked[checked.index("--crate-name") + 1], "--test" in checked
    # Libraries that others load have no suffix. Cargo makes them anew in the next build, whatever is there.
    for suffix in (given.partition("=")[2] for given in checked if given.startswith("extra-filename=")):
        Path(checked[out + 1], f"{name}{suffix}" if is_test else f"lib{name}{suffix}.rlib").touch()
    if is_test:
        return 0
    kept = [given for number, given in enumerate(checked) if number not in (position, out, out + 1)]
    documented = ("--out-dir", str(BUILD / "rustdoc"), "--document-private-items", "-Dwarnings")
    return subprocess.call(["rustdoc", *kept, *documented], close_fds=False)


Steps = dict[str, Callable[[], None]]


def steps(arguments: list[str], counted: Callable[..., None], *, everything: bool) -> Steps:
    """What `dev.py test` does, what takes seconds before what takes minutes, so that a failure shows early."""
    stock = NATIVE / "stock"
    linter = {"RUSTC_WORKSPACE_WRAPPER": str(ROOT / "dev.py"), "CLIPPY_ARGS": "-Dwarnings", "RUSTC_WRAPPER": ""}
    clippy = partial(run, "cargo", "build", "--workspace", "--all-targets", "--locked")
    cargo = partial(counted, "cargo", "test", "--workspace", "--locked", "--no-fail-fast", cwd=NATIVE)
    parallel = ("--numprocesses=auto", "--dist=worksteal")
    whole = ("--all",) if everything else ()
    return {
        "rustfmt": partial(run, "cargo", "fmt", "--all", "--check", cwd=NATIVE),
        "rustfmt, 55": partial(run, "cargo", "fmt", "--all", "--check", cwd=stock),
        "ruff": partial(run, "ruff", "check"),
        "ruff format": partial(run, "ruff", "format", "--check"),
        "build": build,
        # After the build, which makes the modules that it reads.
        "mypy": partial(run, "python", "-m", "mypy"),
        "documentation": partial(run, "mkdocs", "build", "--strict", NO_MKDOCS_2_WARNING="1"),
        "clippy and rustdoc": partial(clippy, cwd=NATIVE, **linter),
        "unit tests of crates": partial(cargo, "--lib"),
        "tests of crates": partial(cargo, "--test", "*"),
        **({"examples of crates": partial(cargo, "--doc")} if everything else {}),
        "build, 55": build_stock,
        **({"clippy and rustdoc, 55": partial(clippy, cwd=stock, **linter)} if everything else {}),
        "pytest": partial(counted, "python", "-m", "pytest", *parallel, *whole, *arguments),
        # Not `python -m`, which would import the package of the checkout.
        "pytest, 55": partial(counted, str(STOCK / SCRIPTS / "pytest"), *parallel, *whole, *ON_STOCK),
    }


def test(arguments: list[str]) -> int:
    """Runs every check and the daily tests, or all; goes on after a failure, and sums up at the end."""
    everything = "--all" in arguments
    if everything and "XQL_FFI_TEST_SEED" not in os.environ:
        os.environ["XQL_FFI_TEST_SEED"] = time.strftime("%Y%m%d")
        say(f"all tests, those at random with the seed of the day: XQL_FFI_TEST_SEED={os.environ['XQL_FFI_TEST_SEED']}")
    counts = Counter(passed=0, failed=0, skipped=0)

    def counted(*command: str, cwd: Path = ROOT) -> None:
        with subprocess.Popen(command, cwd=cwd, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                # cargo: "test result: ok. 3 passed; 0 failed; 1 ignored"; pytest: "== 3 passed, 1 skipped in 2.5s =="
                if line.startswith("test result:") or re.search(r"\d (passed|failed|error).* in [\d.]+s", line):
                    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped|ignored)", line):
                        counts[{"error": "failed", "ignored": "skipped"}.get(word, word)] += int(number)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command[0])

    summary, begun = [], time.monotonic()
    rest = [argument for argument in arguments if argument != "--all"]
    for name, step in steps(rest, counted, everything=everything).items():
        say(name)
        start, failed, state = time.monotonic(), counts["failed"], "ok"
        try:
            step()
        except (subprocess.CalledProcessError, SystemExit) as error:
            print(error, file=sys.stderr, flush=True)
            counts["failed"], state = max(counts["failed"], failed + 1), "FAILED"
        summary.append(f"{name:22} {state:8} {(time.monotonic() - start) / 60:6.2f} min")
        if name == "build" and state == "FAILED":
            break
    summary.append(f"{'together':22} {'':8} {(time.monotonic() - begun) / 60:6.2f} min")
    say("summary")
    print(*summary, ", ".join(f"{number} {outcome}" for outcome, number in counts.items()), sep="\n", flush=True)
    return 1 if counts["failed"] else 0


def main(job: str = "", *arguments: str) -> int:
    """Runs the job that the command line names."""
    if Path(job).stem == "rustc":
        return lint(job, *arguments)
    if sys.version_info < (3, 10) or job not in ("example", "scale-out", "test", "build", "wheels", "bench"):
        sys.exit(__doc__)
    try:
        set_up("build" if job in ("scale-out", "bench") else job)
        if job in ("test", "bench"):
            return (test if job == "test" else bench)(list(arguments))
        wheels(list(arguments)) if job == "wheels" else build()
        if job == "build":
            build_stock()
        if job == "example":
            run("python", "examples/era5_sensitivity.py", *arguments)
        if job == "scale-out":
            scale_out(list(arguments))
    except subprocess.CalledProcessError as error:
        sys.exit(f"dev.py: {error}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
