#!/usr/bin/env python3
"""Puts deliberate faults into the native code, one at a time, and counts how many the tests catch.

    python tests/mutants/run.py                    all faults of mutants.txt but those that have been caught before
    python tests/mutants/run.py 12 40-45           these faults, again
    python tests/mutants/run.py --suites by_row    with some suites only
    python tests/mutants/run.py --target FOLDER    the first build takes the crates of others from this target folder

To compile the code once for each fault would take days. All faults are compiled at once, each behind a condition, and
a variable of the environment chooses one when a test starts. The build and the results are in `build/mutants`. The
checkout has to be built (`python3 dev.py build`), and this has to run with the Python of its `.venv`.

Each fault meets the suites that execute its place in the source, those first that have caught many for the time that
they take, until one fails. A suite is a Rust test or a file of Python tests. What they miss meets the
snapshots of plans, which show that a plan is another one, and not that it gives a wrong result.
"""

import argparse
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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from mutants.faults import CHOSEN, REACHED, READERS, Fault, faults, with_faults

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
COPY, RESULTS, SUITES = BUILD / "checkout", BUILD / "results.json", BUILD / "suites.json"
NATIVE = COPY / "native"
# Files of Python tests that plan or run queries in the process itself.
PYTHON = ("calculus", "rules", "relations", "by_row", "plans", "conformance", "errors")
LEFT_OUT = ("test_interruption.py", "test_rules_page.py", "test_structure.py")
SOONEST, FACTOR = 60.0, 5.0  # a suite is ended after so many seconds, or so many times what it takes without a fault
MEMORY = 12 << 30
KINDS = ("Rust", "Python", "snapshots")


# By what a fault is caught, what that says, whether any test has executed its place, whether tests are left that might
# catch it, and the seconds that it took.
Result = dict[str, str | float]


@dataclass(frozen=True)
class Suite:
    """Tests that run together, and the faults whose places they execute."""

    name: str
    command: list[str]
    folder: str
    seconds: float
    reached: list[int]


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


def build(target: Path) -> list[tuple[str, list[str], str]]:
    """Compiles everything and gives the suites: names, commands and folders."""
    debug = NATIVE / "target" / "debug"
    if not debug.exists():
        debug.mkdir(parents=True)
        for part in ("CACHEDIR.TAG", ".rustc_info.json"):
            subprocess.run(["cp", "-a", target / part, NATIVE / "target"], check=True)
        for part in (".cargo-lock", ".fingerprint", "build", "deps"):
            subprocess.run(["cp", "-a", target / "debug" / part, debug], check=True)
    cargo = ("--workspace", "--locked", "--offline")
    subprocess.run(["cargo", "build", *cargo], cwd=NATIVE, env=environment(), check=True)
    made = subprocess.run(
        ["cargo", "test", *cargo, "--no-run", "--message-format=json"],
        cwd=NATIVE, env=environment(), check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    suites = []
    for line in made.splitlines():
        message = json.loads(line)
        crate = Path(message.get("manifest_path", "/")).parent
        if message.get("executable") and message["profile"]["test"] and crate.name in ("autodiff", "relations", "text"):
            target = message["target"]["name"].replace(f"xql_{crate.name}", "unit tests")
            program = message["executable"]
            listed = subprocess.run(
                [program, "--list", "--format=terse"], stdout=subprocess.PIPE, check=True, text=True
            )
            for test in re.findall(r"^(\S+): test$", listed.stdout, re.MULTILINE):
                name = f"{crate.name}, {target}, {test}"
                suites.append((name, [program, "--exact", test], str(crate)))
    plugin, engine = COPY / "xql_ffi" / "_plugin", BUILD / "engine" / "xql_ffi_engine"
    shutil.copytree(ROOT / "xql_ffi" / "_plugin", plugin, dirs_exist_ok=True)
    for library in plugin.glob("*.so"):
        shutil.copy2(debug / "libxql_plugin.so", library)
    shutil.copytree(ROOT / "native" / "engine" / "python" / "xql_ffi_engine", engine, dirs_exist_ok=True)
    shutil.copy2(debug / "libxql_engine.so", engine / "_engine.abi3.so")
    pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    for folder in PYTHON:
        for file in sorted((COPY / "tests" / folder).glob("test_*.py")):
            if file.name not in LEFT_OUT:
                suites.append((f"{folder}/{file.name}", [*pytest, str(file)], str(COPY)))
    return suites


def run(command: list[str], folder: str, seconds: float, **extra: str) -> tuple[bool, str]:
    """Whether tests pass, and what the last lines say if they do not."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    process = subprocess.Popen(
        command, cwd=folder, env=environment(CARGO_MANIFEST_DIR=folder, **extra), text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limited,
        start_new_session=True,
    )  # fmt: skip
    ended = threading.Timer(seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
    ended.start()
    said = []
    for line in process.stdout or ():
        said.append(line)
        # One test that fails is enough.
        if line.endswith("... FAILED\n"):
            os.killpg(process.pid, signal.SIGKILL)
            break
    if ended.finished.is_set():
        said.append(f"it takes more than {seconds:.0f} s")
    ended.cancel()
    return process.wait() == 0, "".join(said[-12:])


def kind(name: str) -> str:
    """What kind of suite has this name."""
    return "snapshots" if "snapshots" in name else "Python" if name.endswith(".py") else "Rust"


def without_faults(found: list[tuple[str, list[str], str]]) -> list[Suite]:
    """The suites with what they take and reach where no fault is chosen."""
    known = json.loads(SUITES.read_text()) if SUITES.exists() else {}
    suites = []
    for name, command, folder in found:
        files = (NATIVE / "target" / "debug" / "libxql_plugin.so", Path(command[0 if kind(name) != "Python" else -1]))
        stamp = " ".join(str(file.stat().st_mtime_ns) for file in files)
        if name in known and known[name][0] == stamp:
            suites.append(Suite(name, command, folder, *known[name][1:]))
            continue
        reached = BUILD / "reached.txt"
        reached.unlink(missing_ok=True)
        start = time.monotonic()
        passed, said = run(command, folder, 1800, **{REACHED: str(reached)})
        seconds = time.monotonic() - start
        places = sorted(set(map(int, reached.read_text().split()))) if reached.exists() else []
        print(f"{name:45} {'' if passed else 'FAILS '}{seconds:6.1f} s, {len(places)} places", flush=True)
        if not passed:
            raise SystemExit(f"{said}\n{name} fails without a fault")
        suites.append(Suite(name, command, folder, seconds, places))
        known[name] = [stamp, seconds, places]
        SUITES.write_text(json.dumps(known))
    return suites


def caught(fault: Fault, suites: Iterable[Suite], before: Counter[tuple[str, str, str]], patience: float) -> Result:
    """What catches a fault. `before` has how many faults of each part each suite has met and caught."""
    start = time.monotonic()
    result: Result = {"by": "", "said": ""}
    reaching = [suite for suite in suites if fault.number in suite.reached]

    def expected(suite: Suite) -> float:
        caught, met = before[fault.part, suite.name, "caught"], before[fault.part, suite.name, "met"]
        return suite.seconds * (2 + met) / (1 + caught)

    for suite in sorted(reaching, key=expected):
        if time.monotonic() - start > patience:
            result["open"] = True
            break
        result["met"] = True
        before[fault.part, suite.name, "met"] += 1
        limit = max(SOONEST, FACTOR * suite.seconds)
        passed, said = run(suite.command, suite.folder, limit, **{CHOSEN: str(fault.number)})
        if not passed:
            before[fault.part, suite.name, "caught"] += 1
            result |= {"by": suite.name, "said": said}
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
        count[kind(by) if by else "open" if result.get("open") else "missed"] += 1
        if not by and not result.get("open"):
            why = "" if result.get("met") else " (no test executes the place)"
            missed.append(f"{fault.number}: {fault.file}: {fault.breaks}{why}")
    columns = ("faults", *KINDS, "missed", "open", "equivalent")
    print(f"\n| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for part, count in counts.items():
        print(f"| {part.lower()} | {' | '.join(str(count[column]) for column in columns)} |")
    total = sum(counts.values(), Counter())
    print(f"| all | {' | '.join(str(total[column]) for column in columns)} |\n")
    if decided := total["faults"] - total["open"]:
        share = 100 * (1 - total["missed"] / decided)
        print(
            f"{share:.1f} % of {decided} faults are caught; {total['open']} are open, since tests are left",
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
    parser.add_argument("--suites", default="", help="a regular expression: only suites in whose names it is found")
    parser.add_argument("--patience", type=float, default=math.inf, help="the seconds after which a fault stays open")
    given = parser.parse_args()
    all_faults = faults()
    copy_checkout(all_faults)
    found = [suite for suite in build(given.target) if re.search(given.suites, suite[0])]
    results: dict[str, Result] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    asked = numbers(given.faults)
    left = [fault for fault in all_faults if fault.number in asked or (not asked and not caught_before(fault, results))]
    # In an order in which all parts of the list have results early.
    random.Random(0).shuffle(left)
    before: Counter[tuple[str, str, str]] = Counter()
    for kinds in (KINDS[:2], KINDS[2:]):
        suites = without_faults([suite for suite in found if kind(suite[0]) in kinds]) if left else []
        for fault in left:
            result = caught(fault, suites, before, given.patience)
            earlier = results.get(key(fault), {}) if kinds != KINDS[:2] else {}
            result["met"] = bool(result.get("met") or earlier.get("met"))
            result["open"] = not result["by"] and bool(given.suites or result.get("open") or earlier.get("open"))
            results[key(fault)] = result
            RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False))
            by = result["by"] or f"missed by {' and '.join(kinds)}"
            print(f"{fault.number:3} {result['seconds']:6.1f} s  {by:45} {fault.breaks}", flush=True)
        left = [fault for fault in left if not results[key(fault)]["by"]]
    summary(all_faults, results)


if __name__ == "__main__":
    main()
