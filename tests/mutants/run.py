#!/usr/bin/env python3
"""Puts deliberate faults into the native code, one at a time, and counts how many the tests catch.

    python tests/mutants/run.py                    all faults of mutants.txt but those that have been caught before
    python tests/mutants/run.py 12 40-45           these faults, again
    python tests/mutants/run.py --all              what the daily tests miss meets all others as well
    python tests/mutants/run.py --tests by_row     with some tests only
    python tests/mutants/run.py --target FOLDER    the first build takes the crates of others from this target folder

To compile the code once for each fault would take days. All faults are compiled at once, each behind a condition, and
a variable of the environment chooses one when a test starts. The build and the results are in `build/mutants`. The
checkout has to be built (`python3 dev.py build`), and this has to run with the Python of its `.venv`.

Each fault meets the daily tests that execute its place in the source, those first that are quick and have caught many,
until one fails. What they miss meets the snapshots of plans, which show that a plan is another one, and not that it
gives a wrong result; then, with --all, the tests that are not daily.
"""

import argparse
import importlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))
from mutants.faults import CHOSEN, REACHED, READERS, RECORDED, RUNNING, WANTED, Fault, faults, with_faults

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
COPY, RESULTS, TESTS = BUILD / "checkout", BUILD / "results.json", BUILD / "tests.json"
# What tests and the plugin of pytest read and write, by the variable that says where.
FILES = {variable: BUILD / variable.lower() for variable in (REACHED, RECORDED, WANTED, RUNNING)}
NATIVE = COPY / "native"
# Rust tests of derivatives: the unit tests of the crates, and these programs.
RUST = ("calculus", "contractions", "relations")
# Folders and files of Python tests that plan or run queries in the process itself.
PYTHON = (
    "calculus",
    "rules",
    "relations",
    "by_row",
    "plans",
    "conformance",
    "errors",
    "text/test_values.py",
    "text/test_refused.py",
    "python/test_gradients.py",
)
LEFT_OUT = ("test_interruption.py", "test_rules_page.py", "test_without_engine.py")
# Of all tests, fewer random statements, and none of the tests that all kinds of statements are among them.
OPTIONS = {True: (), False: ("--all", "--plans=100", "--conformance=250", "-k", "not every_kind")}
# What tests of Python import takes most of their time. They run in copies of this process, which has imported it.
IMPORTED = ("numpy", "pyarrow", "datafusion", "jax", "jax.numpy", "pytest", "xql_ffi")
SOONEST, FACTOR = 30.0, 5.0  # tests are ended after so many seconds, or so many times what they take without a fault
# Tests that run together take so many seconds without a fault, all but the last of them. It grows where nothing fails.
TOGETHER, GROWTH = 3.0, 3.0
TOO_LONG = "it takes more than"
MEMORY = 12 << 30
PYTEST = "pytest"
KINDS = ("Rust", "Python", "snapshots")
DAILY, NOT_DAILY = "daily", "only with --all"


# By what a fault is caught, what that says, whether any test has executed its place, whether tests are left that might
# catch it, and the seconds that it took.
Result = dict[str, str | float]


# By test: whether it passes, its seconds, and the places that it reaches.
Recorded = dict[str, tuple[bool, float, list[int]]]


@dataclass(frozen=True)
class Test:
    """A test, and the faults whose places it executes."""

    name: str
    program: str
    seconds: float
    reached: list[int]
    daily: bool

    @property
    def function(self) -> str:
        """The test without its parameters."""
        return self.name.partition("[")[0]


@dataclass(frozen=True)
class Programs:
    """What has tests: programs of Rust with their folders, and files of Python."""

    rust: dict[str, str]
    python: list[Path]


def copy_checkout(all_faults: list[Fault]) -> None:
    """Writes the files of the checkout with all faults in them. Those that are as they were keep their times."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    by_file: dict[str, list[Fault]] = defaultdict(list)
    for fault in all_faults:
        by_file[fault.file].append(fault)
    for name in listed.split("\0"):
        source, copy = ROOT / name, COPY / name
        if not name or not source.is_file():
            continue
        content = source.read_bytes()
        inside = name.removeprefix("native/")
        if inside in by_file or inside in READERS:
            content = with_faults(inside, content.decode(), by_file.pop(inside, [])).encode()
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    if by_file:
        raise SystemExit(f"there is no {', '.join(by_file)}")


def environment(**extra: str) -> dict[str, str]:
    """The environment of cargo and of the tests."""
    tools = Path(sys.executable).parent
    path = f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"
    python = os.pathsep.join(map(str, (BUILD / "engine", COPY, COPY / "tests")))
    fixed = {"PATH": path, "PYTHONPATH": python, "INSTA_UPDATE": "no", "XQL_FFI_TEST_SEED": "2026"}
    return {**os.environ, **fixed, **extra}


def build(target: Path) -> Programs:
    """Compiles everything."""
    debug = NATIVE / "target" / "debug"
    if not debug.exists():
        debug.mkdir(parents=True)
        for part in ("CACHEDIR.TAG", ".rustc_info.json"):
            subprocess.run(["cp", "-a", target / part, NATIVE / "target"], check=True)
        for part in (".cargo-lock", ".fingerprint", "build", "deps"):
            subprocess.run(["cp", "-a", target / "debug" / part, debug], check=True)
    cargo = ("--workspace", "--locked", "--offline")
    subprocess.run(["cargo", "build", *cargo], cwd=NATIVE, env=environment(), check=True)
    tests = ["--lib", *(f"--test={name}" for name in RUST)]
    made = subprocess.run(
        ["cargo", "test", *cargo, *tests, "--no-run", "--message-format=json"],
        cwd=NATIVE, env=environment(), check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    rust = {}
    for line in made.splitlines():
        message = json.loads(line)
        crate = Path(message.get("manifest_path", "/")).parent
        if message.get("executable") and message["profile"]["test"]:
            rust[message["executable"]] = str(crate)
    plugin, engine = COPY / "xql_ffi" / "_plugin", BUILD / "engine" / "xql_ffi_engine"
    shutil.copytree(ROOT / "xql_ffi" / "_plugin", plugin, dirs_exist_ok=True)
    for library in plugin.glob("*.so"):
        shutil.copy2(debug / "libxql_plugin.so", library)
    shutil.copytree(ROOT / "native" / "engine" / "python" / "xql_ffi_engine", engine, dirs_exist_ok=True)
    shutil.copy2(debug / "libxql_engine.so", engine / "_engine.abi3.so")
    patterns = [name if name.endswith(".py") else f"{name}/test_*.py" for name in PYTHON]
    files = [file for pattern in patterns for file in sorted((COPY / "tests").glob(pattern))]
    return Programs(rust, [file for file in files if file.name not in LEFT_OUT])


def to(*variables: str) -> dict[str, str]:
    """Variables that say where files are."""
    return {variable: str(FILES[variable]) for variable in variables}


def run(command: list[str], folder: str, seconds: float, **extra: str) -> tuple[bool, str]:
    """Whether a program's tests pass, and what the last lines say if they do not."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment(CARGO_MANIFEST_DIR=folder, **extra), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limited, start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    said = until_one_fails(process.pid, process.stdout.fileno(), seconds)
    return process.wait() == 0, said


def pytest(arguments: list[str], seconds: float, **extra: str) -> tuple[bool, str]:
    """Whether tests of Python pass with the plugin of this folder, and what the last lines say if they do not."""
    read, write = os.pipe()
    sys.stdout.flush()
    if not (process := os.fork()):
        status = 1
        try:
            os.setsid()
            limited()
            for stream in (1, 2):
                os.dup2(write, stream)
            os.chdir(COPY)
            os.environ.update(extra)
            plugins = ("-p", "no:cacheprovider", "-p", "mutants.each")
            status = int(sys.modules["pytest"].main(["-q", *plugins, *arguments]))
            sys.stdout.flush()
        finally:
            os._exit(status)
    os.close(write)
    said = until_one_fails(process, read, seconds)
    os.close(read)
    return os.waitpid(process, 0)[1] == 0, said


def limited() -> None:
    """Limits what this process may take."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def until_one_fails(process: int, output: int, seconds: float) -> str:
    """The last lines of a process, which is ended when one test fails or when it takes too long."""
    ended = threading.Timer(seconds, lambda: os.killpg(process, signal.SIGKILL))
    ended.start()
    said = []
    with open(output, errors="replace", closefd=False) as lines:
        for line in lines:
            said.append(line)
            if line.endswith("... FAILED\n"):
                os.killpg(process, signal.SIGKILL)
                break
    if ended.finished.is_set():
        said.append(f"{TOO_LONG} {seconds:.0f} s")
    ended.cancel()
    return "".join(said[-12:])


def kind(name: str) -> str:
    """What kind of test has this name."""
    return "snapshots" if "snapshots" in name else "Python" if ".py" in name else "Rust"


def without_faults(programs: Programs, kinds: Sequence[str], *, daily: bool) -> list[Test]:
    """The tests with what they take and reach where no fault is chosen. What fails so is left out.

    They are the daily tests, or those of Python besides.
    """
    known: dict[str, Any] = json.loads(TESTS.read_text()) if TESTS.exists() else {}
    library = NATIVE / "target" / "debug" / "libxql_plugin.so"
    stamps = {}
    deciding = (library, COPY / "tests" / "support" / "daily.py")
    for path in [*(map(Path, programs.rust) if daily else ()), *programs.python]:
        if kind(path.name) in kinds:
            stamps[str(path)] = " ".join(str(file.stat().st_mtime_ns) for file in (*deciding, path))
    which = DAILY if daily else NOT_DAILY
    for source in [source for source, stamp in stamps.items() if known.get(source, {}).get(which) != stamp]:
        record = of_rust(source, programs.rust[source]) if source in programs.rust else of_python(source, daily=daily)
        known[source] = {**known.get(source, {}), which: stamps[source], f"tests {which}": record}
        TESTS.write_text(json.dumps(known))
    tests = []
    for source in stamps:
        before = {} if daily else known[source][f"tests {DAILY}"]
        for name, (passed, seconds, reached) in known[source][f"tests {which}"].items():
            if passed and name not in before:
                tests.append(Test(name, source if source in programs.rust else PYTEST, seconds, reached, daily))
            elif not passed:
                print(f"{name} fails without a fault")
    print(f"{which}:")
    for one in kinds:
        seconds = [test.seconds for test in tests if kind(test.name) == one]
        print(f"{one}: {len(seconds)} tests, {sum(seconds):.0f} s", flush=True)
    return tests


def of_python(file: str, *, daily: bool) -> Recorded:
    """The tests of a file, each with whether it passes, its seconds, and the places that it reaches."""
    FILES[RECORDED].unlink(missing_ok=True)
    _, said = pytest([*OPTIONS[daily], file], 1800, **to(REACHED, RECORDED))
    if not FILES[RECORDED].exists():
        raise SystemExit(said)
    recorded: Recorded = json.loads(FILES[RECORDED].read_text())
    return recorded


def of_rust(program: str, folder: str) -> Recorded:
    """The same of a program."""
    listed = subprocess.run([program, "--list", "--format=terse"], stdout=subprocess.PIPE, check=True, text=True)
    target = re.sub(r"-\w+$", "", Path(program).name)
    tests = {}
    for test in re.findall(r"^(\S+): test$", listed.stdout, re.MULTILINE):
        FILES[REACHED].unlink(missing_ok=True)
        start = time.monotonic()
        passed, _ = run([program, "--exact", test], folder, 1800, **to(REACHED))
        seconds = time.monotonic() - start
        places = set(map(int, FILES[REACHED].read_text().split())) if FILES[REACHED].exists() else set()
        tests[f"{Path(folder).name}, {target}, {test}"] = (passed, seconds, sorted(places))
    return tests


def together(tests: Iterable[Test]) -> Iterator[list[Test]]:
    """Tests in their order, those of one program together, first those that take a short time."""
    waiting: dict[str, list[Test]] = defaultdict(list)
    most: dict[str, float] = defaultdict(lambda: TOGETHER)
    for test in tests:
        group = waiting[test.program]
        group.append(test)
        if sum(test.seconds for test in group) > most[test.program]:
            yield waiting.pop(test.program)
            most[test.program] *= GROWTH
    yield from waiting.values()


def meet(fault: Fault, tests: list[Test], folders: dict[str, str]) -> tuple[str, str]:
    """The test that fails, if one does, and what it says."""
    program = tests[0].program
    limit = max(SOONEST, FACTOR * sum(test.seconds for test in tests))
    chosen = {CHOSEN: str(fault.number)}
    if program != PYTEST:
        names = {test.name.rpartition(", ")[2]: test.name for test in tests}
        passed, said = run([program, "--test-threads=1", "--exact", *names], folders[program], limit, **chosen)
        running = [name for name in re.findall(r"^test (\S+) \.\.\.", said, re.MULTILINE) if name in names]
        return ("", "") if passed else (names[running[-1]] if running else tests[0].name, said)
    FILES[WANTED].write_text(json.dumps([test.name for test in tests]))
    FILES[RUNNING].write_text("")
    files = sorted({test.name.partition("::")[0] for test in tests})
    passed, said = pytest([*OPTIONS[tests[0].daily], "-x", *files], limit, **chosen, **to(WANTED, RUNNING))
    return ("", "") if passed else (FILES[RUNNING].read_text() or tests[0].name, said)


def caught(
    fault: Fault, tests: list[Test], folders: dict[str, str], before: Counter[tuple[str, str, str]], patience: float
) -> Result:
    """What catches a fault. `before` has how many faults of each part each test has met and caught."""
    start = time.monotonic()
    result: Result = {"by": "", "said": ""}
    reaching = [test for test in tests if fault.number in test.reached]
    result["met"] = bool(reaching)

    def expected(test: Test) -> float:
        caught, met = before[fault.part, test.function, "caught"], before[fault.part, test.function, "met"]
        return test.seconds * (2 + met) / (1 + caught)

    for group in together(sorted(reaching, key=expected)):
        if time.monotonic() - start > patience:
            result["open"] = True
            break
        for function in {test.function for test in group}:
            before[fault.part, function, "met"] += 1
        by, said = meet(fault, group, folders)
        if TOO_LONG in said:
            # Several tests may take so long together because the machine has other work to do. One of them may not.
            by, said = meet(fault, [test for test in group if test.name == by], folders)
            result["open"] = not by
        if by:
            before[fault.part, by.partition("[")[0], "caught"] += 1
            result |= {"by": by, "said": said, "daily": group[0].daily}
            break
    return result | {"seconds": round(time.monotonic() - start, 1)}


def key(fault: Fault) -> str:
    """What a result is kept under: numbers change with the list."""
    return f"{fault.file}\n{fault.original}\n{fault.mutated}"


def caught_before(fault: Fault, results: dict[str, Result]) -> bool:
    """Whether a fault has been caught in an earlier run."""
    return bool(results.get(key(fault), {}).get("by"))


def summary(all_faults: list[Fault], results: dict[str, Result]) -> None:
    """Prints what has been caught by which kind of tests, and what has not."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    missed = []
    for fault in all_faults:
        if (result := results.get(key(fault))) is None:
            continue
        by = str(result["by"])
        count = counts[fault.part]
        if fault.equivalent:
            count["equivalent"] += 1
            if by:
                missed.append(f"{fault.number}: {fault.breaks} is called equivalent, and {by} catches it")
            continue
        count["faults"] += 1
        caught_by = kind(by) if result.get("daily") else NOT_DAILY
        count[caught_by if by else "open" if result.get("open") else "missed"] += 1
        if by and not result.get("daily"):
            missed.append(f"{fault.number}: {fault.file}: {fault.breaks}, caught with --all by {by}")
        elif not by and not result.get("open"):
            why = "" if result.get("met") else " (no test executes the place)"
            missed.append(f"{fault.number}: {fault.file}: {fault.breaks}{why}")
    columns = ("faults", *KINDS, NOT_DAILY, "missed", "open", "equivalent")
    print(f"\n| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for part, count in counts.items():
        print(f"| {part.lower()} | {' | '.join(str(count[column]) for column in columns)} |")
    total = sum(counts.values(), Counter())
    print(f"| all | {' | '.join(str(total[column]) for column in columns)} |\n")
    if decided := total["faults"] - total["open"]:
        share = 100 * (1 - total["missed"] / decided)
        daily = 100 * sum(total[one] for one in KINDS) / decided
        print(
            f"{share:.1f} % of {decided} faults are caught, {daily:.1f} % by the daily tests; "
            f"{total['open']} are open, since tests are left",
            *missed,
            sep="\n",
        )


def numbers(texts: list[str]) -> set[int]:
    """The numbers that texts such as 12 and 40-45 name."""
    found: set[int] = set()
    for text in texts:
        first, _, last = text.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def main() -> None:
    """Builds what has changed, and lets the faults that are asked for meet the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="NUMBER", help="faults to run again, such as 12 or 40-45")
    parser.add_argument(
        "--target", type=Path, default=ROOT / "native" / "target", help="the target folder to start with"
    )
    parser.add_argument("--all", action="store_true", help="all tests, and not only the daily ones")
    parser.add_argument("--tests", default="", help="a regular expression: only tests in whose names it is found")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="only tests of these kinds")
    parser.add_argument("--patience", type=float, default=math.inf, help="the seconds after which a fault stays open")
    given = parser.parse_args()
    all_faults = faults()
    copy_checkout(all_faults)
    programs = build(given.target)
    if os.environ.get("PYTHONPATH") != environment()["PYTHONPATH"]:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment())
    for name in IMPORTED:
        importlib.import_module(name)
    results: dict[str, Result] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    asked = numbers(given.faults)
    left = [fault for fault in all_faults if fault.number in asked or (not asked and not caught_before(fault, results))]
    # In an order in which all parts of the list have results early.
    random.Random(0).shuffle(left)
    before: Counter[tuple[str, str, str]] = Counter()
    stages = [(DAILY, KINDS[:2]), (DAILY, KINDS[2:]), *([(NOT_DAILY, KINDS[1:2])] if given.all else [])]
    tests: dict[str, list[Test]] = {}
    for which, kinds in stages:
        if which not in tests and left:
            found = without_faults(programs, given.kinds, daily=which == DAILY)
            tests[which] = [test for test in found if re.search(given.tests, test.name)]
        meeting = [test for test in tests.get(which, ()) if kind(test.name) in kinds]
        for fault in left:
            result = caught(fault, meeting, programs.rust, before, given.patience)
            earlier = results.get(key(fault), {}) if (which, kinds) != stages[0] else {}
            result["met"] = bool(result.get("met") or earlier.get("met"))
            result["open"] = not result["by"] and bool(
                given.tests or {*KINDS} - {*given.kinds} or result.get("open") or earlier.get("open")
            )
            results[key(fault)] = result
            RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False))
            by = result["by"] or f"missed by {' and '.join(kinds)}, {which}"
            print(f"{fault.number:3} {result['seconds']:6.1f} s  {by:45} {fault.breaks}", flush=True)
        left = [fault for fault in left if not results[key(fault)]["by"]]
    summary(all_faults, results)


if __name__ == "__main__":
    main()
