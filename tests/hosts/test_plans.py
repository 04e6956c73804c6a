"""The random plans, forward and by row, through every host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from hosts import forward, rows
from hosts.host import Host
from support.findings import Finding
from support.seed import SEED

# Findings that one test shows.
_SHOWN = 3
# Few values by row are made of what these have: among ten there may be none.
_OF_FEW_AGGREGATES = ("polars", "spark", "sqlite")


def test_plans(plans: range, host: Host) -> None:
    judge, found = forward.judged(host, plans)
    _show(judge.counts, found)
    # A host that runs nothing shows nothing.
    assert judge.counts["plans with a derivative that is not 0"]


def test_gradients_by_row(plans: range, host: Host) -> None:
    judge, found = rows.judged(host, plans)
    _show(judge.counts, found)
    assert judge.counts["values that agree"] or host.dialect in _OF_FEW_AGGREGATES


def _show(counts: Counter[str], found: Sequence[Finding]) -> None:
    print("\n".join(f"{kind}: {count}" for kind, count in sorted(counts.items())))
    if found:
        shown = "\n\n".join(str(finding) for finding in found[:_SHOWN])
        pytest.fail(f"{len(found)} plans (XQL_FFI_TEST_SEED={SEED}):\n\n{shown}", pytrace=False)
