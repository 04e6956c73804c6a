"""Counts over all hosts what runs, what agrees, and what is refused and why: the tables of docs/hosts.md.

cd tests; python -m hosts.table [--expressions N] [--plans N] [HOST...]

What is wrong is shown on stderr.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from hosts import conformance, forward, rows
from hosts.every import HOSTS
from hosts.host import Host
from support.seed import SEED

# What a count is called, and how those begin that it adds up.
COLUMNS = {
    "not of the host": ("the host has no such", "the host has an error", "DataFusion cannot"),
    "read otherwise by the host": ("the host has another value",),
    "refused": ("refused", "the engine refuses"),
    "agree": ("calls that agree", "plans that agree", "values that agree"),
}
SUITES = {"expressions": "conformance", "plans": "random plans", "values": "gradients by row"}
# Expressions that JAX is asked for at once.
_CHUNK = 100


def counted(host: Host, expressions: int, plans: int) -> dict[str, tuple[Counter[str], int]]:
    """By suite, what is counted and how many findings there are."""
    found: dict[str, tuple[Counter[str], int]] = {}
    counts: Counter[str] = Counter()
    wrong = 0
    for start in range(0, expressions, _CHUNK):
        judge, disagreements = conformance.judged(host, min(_CHUNK, expressions - start), SEED + start)
        counts += judge.counts
        wrong += len(disagreements)
        for disagreement in disagreements:
            print(disagreement.describe(judge.path, judge.points), file=sys.stderr)
    found["expressions"] = counts, wrong
    by_plans, findings = forward.judged(host, range(plans))
    by_rows, others = rows.judged(host, range(plans))
    for finding in (*findings, *others):
        print(finding, file=sys.stderr)
    found["plans"], found["values"] = (by_plans.counts, len(findings)), (by_rows.counts, len(others))
    return found


def _sum(counts: Counter[str], beginnings: Sequence[str]) -> int:
    return sum(count for kind, count in counts.items() if kind.startswith(tuple(beginnings)))


def lines(host: Host, found: dict[str, tuple[Counter[str], int]]) -> list[str]:
    """The lines of the table of a host."""
    made = []
    for name, (counts, wrong) in found.items():
        numbers = [str(_sum(counts, beginnings)) for beginnings in COLUMNS.values()]
        calls = f", {counts['calls']} calls" if name == "expressions" else ""
        made.append(f"| {host.name} | {SUITES[name]} | {counts[name]}{calls} | {' | '.join(numbers)} | {wrong} |")
    return made


def reasons(host: Host, found: dict[str, tuple[Counter[str], int]]) -> list[str]:
    """Why something was not compared, the most frequent first."""
    total: Counter[str] = Counter()
    for counts, _ in found.values():
        total += Counter({kind: count for kind, count in counts.items() if kind.startswith(_NOT_COMPARED)})
    return [f"| {host.name} | {kind.replace('|', ' ')} | {count} |" for kind, count in total.most_common()]


_NOT_COMPARED = tuple(beginning for name in list(COLUMNS)[:3] for beginning in COLUMNS[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expressions", type=int, default=300)
    parser.add_argument("--plans", type=int, default=200)
    parser.add_argument("hosts", nargs="*", help=f"of {', '.join(HOSTS)}; all of them by default")
    options = parser.parse_args()
    why = []
    print(f"| host | suite | cases | {' | '.join(COLUMNS)} | wrong |\n|---|---|---|{'---|' * len(COLUMNS)}---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.hosts or HOSTS:
            try:
                host = HOSTS[name](Path(folder))
            except pytest.skip.Exception as skipped:
                print(f"| {name} | cannot be had here: {skipped} |")
                continue
            try:
                found = counted(host, options.expressions, options.plans)
            finally:
                host.close()
            print("\n".join(lines(host, found)), flush=True)
            why += reasons(host, found)
    print("\n| host | not compared | cases |\n|---|---|---|")
    print("\n".join(why))


if __name__ == "__main__":
    main()
