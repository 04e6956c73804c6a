"""The conformance suite through every host."""

from __future__ import annotations

from hosts.conformance import judged
from hosts.host import Host
from support.seed import SEED

# Disagreements that one test shows.
_SHOWN = 4


def test_expressions(expressions: range, host: Host) -> None:
    judge, found = judged(host, len(expressions), SEED + expressions.start)
    print("\n".join(f"{kind}: {count}" for kind, count in sorted(judge.counts.items())))
    by_expression = {disagreement.case.expression.sql: disagreement for disagreement in reversed(found)}
    smallest = [judge.smallest(disagreement) for disagreement in list(by_expression.values())[:_SHOWN]]
    shown = dict.fromkeys(disagreement.describe(judge.path, judge.points) for disagreement in smallest)
    assert not found, f"{len(found)} calls disagree on {host.name} (XQL_FFI_TEST_SEED={SEED}):\n\n" + "\n\n".join(shown)
    # A host that runs nothing shows nothing.
    assert judge.counts["calls that agree"] > len(expressions)
