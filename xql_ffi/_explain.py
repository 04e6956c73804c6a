"""The plan of a statement with derivatives in short: what is computed once, which sums are arrays, what is swept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

from xql_ffi._errors import translated

if TYPE_CHECKING:
    from datafusion import SessionContext

# What nodes of a plan are called, and how they show what they do. Nothing else of this file knows names of nodes.
_COMPUTES = re.compile(r"SharedScanExec: computes (?P<name>.+?), columns=\[(?P<columns>.*?)\]")
_READS = re.compile(r"SharedScanExec: reads (?P<name>.+?), columns=")
_IS_READ = " is read"
_CONTRACTION = re.compile(r"ContractionExec: by=\[(?P<by>.*?)\], on=\[(?P<on>.*?)\], sum=\[(?P<sum>.*?)\](?:, |$)")
_CHOSEN = "chosen by"
_KERNELS = ("dense", "sparse", "handed_over")
_AGGREGATE = re.compile(r"AggregateExec: mode=(?!Partial\b)\w+, gby=\[(?P<by>.*?)\], aggr=\[(?P<sum>.*)\]")
_TAPE = re.compile(r"RecursiveTapeExec: (?P<query>[^,]+)")
_ADJOINT = re.compile(r"AdjointExec: (?P<query>[^,]+)")
_SOURCE = "DataSourceExec"
_PROJECTION = re.compile(r"^(?:ProjectionExec|CachedProjectionExec): expr=\[(?P<columns>.*)\]")
# What runs as one operation for each other node, by how its name begins.
_WORK: Mapping[str, tuple[str, ...]] = {
    "row sums": ("NumberedSumsExec",),
    "lookups": ("LookupExec",),
    "hash joins": ("HashJoinExec",),
    "other joins": ("NestedLoopJoinExec", "SortMergeJoinExec", "CrossJoinExec"),
    "windows": ("WindowAggExec", "BoundedWindowAggExec"),
    "sorts": ("SortExec", "SortPreservingMergeExec"),
}
# What names that the plan makes for itself begin with, and a column of derivatives of the value.
_OWN, _COTANGENT = "∂", "∂cotangent"

# How wide a terminal is.
_WIDTH = 120
_METRICS = re.compile(r", metrics=\[(?P<metrics>.*)\]$")
_TIMES = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class Measured:
    """The metrics that ``EXPLAIN ANALYZE`` has for a part of a plan.

    Attributes:
        rows: how many rows the relation has, as it is shown.
        held: the bytes that it takes, as they are shown.
        seconds: the processor time of its own nodes.
    """

    rows: str
    held: str
    seconds: float


@dataclass(frozen=True)
class Part:
    """A part of a plan: a relation that is computed once, or the statement itself.

    Attributes:
        name: what the relation is called in the plan; ``the statement`` is the rest.
        is_swept: whether it holds derivatives of the value, on the way back from it.
        reads: the parts that it reads.
        tables: how many scans of tables it has.
        arrays: the sums of products that are computed as arrays.
        others: what else it does, with its number.
        readers: how many places read it.
        measured: what it took, or None if the statement was not executed.
    """

    name: str
    is_swept: bool
    reads: Sequence[str]
    tables: int
    arrays: Sequence[str]
    others: Sequence[str]
    readers: int
    measured: Measured | None

    def work(self) -> str:
        """Its operation."""
        return "; ".join([*(f"array: {each}" for each in self.arrays), *self.others])

    def source(self) -> str:
        """Its inputs."""
        return ", ".join(
            [*self.reads, *(["a table" if self.tables == 1 else f"{self.tables} tables"] if self.tables else [])]
        )


@dataclass(frozen=True)
class Explanation:
    """The plan of a statement in short, as `explain` gives it: text in a terminal, a table in a notebook.

    A relation that is swept holds derivatives of the value, on the way back from it. A sum of products that is computed
    as arrays is shown as ``array: SUM(x * val) by i over j``.

    Attributes:
        parts: the relations that are computed once, each after those that it reads, and last the statement itself.
        plan: the whole plan, as ``EXPLAIN`` shows it.
    """

    parts: Sequence[Part]
    plan: str

    def __str__(self) -> str:
        rows = [self._heads(), *map(self._cells, self.parts)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
        lines = [self._summary()]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            indent = sum(widths) + 2 * len(widths)
            first, *others = wrap(row[-1], max(_WIDTH - indent, 30)) or [""]
            lines += ["  ".join([*cells, first]).rstrip(), *(" " * indent + other for other in others)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{escape(head)}</th>" for head in self._heads())
        rows = ["".join(f"<td>{escape(cell)}</td>" for cell in self._cells(part)) for part in self.parts]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{escape(self._summary())}</p><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    def _summary(self) -> str:
        relations = self.parts[:-1]
        arrays = sum(len(part.arrays) for part in self.parts)
        swept = sum(part.is_swept for part in relations)
        counts = f"{len(relations)} relations are computed once, of which {swept} are swept; {arrays} sums are arrays"
        lines = len(self.plan.splitlines())
        seconds = [part.measured.seconds for part in self.parts if part.measured]
        took = f"; {sum(seconds) * 1e3:.1f} ms of processor time" if seconds else ""
        return f"{counts}; the plan has {lines} lines{took}"

    def _heads(self) -> list[str]:
        measured = ["rows", "bytes", "ms"] if self.parts[-1].measured else []
        return ["relation", "swept", "readers", *measured, "reads", "computes"]

    def _cells(self, part: Part) -> list[str]:
        took = part.measured
        measured = [took.rows, took.held, f"{took.seconds * 1e3:.2f}"] if took else []
        readers = str(part.readers) if part.readers else ""
        return [part.name, "yes" if part.is_swept else "", readers, *measured, part.source(), part.work()]


def explain(ctx: SessionContext, sql: str, *, analyze: bool = False) -> Explanation:
    """Shows the plan of a statement with derivatives on one screen.

    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> w = ctx.from_pydict({"k": [1, 2], "val": [3.0, 4.0]}, name="w")
    >>> loss = "WITH loss AS (SELECT SUM(val * val) AS l FROM w) SELECT k, grad((SELECT l FROM loss), val) AS d FROM w"
    >>> [part.readers for part in xql_ffi.explain(ctx, loss).parts if not part.is_swept]
    [3, 2, 0]

    Args:
        ctx: a session with ``grad``.
        sql: a query.
        analyze: whether to execute the statement, and to show rows, processor times and memory.

    Returns:
        An `Explanation`, which shows itself: ``print(explain(ctx, sql))``.

    Raises:
        DifferentiationError: the statement has no derivative.
        ValueError: it has no plan.
    """
    frame = ctx.sql(f"EXPLAIN {'ANALYZE ' if analyze else ''}{sql}")
    plans = dict(zip(*frame.to_pydict().values(), strict=True))
    plan = plans.get("Plan with Metrics" if analyze else "physical_plan")
    if plan is None:
        said = "\n".join(text for kind, text in plans.items() if "error" in kind) or f"there is no plan of {sql!r}"
        raise translated(said) or ValueError(said)
    return Explanation(_parts(plan, is_executed=analyze), plan)


@dataclass
class _Block:
    """The lines of a part, and what is said of it elsewhere."""

    lines: list[str] = field(default_factory=list)
    columns: str = ""
    readers: int = 0
    reads: list[str] = field(default_factory=list)
    metrics: Mapping[str, str] = field(default_factory=dict)


_STATEMENT = "the statement"


def _parts(plan: str, *, is_executed: bool) -> list[Part]:
    """Returns the parts of a plan, each after those that it reads."""
    blocks = {_STATEMENT: _Block()}
    for owner, line in _owned(plan, blocks):
        node, metrics = _node(line)
        if node.endswith(_IS_READ):
            name = node.removesuffix(_IS_READ)
            if name in blocks:
                blocks[name].metrics = metrics
            continue
        blocks[owner].lines.append(line)
        if found := _COMPUTES.search(line) or _READS.search(line):
            blocks.setdefault(found["name"], _Block()).readers += 1
            if found["name"] not in blocks[owner].reads:
                blocks[owner].reads.append(found["name"])
            if "columns" in found.groupdict():
                blocks[found["name"]].columns = found["columns"]
    return [_part(name, blocks[name], is_executed=is_executed) for name in _ordered(_STATEMENT, blocks, [])]


def _owned(plan: str, blocks: Mapping[str, _Block]) -> Iterator[tuple[str, str]]:
    """The lines of a plan without indents, each with the part it is of: its innermost head, as ``name| ``, is that."""
    for line in plan.splitlines():
        owner, rest = _STATEMENT, line.strip()
        while (head := next((name for name in blocks if rest.startswith(f"{name}| ")), None)) is not None:
            owner, rest = head, rest[len(head) + 2 :].strip()
        yield owner, rest


def _ordered(name: str, blocks: Mapping[str, _Block], found: list[str]) -> list[str]:
    """Returns a part and all that it reads, these first."""
    for below in blocks[name].reads:
        if below not in found:
            _ordered(below, blocks, found)
    found.append(name)
    return found


def _part(name: str, block: _Block, *, is_executed: bool) -> Part:
    """Parses the lines of a part."""
    arrays, others = list[str](), list[str]()
    nodes = [_node(line) for line in block.lines]
    for node, metrics in nodes:
        if found := _CONTRACTION.search(node):
            arrays.append(_contraction(found, node, metrics))
        elif found := _AGGREGATE.search(node):
            by = f" by {_plain(found['by'])}" if found["by"] else ""
            others.append(f"{_plain(found['sum'])}{by}")
        elif found := _TAPE.search(node):
            others.append(f"keeps the iterations of {found['query']}")
        elif found := _ADJOINT.search(node):
            others.append(f"goes back through the iterations of {found['query']}")
    for what, names in _WORK.items():
        if count := sum(node.startswith(names) for node, _ in nodes):
            others.append(f"{count} {what}")
    is_swept = _COTANGENT in block.columns or any(_ADJOINT.search(node) for node, _ in nodes)
    if not arrays and not others:
        shown = next(filter(None, (_PROJECTION.search(node) for node, _ in nodes)), None)
        others.append(_plain(shown["columns"]) if shown else "rows as they are")
    tables = sum(node.startswith(_SOURCE) for node, _ in nodes)
    measured = None
    if is_executed:
        rows, held = (block.metrics.get(key, "") for key in ("computed_rows", "held_bytes"))
        # A tape accounts for what it keeps itself.
        held = next((metrics["held_bytes"] for _, metrics in nodes if "held_bytes" in metrics), held)
        measured = Measured(rows, held, sum(_seconds(metrics.get("elapsed_compute", "")) for _, metrics in nodes))
    return Part(name, is_swept, block.reads, tables, arrays, others, block.readers, measured)


def _node(line: str) -> tuple[str, Mapping[str, str]]:
    """Returns a node as it shows itself, and its metrics."""
    shown = _METRICS.search(line)
    return (line[: shown.start()], _metrics(shown["metrics"])) if shown else (line, {})


def _contraction(found: re.Match[str], node: str, metrics: Mapping[str, str]) -> str:
    kernels = [kernel.replace("_", " ") for kernel in _KERNELS if kernel in metrics]
    extra = [*kernels, *(["at the rows asked for"] if _CHOSEN in node else [])]
    over = dict.fromkeys(_plain(each.partition(" = ")[0]) for each in found["on"].split(", "))
    shown = f"SUM({_plain(found['sum'])}) by {_plain(found['by']) or 'nothing'} over {', '.join(over)}"
    return f"{shown} ({', '.join(extra)})" if extra else shown


def _plain(text: str) -> str:
    """Expressions of a plan without the places of columns in it, and without the marks of names of its own."""
    text = re.sub(r"@\d+(?: of \d+)?", "", text)
    text = re.sub(rf"(?<=\w) #\d+|{_OWN}", "", text)
    text = re.sub(r" of \d+\b", "", text)
    return re.sub(r"(\S+) as \1(?=,|$)", r"\1", text)


def _metrics(text: str) -> dict[str, str]:
    return dict(each.split("=", 1) for each in text.split(", ") if "=" in each)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(?P<number>[\d.]+)(?P<unit>ns|µs|us|ms|s|m)", text)
    return float(found["number"]) * _TIMES[found["unit"]] if found else 0.0
