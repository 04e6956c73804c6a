"""Models that people fit, train or simulate, as relations that are given and queries that are named.

A model is the same however its relations are given: in tables, views or CTEs, under whatever names. `forms` writes it.
Every reference to a relation in a text is `{role}`, and has an alias.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from support.choices import Choices

Rows = Sequence[tuple[float | None, ...]]


@dataclass(frozen=True)
class Data:
    """A relation that is given. Its keys are whole numbers, which tell its rows apart unless some are there twice."""

    role: str
    keys: Sequence[str]
    floats: Sequence[str]
    rows: Rows
    # Where the only float is `key * slope + offset` for all keys of a range: slope and offset.
    line: tuple[float, float] | None = None

    @property
    def columns(self) -> list[str]:
        return [*self.keys, *self.floats]


@dataclass(frozen=True)
class Part:
    """A named query. Its column `val`, if it computes one, may be a variable in the rows that the keys tell apart."""

    role: str
    text: str
    keys: Sequence[str] = ()


@dataclass(frozen=True)
class Variable:
    """A column of a relation that is given or computed."""

    role: str
    keys: Sequence[str]
    column: str


@dataclass(frozen=True)
class Model:
    """A loss, a query of one number, over parts that read each other in turn, and what it may be differentiated by."""

    name: str
    data: Sequence[Data]
    parts: Sequence[Part]
    loss: str
    variables: Sequence[Variable]

    def texts(self) -> list[str]:
        return [*(part.text for part in self.parts), self.loss]

    def reads(self, role: str) -> list[int]:
        """The numbers of the texts that read a relation."""
        return [number for number, text in enumerate(self.texts()) if f"{{{role}}}" in text]

    def with_texts(self, texts: Sequence[str]) -> Model:
        parts = [replace(part, text=text) for part, text in zip(self.parts, texts[:-1], strict=True)]
        return replace(self, parts=parts, loss=texts[-1])

    def renamed(self, old: str, new: str) -> Model:
        """The model with another name of a column."""

        def text(query: str) -> str:
            return re.sub(rf"(?<!\{{)\b{old}\b(?!\}})", quoted(new), query)

        def listed(names: Sequence[str]) -> list[str]:
            return [new if name == old else name for name in names]

        return replace(
            self,
            data=[replace(data, keys=listed(data.keys), floats=listed(data.floats)) for data in self.data],
            parts=[replace(part, text=text(part.text), keys=listed(part.keys)) for part in self.parts],
            loss=text(self.loss),
            variables=[
                Variable(each.role, listed(each.keys), new if each.column == old else each.column)
                for each in self.variables
            ],
        )


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return name if re.fullmatch(r"[a-z0-9_]+", name) else f'"{name}"'


class Draw:
    """Random numbers and sizes."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._random = np.random.default_rng(choices.below(1000))

    def numbers(self, count: int, low: float = -1.0, high: float = 1.0) -> list[float]:
        """Numbers with four binary digits more than needed to tell them apart, so that sums of halves are exact."""
        return [float(np.round(x * 4096) / 4096) for x in self._random.uniform(low, high, count)]

    def size(self, least: int, most: int) -> int:
        return least + self.choices.below(most - least + 1)

    def data(self, role: str, axes: Mapping[str, int], low: float = -1.0, high: float = 1.0) -> Data:
        """A row for each cell of an array, with the column `val`."""
        keys = list(np.ndindex(*axes.values()))
        values = self.numbers(len(keys), low, high)
        return Data(role, list(axes), ["val"], [(*key, value) for key, value in zip(keys, values, strict=True)])

    def edges(self, nodes: int) -> Data:
        """A graph in which every node has an edge out, with weights; some edges are there twice."""
        pairs = [(node, int(self._random.integers(nodes))) for node in range(nodes)]
        pairs += [(int(self._random.integers(nodes)), int(self._random.integers(nodes))) for _ in range(nodes)]
        if not self.choices.chance(30):
            pairs = sorted(set(pairs))
        weights = self.numbers(len(pairs), 0.5, 1.5)
        return Data("edges", ["src", "dst"], ["val"], [(*p, w) for p, w in zip(pairs, weights, strict=True)])

    def holes(self, data: Data, percent: int = 20) -> Data:
        """Some of its floats are NULL."""
        if not self.choices.chance(percent):
            return data
        hole = self.choices.below(len(data.rows))
        rows = [
            (*row[: len(data.keys)], *[None] * len(data.floats)) if n == hole else row
            for n, row in enumerate(data.rows)
        ]
        return replace(data, rows=rows)

    def line(self, role: str, start: int, stop: int) -> Data:
        """A float that follows from the key."""
        slope, offset = self.numbers(2, 0.1, 0.6)
        rows = [(key, key * slope - offset) for key in range(start, stop + 1)]
        return Data(role, ["k"], ["val"], rows, (slope, -offset))


def by(*data: Data) -> list[Variable]:
    """All floats of relations that are given."""
    return [Variable(each.role, each.keys, name) for each in data for name in each.floats]


def of(*parts: Part) -> list[Variable]:
    """The values that parts compute."""
    return [Variable(part.role, part.keys, "val") for part in parts]


# Graphs


def pagerank(draw: Draw) -> Model:
    """Every round reads the degrees, a constant unless it is by the weights."""
    choices = draw.choices
    nodes = draw.size(3, 5)
    edges, rank, all_nodes = draw.edges(nodes), draw.data("rank", {"k": nodes}, 0.2, 1.0), draw.line("nodes", 0, nodes)
    counted = choices.of(["COUNT(*)", "CAST(COUNT(*) AS DOUBLE)", "SUM(e.val)", "COUNT(DISTINCT e.dst)"])
    parts = [Part("degree", f"SELECT e.src AS k, {counted} AS val FROM {{edges}} AS e GROUP BY e.src")]
    sent = (
        "SELECT e.dst AS k, {0}SUM(r.val * e.val / d.val) AS val FROM {{edges}} AS e JOIN {{{1}}} AS r ON r.k = e.src "
        "JOIN {{degree}} AS d ON d.k = e.src GROUP BY e.dst"
    )
    outer = choices.chance(40)
    last = "rank"
    for number in range(1, draw.size(1, 4) + 1):
        text = sent.format("" if outer else "0.15 + 0.85 * ", last)
        if outer:
            text = (
                f"SELECT n.k, 0.15 * n.val + 0.85 * coalesce(s.val, 0.0) AS val FROM {{nodes}} AS n "
                f"LEFT JOIN ({text}) AS s ON s.k = n.k"
            )
        last = f"r{number}"
        parts.append(Part(last, text, ["k"]))
    loss = choices.of([
        f"SELECT SUM(r.val * r.val * (r.k + 1)) FROM {{{last}}} AS r",
        f"SELECT SUM(power(r.val - o.val, 2)) FROM {{{last}}} AS r JOIN {{rank}} AS o ON o.k = r.k",
        f"SELECT MAX(r.val) + AVG(ln(1 + r.val * r.val)) FROM {{{last}}} AS r",
    ])  # fmt: skip
    return Model("pagerank", [edges, rank, all_nodes], parts, loss, [*by(rank, edges), *of(*parts[1:])])


def hits(draw: Draw) -> Model:
    """Hubs and authorities start as CTEs of one text."""
    choices = draw.choices
    nodes = draw.size(3, 4)
    edges, all_nodes = draw.edges(nodes), draw.line("nodes", 0, nodes - 1)
    start = choices.of(["1.0", "0.5 + 0.25 * n.k", "n.val", "n.val * n.val"])
    text = f"SELECT n.k, {start} AS val FROM {{nodes}} AS n"
    parts = [Part("hub", text, ["k"]), Part("authority", text, ["k"])]
    variables = [*by(edges)] if start == "n.val" else [*of(*parts), *by(edges)]
    hub, authority = "hub", "authority"
    normal = choices.of(["", "", "sqrt(SUM(a.val * a.val))", "SUM(a.val)"])
    for number in range(1, draw.size(1, 2) + 1):
        for name, target, source in (("authority", "dst", "src"), ("hub", "src", "dst")):
            read, own = (hub, authority) if name == "authority" else (authority, hub)
            text = (
                f"SELECT o.k, 0.5 * o.val + coalesce(s.val, 0.0) AS val FROM {{{own}}} AS o LEFT JOIN (SELECT "
                f"e.{target} AS k, SUM(h.val * e.val) AS val FROM {{edges}} AS e JOIN {{{read}}} AS h "
                f"ON h.k = e.{source} GROUP BY e.{target}) AS s ON s.k = o.k"
            )
            new = f"{name}{number}"
            if normal:
                parts.append(Part(f"{new}_raw", text, ["k"]))
                parts.append(Part(f"{new}_norm", f"SELECT {normal} AS val FROM {{{new}_raw}} AS a"))
                text = f"SELECT a.k, a.val / (1 + b.val) AS val FROM {{{new}_raw}} AS a CROSS JOIN {{{new}_norm}} AS b"
            parts.append(Part(new, text, ["k"]))
            if name == "authority":
                authority = new
            else:
                hub = new
    loss = (
        f"SELECT SUM(2 * h.val * (h.k + 1) + 10 * a.val * a.val) "
        f"FROM {{{hub}}} AS h JOIN {{{authority}}} AS a ON a.k = h.k"
    )
    return Model("hits", [edges, all_nodes], parts, loss, variables)


def graph_convolution(draw: Draw) -> Model:
    """All layers read the normalised edges, which are a constant of three joins."""
    choices = draw.choices
    nodes, width, layers = draw.size(3, 4), 2, draw.size(1, 3)
    edges, x = draw.edges(nodes), draw.data("x", {"n": nodes, "i": width})
    y = draw.data("y", {"n": nodes, "i": width})
    one = choices.chance(30)
    weights = [draw.data("w", {"layer": layers, "i": width, "o": width})] if one else []
    weights = weights or [draw.data(f"w{n}", {"i": width, "o": width}) for n in range(layers)]
    loops = choices.of([
        "SELECT e.src, e.dst, e.val FROM {edges} AS e UNION ALL SELECT DISTINCT e.src, e.src AS dst, 1.0 AS val "
        "FROM {edges} AS e",
        "SELECT DISTINCT e.src, e.dst, e.val FROM {edges} AS e",
        "SELECT e.src, e.dst, MAX(e.val) AS val FROM {edges} AS e GROUP BY e.src, e.dst",
        "SELECT e.src, e.dst, e.val FROM {edges} AS e",
    ])  # fmt: skip
    parts = [
        Part("adjacent", loops),
        Part("degree", "SELECT a.src AS k, SUM(a.val) AS val FROM {adjacent} AS a GROUP BY a.src"),
        Part(
            "normal",
            "SELECT a.src, a.dst, a.val / sqrt(d.val * (1 + d.val)) AS val FROM {adjacent} AS a "
            "JOIN {degree} AS d ON d.k = a.src",
        ),
    ]
    last = "x"
    squash = choices.of(["tanh({0})", "greatest({0}, 0.0)", "{0} / (1 + abs({0}))", "1 / (1 + exp(-({0})))"])
    for layer in range(layers):
        parts.append(Part(
            f"sent{layer}",
            f"SELECT m.dst AS n, h.i, SUM(h.val * m.val) AS val FROM {{normal}} AS m JOIN {{{last}}} AS h "
            "ON h.n = m.src GROUP BY m.dst, h.i", ["n", "i"],
        ))  # fmt: skip
        weight, where = ("w", f" AND w.layer = {layer}") if one else (f"w{layer}", "")
        parts.append(Part(
            f"h{layer}",
            f"SELECT a.n, w.o AS i, {squash.format('SUM(a.val * w.val)')} AS val FROM {{sent{layer}}} AS a "
            f"JOIN {{{weight}}} AS w ON w.i = a.i{where} GROUP BY a.n, w.o", ["n", "i"],
        ))  # fmt: skip
        last = f"h{layer}"
    loss = f"SELECT AVG(power(h.val - y.val, 2)) FROM {{{last}}} AS h JOIN {{y}} AS y ON y.n = h.n AND y.i = h.i"
    computed = [part for part in parts if part.keys]
    return Model("graph convolution", [edges, x, y, *weights], parts, loss, [*by(*weights, x, edges), *of(*computed)])


# Networks


def network(draw: Draw) -> Model:
    """Layers with a normalisation, a mask of dropout, and a residual."""
    choices = draw.choices
    samples, width, layers = draw.size(2, 4), draw.size(2, 3), draw.size(1, 3)
    x, y = draw.data("x", {"n": samples, "i": width}), draw.data("y", {"n": samples, "i": width})
    alike = choices.chance(30)
    weights = [draw.data(f"w{n}", {"i": width, "o": width}) for n in range(layers)]
    if alike:
        weights = [replace(each, rows=weights[0].rows) for each in weights]
    bias, mask = draw.data("bias", {"o": width}), draw.data("mask", {"i": width}, 0.1, 2.0)
    normal = choices.of(["", "groups", "windows", "samples"])
    masked = choices.of(["", "table", "hash"])
    squash = choices.of(["tanh({0})", "greatest({0}, 0.1 * ({0}))", "CASE WHEN {0} > 0 THEN {0} ELSE 0.2 * ({0}) END"])
    parts: list[Part] = []
    last = "x"
    for layer in range(layers):
        add = " + b.val" if choices.chance(50) else ""
        join = " JOIN {bias} AS b ON b.o = w.o" if add else ""
        group = ", b.val" if add else ""
        parts.append(Part(
            f"a{layer}",
            f"SELECT x.n, w.o AS i, SUM(x.val * w.val){add} AS val FROM {{{last}}} AS x JOIN {{w{layer}}} AS w "
            f"ON w.i = x.i{join} GROUP BY x.n, w.o{group}", ["n", "i"],
        ))  # fmt: skip
        last = f"a{layer}"
        if normal:
            parts.append(Part(f"n{layer}", _normalised(normal, last), ["n", "i"]))
            last = f"n{layer}"
        value, other = squash.format("z.val"), ""
        if masked == "table":
            value, other = f"{value} * m.val", " JOIN {mask} AS m ON m.i = z.i"
        elif masked == "hash":
            value = f"{value} * CASE WHEN (z.n * 7 + z.i * 3) % 4 = {layer} THEN 0.0 ELSE 1.25 END"
        parts.append(Part(f"h{layer}", f"SELECT z.n, z.i, {value} AS val FROM {{{last}}} AS z{other}", ["n", "i"]))
        last = f"h{layer}"
    loss = choices.of([
        f"SELECT AVG(power(h.val - y.val, 2)) FROM {{{last}}} AS h JOIN {{y}} AS y ON y.n = h.n AND y.i = h.i",
        f"SELECT SUM(h.val * y.val) + 0.1 * (SELECT SUM(w.val * w.val) FROM {{w0}} AS w) FROM {{{last}}} AS h "
        "JOIN {y} AS y ON y.n = h.n AND y.i = h.i",
    ])  # fmt: skip
    variables = [*by(*weights, x, bias), *of(*parts)]
    return Model("network", [x, y, *weights, bias, mask], parts, loss, variables)


def _normalised(how: str, last: str) -> str:
    if how == "windows":
        return (
            "SELECT z.n, z.i, (z.val - AVG(z.val) OVER (PARTITION BY z.n)) / "
            f"sqrt(0.1 + VAR_POP(z.val) OVER (PARTITION BY z.n)) AS val FROM {{{last}}} AS z"
        )
    key = "n" if how == "groups" else "i"
    return (
        f"SELECT z.n, z.i, (z.val - s.m) / sqrt(0.1 + s.v) AS val FROM {{{last}}} AS z JOIN (SELECT q.{key}, "
        f"AVG(q.val) AS m, VAR_POP(q.val) AS v FROM {{{last}}} AS q GROUP BY q.{key}) AS s ON s.{key} = z.{key}"
    )


def attention(draw: Draw) -> Model:
    """Queries, keys and values of one input, by weights that may start with equal values."""
    choices = draw.choices
    size, width = draw.size(2, 4), 2
    x = draw.data("x", {"t": size, "c": width})
    weights = [draw.data(name, {"c": width, "d": width}) for name in ("wq", "wk", "wv")]
    if choices.chance(40):
        weights = [replace(each, rows=weights[0].rows) for each in weights]
    g = draw.data("g", {"t": size, "d": width})
    parts = [
        Part(
            each,
            f"SELECT x.t, w.d, SUM(x.val * w.val) AS val FROM {{x}} AS x JOIN {{w{each}}} AS w ON w.c = x.c "
            "GROUP BY x.t, w.d",
            ["t", "d"],
        )
        for each in "qkv"
    ]
    causal = choices.of(["", " AND k.t <= q.t"])
    parts.append(Part(
        "s", f"SELECT q.t, k.t AS u, SUM(q.val * k.val) AS val FROM {{q}} AS q JOIN {{k}} AS k ON k.d = q.d{causal} "
        "GROUP BY q.t, k.t", ["t", "u"],
    ))  # fmt: skip
    if choices.chance(50):
        parts += [
            Part("e", "SELECT s.t, s.u, exp(s.val - MAX(s.val) OVER (PARTITION BY s.t)) AS val "
                      "FROM {s} AS s", ["t", "u"]),
            Part("p", "SELECT e.t, e.u, e.val / SUM(e.val) OVER (PARTITION BY e.t) AS val FROM {e} AS e", ["t", "u"]),
        ]  # fmt: skip
    else:
        parts += [
            Part("top", "SELECT s.t, MAX(s.val) AS val FROM {s} AS s GROUP BY s.t"),
            Part("e", "SELECT s.t, s.u, exp(s.val - m.val) AS val "
                      "FROM {s} AS s JOIN {top} AS m ON m.t = s.t", ["t", "u"]),
            Part("total", "SELECT e.t, SUM(e.val) AS val FROM {e} AS e GROUP BY e.t", ["t"]),
            Part("p", "SELECT e.t, e.u, e.val / z.val AS val FROM {e} AS e JOIN {total} AS z ON z.t = e.t", ["t", "u"]),
        ]  # fmt: skip
    parts.append(Part(
        "o", "SELECT p.t, v.d, SUM(p.val * v.val) AS val FROM {p} AS p JOIN {v} AS v ON v.t = p.u GROUP BY p.t, v.d",
        ["t", "d"],
    ))  # fmt: skip
    loss = "SELECT SUM(o.val * o.val * g.val) FROM {o} AS o JOIN {g} AS g ON g.t = o.t AND g.d = o.d"
    return Model(
        "attention", [x, *weights, g], parts, loss, [*by(*weights, x), *of(*[part for part in parts if part.keys])]
    )


# Fields and time


def heat(draw: Draw) -> Model:
    """Explicit steps of a field on a grid, neighbours by joins or by windows, with a conductivity."""
    choices = draw.choices
    size = draw.size(4, 6)
    u = draw.line("u", 0, size - 1) if choices.chance(30) else draw.holes(draw.data("u", {"k": size}), 10)
    c = draw.line("c", -1, size) if choices.chance(30) else draw.data("c", {"k": size}, 0.1, 0.9)
    inner = draw.line("inner", 1, size - 2)
    way = choices.of(["joins", "windows", "sum"])
    steps = draw.size(1, {"joins": 3, "windows": 4, "sum": 3}[way])
    edge = choices.of(["a.val", "0.0", "1.25"])
    parts = []
    last = "u"
    for step in range(1, steps + 1):
        if way == "joins":
            text = (
                f"SELECT a.k, a.val + 0.2 * c.val * (coalesce(l.val, {edge}) - 2 * a.val + coalesce(r.val, {edge})) "
                f"AS val FROM {{{last}}} AS a LEFT JOIN {{{last}}} AS l ON l.k = a.k - 1 LEFT JOIN {{{last}}} AS r "
                "ON r.k = a.k + 1 JOIN {c} AS c ON c.k = a.k"
            )
        elif way == "windows":
            left, right = (f"coalesce({f}(a.val) OVER (ORDER BY a.k), {edge})" for f in ("LAG", "LEAD"))
            if edge != "a.val" and choices.chance(50):
                left, right = (f"{f}(a.val, 1, {edge}) OVER (ORDER BY a.k)" for f in ("LAG", "LEAD"))
            text = (
                f"SELECT a.k, a.val + 0.2 * c.val * ({left} - 2 * a.val + {right}) AS val FROM {{{last}}} AS a "
                "JOIN {c} AS c ON c.k = a.k"
            )
        else:
            text = (
                "SELECT a.k, a.val + 0.2 * SUM(c.val * (b.val - a.val)) + coalesce(MAX(i.val), 0.0) AS val "
                f"FROM {{{last}}} AS a JOIN {{{last}}} AS b ON b.k BETWEEN a.k - 1 AND a.k + 1 "
                "JOIN {c} AS c ON c.k = b.k LEFT JOIN {inner} AS i ON i.k = a.k GROUP BY a.k, a.val"
            )
        last = f"u{step}"
        parts.append(Part(last, text, ["k"]))
    loss = choices.of([
        f"SELECT SUM(a.val * a.val * (a.k + 1)) FROM {{{last}}} AS a",
        f"SELECT SUM(power(a.val - o.val, 2)) FROM {{{last}}} AS a JOIN {{u}} AS o ON o.k = a.k",
        f"SELECT AVG(a.val * i.val) FROM {{{last}}} AS a JOIN {{inner}} AS i ON i.k = a.k",
    ])  # fmt: skip
    return Model("heat", [u, c, inner], parts, loss, [*by(u, c), *of(*parts)])


def stepping(draw: Draw) -> Model:
    """A state through time: parameters of one row, masses that every step reads, and the state before."""
    choices = draw.choices
    size, steps = draw.size(2, 4), draw.size(1, 4)
    par = Data("par", ["id"], ["a", "b"], [(0, *draw.numbers(2, 0.2, 0.9))])
    m, start = draw.data("m", {"k": size}, 0.5, 1.5), draw.data("start", {"k": size})
    source = choices.of([
        "{par} AS p CROSS JOIN {m} AS m JOIN {LAST} AS s ON s.k = m.k",
        "{m} AS m JOIN {LAST} AS s ON s.k = m.k CROSS JOIN {par} AS p",
        "{LAST} AS s JOIN (SELECT m.k, MAX(m.val) AS val FROM {m} AS m GROUP BY m.k) AS m ON m.k = s.k CROSS JOIN "
        "{par} AS p",
        "{LAST} AS s JOIN (SELECT DISTINCT m.k, m.val FROM {m} AS m) AS m ON m.k = s.k CROSS JOIN {par} AS p",
        "{LAST} AS s CROSS JOIN {par} AS p JOIN {m} AS m USING (k)",
    ])  # fmt: skip
    rule = choices.of(
        ["p.a * m.val - p.b * s.val", "p.a * s.val * (1 - s.val / m.val) - p.b", "sin(p.a * s.val) * m.val"]
    )
    damped = " * (1 - 0.1 * AVG(s.val) OVER ())" if choices.chance(25) else ""
    parts = []
    last = "start"
    for step in range(1, steps + 1):
        text = f"SELECT s.k, s.val + 0.2 * ({rule}){damped} AS val FROM {source.replace('LAST', last)}"
        last = f"s{step}"
        parts.append(Part(last, text, ["k"]))
    every = " UNION ALL ".join(f"SELECT s.k, s.val FROM {{{part.role}}} AS s" for part in parts)
    loss = choices.of([
        f"SELECT SUM(s.val * s.val * (s.k + 1)) FROM {{{last}}} AS s",
        f"SELECT SUM(s.val * s.val) FROM ({every}) AS s",
        f"SELECT SUM(s.val * m.val) FROM {{{last}}} AS s JOIN {{m}} AS m ON m.k = s.k",
    ])  # fmt: skip
    return Model("stepping", [par, m, start], parts, loss, [*by(par, m, start), *of(*parts)])


def oscillators(draw: Draw) -> Model:
    """Phases that are coupled, with places and velocities in one relation or in two."""
    choices = draw.choices
    size, steps = draw.size(2, 4), draw.size(1, 3)
    place, speed = draw.data("place", {"k": size}), draw.data("speed", {"k": size}, 0.2, 1.0)
    links = draw.data("links", {"i": size, "j": size}, 0.1, 0.5)
    if choices.chance(40):
        speed = replace(speed, rows=place.rows)
    parts, x, v = [], "place", "speed"
    for step in range(1, steps + 1):
        parts += [
            Part(
                f"force{step}",
                f"SELECT l.i AS k, SUM(l.val * sin(b.val - a.val)) AS val FROM {{links}} AS l JOIN {{{x}}} AS a "
                f"ON a.k = l.i JOIN {{{x}}} AS b ON b.k = l.j GROUP BY l.i",
                ["k"],
            ),
            Part(
                f"v{step}",
                f"SELECT v.k, 0.95 * v.val + 0.1 * f.val AS val FROM {{{v}}} AS v JOIN {{force{step}}} AS f "
                "ON f.k = v.k",
                ["k"],
            ),
            Part(
                f"x{step}",
                f"SELECT x.k, x.val + 0.1 * v.val AS val FROM {{{x}}} AS x JOIN {{v{step}}} AS v ON v.k = x.k",
                ["k"],
            ),
        ]
        x, v = f"x{step}", f"v{step}"
    loss = f"SELECT SUM(x.val * x.val + v.val * v.val * (v.k + 1)) FROM {{{x}}} AS x JOIN {{{v}}} AS v ON v.k = x.k"
    return Model("oscillators", [place, speed, links], parts, loss, [*by(place, speed, links), *of(*parts)])


def gravity(draw: Draw) -> Model:
    """Sums over pairs of bodies of two coordinates."""
    choices = draw.choices
    size = draw.size(3, 5)
    columns = [draw.numbers(size) for _ in range(2)] + [draw.numbers(size, 0.5, 2.0)]
    bodies = Data("bodies", ["k"], ["x", "y", "m"], [(k, *row) for k, row in enumerate(zip(*columns, strict=True))])
    condition = choices.of(["a.k < b.k", "a.k <> b.k", "a.k <= b.k"])
    parts = [Part(
        "pairs", "SELECT a.k, b.k AS j, a.m * b.m / sqrt(0.1 + power(a.x - b.x, 2) + power(a.y - b.y, 2)) AS val "
        f"FROM {{bodies}} AS a JOIN {{bodies}} AS b ON {condition}", ["k", "j"],
    )]  # fmt: skip
    last = "bodies"
    if choices.chance(50):
        parts.append(Part("pull", "SELECT p.k, SUM(p.val) AS val FROM {pairs} AS p GROUP BY p.k", ["k"]))
        parts.append(Part(
            "moved", "SELECT b.k, b.x + 0.1 * p.val AS x, b.y - 0.1 * p.val * b.m AS y, b.m FROM {bodies} AS b "
            "JOIN {pull} AS p ON p.k = b.k",
        ))  # fmt: skip
        last = "moved"
    loss = choices.of([
        "SELECT SUM(p.val) FROM {pairs} AS p",
        f"SELECT SUM(b.m * (b.x * b.x + b.y)) + (SELECT SUM(p.val) FROM {{pairs}} AS p) FROM {{{last}}} AS b",
    ])  # fmt: skip
    return Model("gravity", [bodies], parts, loss, [*by(bodies), *of(parts[0])])


def smoothing(draw: Draw) -> Model:
    """Moving averages over moving averages, and what they leave over."""
    choices = draw.choices
    size = draw.size(4, 6)
    u, w = draw.holes(draw.data("u", {"k": size})), draw.data("w", {"k": size}, 0.5, 1.5)
    frame = choices.of([
        "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING", "",
    ])  # fmt: skip
    parts, last = [], "u"
    for level in range(1, draw.size(1, 3) + 1):
        parts.append(Part(
            f"s{level}", f"SELECT a.k, AVG(a.val * w.val) OVER (ORDER BY a.k {frame}) AS val FROM {{{last}}} AS a "
            "JOIN {w} AS w ON w.k = a.k", ["k"],
        ))  # fmt: skip
        last = f"s{level}"
    loss = (
        f"SELECT SUM(power(a.val - u.val, 2) * w.val) "
        f"FROM {{{last}}} AS a JOIN {{u}} AS u ON u.k = a.k JOIN {{w}} AS w ON w.k = a.k"
    )
    return Model("smoothing", [u, w], parts, loss, [*by(u, w), *of(*parts)])


# Statistics


def factors(draw: Draw) -> Model:
    """A matrix from factors, which may start alike, at the entries that are there."""
    choices = draw.choices
    users, items, rank = draw.size(2, 4), draw.size(2, 4), 2
    if choices.chance(40):
        items = users
    a, b = draw.data("a", {"u": users, "f": rank}), draw.data("b", {"u": items, "f": rank})
    if users == items and choices.chance(60):
        b = replace(b, rows=a.rows)
    seen = draw.holes(draw.data("seen", {"u": users, "i": items}))
    parts = [
        Part(
            "predicted",
            "SELECT r.u, r.i, SUM(a.val * b.val) AS val FROM {seen} AS r JOIN {a} AS a ON a.u = r.u "
            "JOIN {b} AS b ON b.u = r.i AND b.f = a.f GROUP BY r.u, r.i",
            ["u", "i"],
        )
    ]
    norms = " + ".join(f"0.1 * (SELECT SUM(q.val * q.val) FROM {{{name}}} AS q)" for name in "ab")
    loss = (
        f"SELECT SUM(power(p.val - r.val, 2)) + {norms} FROM {{predicted}} AS p "
        "JOIN {seen} AS r ON r.u = p.u AND r.i = p.i"
    )
    return Model("factors", [a, b, seen], parts, loss, [*by(a, b), *of(*parts)])


def mixture(draw: Draw) -> Model:
    """The likelihood of points, with the shares of the parts as a softmax."""
    points = draw.data("points", {"n": draw.size(3, 5)}, -2.0, 2.0)
    size = draw.size(2, 3)
    columns = [draw.numbers(size) for _ in range(3)]
    parts_ = Data(
        "component", ["k"], ["mu", "ls", "logit"], [(k, *row) for k, row in enumerate(zip(*columns, strict=True))]
    )
    top = draw.choices.chance(50)
    parts = [
        Part("share", "SELECT c.k, exp(c.logit) / SUM(exp(c.logit)) OVER () AS val FROM {component} AS c", ["k"]),
        Part(
            "density",
            "SELECT p.n, c.k, s.val * exp(-0.5 * power((p.val - c.mu) / exp(c.ls), 2)) / exp(c.ls) AS val "
            "FROM {points} AS p CROSS JOIN {component} AS c JOIN {share} AS s ON s.k = c.k",
            ["n", "k"],
        ),
        Part("each", "SELECT d.n, ln(SUM(d.val)) AS val FROM {density} AS d GROUP BY d.n", ["n"]),
    ]
    loss = "SELECT -AVG(e.val) FROM {each} AS e"
    if top:
        loss = "SELECT -AVG(e.val) + 0.1 * (SELECT MAX(d.val) FROM {density} AS d) FROM {each} AS e"
    return Model("mixture", [points, parts_], parts, loss, [*by(parts_, points), *of(*parts)])


def spline(draw: Draw) -> Model:
    """A line through knots, at points between them."""
    knots = draw.size(3, 5)
    heights = draw.numbers(knots)
    knot = Data("knot", ["k"], ["x", "val"], [(k, k + 0.25 * h, h) for k, h in enumerate(heights)])
    spots = draw.numbers(draw.size(3, 5), 0.5, knots - 1.5)
    targets = draw.numbers(len(spots))
    point = Data("point", ["n"], ["x", "val"], [(n, *row) for n, row in enumerate(zip(spots, targets, strict=True))])
    by_lead = draw.choices.chance(50)
    segment = (
        "SELECT a.k, a.x AS x0, a.val AS y0, LEAD(a.x) OVER (ORDER BY a.k) "
        "AS x1, LEAD(a.val) OVER (ORDER BY a.k) AS y1 "
        "FROM {knot} AS a"
        if by_lead
        else "SELECT a.k, a.x AS x0, a.val AS y0, b.x AS x1, b.val AS y1 "
        "FROM {knot} AS a JOIN {knot} AS b ON b.k = a.k + 1"
    )
    parts = [
        Part("segment", segment),
        Part(
            "fitted",
            "SELECT p.n, s.y0 + (s.y1 - s.y0) * (p.x - s.x0) / (s.x1 - s.x0) AS val FROM {point} AS p "
            "JOIN {segment} AS s ON p.x >= s.x0 AND p.x < s.x1",
            ["n"],
        ),
    ]
    loss = (
        "SELECT SUM(power(f.val - p.val, 2)) "
        "+ 0.01 * (SELECT SUM(power((s.y1 - s.y0) / (s.x1 - s.x0), 2)) FROM {segment} AS s) "
        "FROM {fitted} AS f JOIN {point} AS p ON p.n = f.n"
    )
    return Model("spline", [knot, point], parts, loss, [*by(knot), *of(parts[1])])


def ranking(draw: Draw) -> Model:
    """Scores by features, and a loss over the pairs of which one is to be above the other."""
    items, width = draw.size(3, 5), 2
    x, w = draw.data("x", {"n": items, "i": width}), draw.data("w", {"i": width})
    label = draw.line("label", 0, items - 1)
    pairs = draw.choices.of([
        "SELECT a.n, b.n AS j, ln(1 + exp(b.val - a.val)) AS val FROM {score} AS a JOIN {score} AS b ON a.n > b.n",
        "SELECT a.n, b.n AS j, greatest(0.0, 1 - (a.val - b.val)) AS val FROM {score} AS a CROSS JOIN {score} AS b "
        "JOIN {label} AS l ON l.k = a.n JOIN {label} AS m ON m.k = b.n WHERE l.val > m.val",
    ])  # fmt: skip
    parts = [
        Part("score", "SELECT x.n, tanh(SUM(x.val * w.val)) AS val "
                      "FROM {x} AS x JOIN {w} AS w ON w.i = x.i GROUP BY x.n", ["n"]),
        Part("pairs", pairs, ["n", "j"]),
    ]  # fmt: skip
    loss = draw.choices.of([
        "SELECT AVG(p.val) FROM {pairs} AS p",
        "SELECT SUM(p.val * l.val) + 0.05 * (SELECT SUM(w.val * w.val) FROM {w} AS w) FROM {pairs} AS p "
        "JOIN {label} AS l ON l.k = p.n",
    ])  # fmt: skip
    return Model("ranking", [x, w, label], parts, loss, [*by(w, x), *of(*parts)])


def hidden_states(draw: Draw) -> Model:
    """The forward pass of a hidden Markov model, with the transitions as a constant, or as a softmax of logits."""
    choices = draw.choices
    states, symbols, steps = 2, 2, draw.size(1, 3)
    first, move = draw.data("first", {"s": states}, 0.2, 0.8), draw.data("move", {"s": states, "dst": states}, 0.1, 0.9)
    emit = draw.data("emit", {"s": states, "o": symbols}, 0.1, 0.9)
    seen = Data("seen", ["t", "o"], [], [(t, (t * 7 + 3) % 5 % symbols) for t in range(steps + 1)])
    parts = []
    trans = "move"
    if choices.chance(50):
        parts.append(Part(
            "trans", "SELECT m.s, m.dst, exp(m.val) / z.val AS val FROM {move} AS m JOIN (SELECT q.s, SUM(exp(q.val)) "
            "AS val FROM {move} AS q GROUP BY q.s) AS z ON z.s = m.s", ["s", "dst"],
        ))  # fmt: skip
        trans = "trans"
    parts.append(Part(
        "alpha0", "SELECT f.s, f.val * e.val AS val FROM {first} AS f JOIN {emit} AS e ON e.s = f.s JOIN {seen} AS b "
        "ON b.o = e.o AND b.t = 0", ["s"],
    ))  # fmt: skip
    scaled = choices.chance(40)
    last = "alpha0"
    for step in range(1, steps + 1):
        parts.append(Part(
            f"sent{step}", f"SELECT x.dst AS s, SUM(a.val * x.val) AS val FROM {{{last}}} AS a JOIN {{{trans}}} AS x "
            "ON x.s = a.s GROUP BY x.dst", ["s"],
        ))  # fmt: skip
        parts.append(Part(
            f"alpha{step}", f"SELECT a.s, a.val * e.val AS val "
                            f"FROM {{sent{step}}} AS a JOIN {{emit}} AS e ON e.s = a.s "
            f"JOIN {{seen}} AS b ON b.o = e.o AND b.t = {step}", ["s"],
        ))  # fmt: skip
        last = f"alpha{step}"
        if scaled:
            parts.append(Part(
                f"scaled{step}", f"SELECT a.s, a.val / (SELECT SUM(q.val) FROM {{{last}}} AS q) AS val "
                                 f"FROM {{{last}}} AS a",
                ["s"],
            ))  # fmt: skip
            last = f"scaled{step}"
    loss = f"SELECT ln(SUM(a.val * (1 + a.s))) FROM {{{last}}} AS a"
    return Model("hidden states", [first, move, emit, seen], parts, loss, [*by(first, move, emit), *of(*parts)])


def portfolio(draw: Draw) -> Model:
    """What a mix of assets yields, and how it scatters."""
    choices = draw.choices
    assets, days = draw.size(2, 4), draw.size(3, 5)
    held, yields = draw.data("held", {"k": assets}), draw.data("yields", {"t": days, "k": assets}, -0.5, 0.6)
    share = choices.of([
        "SELECT h.k, exp(h.val) / (SELECT SUM(exp(q.val)) FROM {held} AS q) AS val FROM {held} AS h",
        "SELECT h.k, exp(h.val) / SUM(exp(h.val)) OVER () AS val FROM {held} AS h",
        "SELECT h.k, h.val * 0.5 AS val FROM {held} AS h",
    ])  # fmt: skip
    parts = [
        Part("share", share, ["k"]),
        Part("daily", "SELECT y.t, SUM(s.val * y.val) AS val "
                      "FROM {yields} AS y JOIN {share} AS s ON s.k = y.k GROUP BY y.t", ["t"]),
        Part("cov", "SELECT a.k, b.k AS j, covar_samp(a.val, b.val) AS val "
                    "FROM {yields} AS a JOIN {yields} AS b ON a.t = b.t GROUP BY a.k, b.k", ["k", "j"]),
    ]  # fmt: skip
    loss = choices.of([
        "SELECT AVG(d.val) / (0.1 + STDDEV(d.val)) FROM {daily} AS d",
        "SELECT SUM(a.val * b.val * c.val) - (SELECT AVG(d.val) FROM {daily} AS d) FROM {cov} AS c "
        "JOIN {share} AS a ON a.k = c.k JOIN {share} AS b ON b.k = c.j",
        "SELECT MIN(d.val) + VAR_SAMP(d.val) FROM {daily} AS d",
    ])  # fmt: skip
    return Model("portfolio", [held, yields], parts, loss, [*by(held, yields), *of(*parts[:2])])


MODELS: Sequence[Callable[[Draw], Model]] = [
    pagerank, stepping, network, heat, graph_convolution, hits, hidden_states, attention, factors, oscillators, mixture,
    portfolio, ranking, spline, gravity, smoothing,
]  # fmt: skip


def random_model(choices: Choices) -> Model:
    """One of the models, of random size."""
    return choices.of(MODELS)(Draw(choices))
