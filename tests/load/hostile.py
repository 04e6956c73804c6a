"""Names, strings and comments that end too early what they are in, or look like something else."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

CANARY = "canary"
_PARTS = (
    '"', '""', "'", "''", "`", ";", "; DROP TABLE canary; --", "--", "-- ", "/*", "*/", "/* */", "$$", "$a$", "$1",
    '\\', "\\'", '\\"', "(", ")", "[", "]", "{", "}", ",", ".", ":", "::", "@", "#", " ", "\t", "\n", "\r", "%", "?",
    "=", "∂", "∂a/∂b", " #2", "∂row", "select", "from", "grad", "grad(", "stop_gradient", "vjp(x, x, 1)", "canary",
    "t.x", "x", "X", "E'", "U&'", "N'", "x'0a'", "é", "ß", "İ", "\u540d", "\U0001f600", "\u200b", "\u202e", "\ufeff",
    "́", "\x01", "\x7f", "1", "0x", "null", "unit", "row", "sum", "_", "\ue000",
)  # fmt: skip
# These are names that DataFusion or this library makes, or words of SQL.
_WHOLE = (
    "select", "from", "where", "order", "group", "table", "all", "case", "end", "null", "true", "default", "values",
    "user", "left", "natural", "lateral", "window", "qualify", "unnest", "grad", "jvp", "vjp", "stop_gradient",
    "dv_dx", "rows", "grad(t.x,t.x)", "∂v/∂x", "∂v/∂x #2", "count(*)", "*", "t.*", " ", "information_schema",
    "public", "datafusion", "current_date", "any", "\ue000",
)  # fmt: skip


def name(draw: random.Random) -> str:
    """Any name."""
    if draw.random() < 0.3:
        return draw.choice(_WHOLE)
    return "".join(draw.choice(_PARTS) for _ in range(draw.randint(1, 4)))


def names(draw: random.Random, count: int, taken: Collection[str] = ()) -> list[str]:
    """As many names, all different from one another and from those that are taken."""
    found: dict[str, None] = {}
    while len(found) < count:
        drawn = name(draw)
        # The last is a table of the sessions that no statement names.
        if drawn not in (*taken, CANARY):
            found[drawn] = None
    return list(found)


def quoted(identifier: str) -> str:
    """An identifier in SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def string(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"


def comment(draw: random.Random) -> str:
    """A comment, which is one until its end."""
    text = "".join(draw.choice(_PARTS) for _ in range(3))
    if draw.random() < 0.5:
        return "/* " + text.replace("*/", "").replace("/*", "") + " */"
    return "-- " + text.replace("\n", "").replace("\r", "") + "\n"


# What a statement reads and writes: t and u are tables, a, b, s, k columns of both, m and n are other names, p and q
# strings, c is a comment. A call is written {G}expression{V}variable{E}.
STATEMENTS: Mapping[str, str] = {
    "in the place of a call": "SELECT {k}, {G}{a} * {a} * {b}{V}{a}{E} AS {n} {c} FROM {t}",
    "without a name": "SELECT {k}, {G}{a} * {b}{V}{a}{E} {c} FROM {t}",
    "through a CTE": """
        WITH {m} AS (SELECT {k}, {a}, {a} * {b} AS {n} FROM {t}) {c} SELECT {k}, {G}{n} * {n}{V}{a}{E} AS {m}
        FROM {m}""",
    "through a derived table": """
        SELECT {m}.{k}, {G}{m}.{n} * {n}{V}{m}.{a}{E} {c} AS d FROM (SELECT *, {a} * {b} AS {n} FROM {t}) AS {m}""",
    "through a join": """
        SELECT {m}.{k}, {n}.{s}, {G}{m}.v * {n}.{b}{V}{m}.{a}{E} AS d
        FROM (SELECT {k}, {a}, {a} * {a} AS v FROM {t}) AS {m} JOIN {u} AS {n} {c} ON {m}.{k} = {n}.{k}""",
    "by row": "SELECT {k}, {c} {a} - {G}(SELECT SUM({a} * {a} * {b}) FROM {t}){V}{a}{E} AS {n} FROM {t}",
    "by row, of groups": """
        WITH {m} AS (SELECT {s}, SUM({a} * {b}) AS {n} FROM {t} GROUP BY {s}) {c}
        SELECT {k}, {G}(SELECT AVG({n} * {n}) FROM {m}){V}{a}{E} AS d FROM {t}""",
    "beside strings": """
        SELECT {k}, {p} AS {n}, {G}CASE WHEN {s} = {q} THEN {a} ELSE {a} * {b} END{V}{a}{E} AS {m}
        FROM {t} WHERE {s} <> {p}""",
    "strings below": """
        SELECT {k}, {G}v * v{V}{a}{E} AS d, {p} || v2 AS {m} {c}
        FROM (SELECT {k}, {a}, CASE WHEN {s} = {p} THEN {a} ELSE {a} * 2 END AS v, {q} AS v2 FROM {t}) AS {n}""",
    "an aggregate": """
        SELECT {s} AS {n}, SUM({G}v{V}{a}{E}) AS {m}
        FROM (SELECT {s}, {a}, {a} * {b} AS v FROM {t}) AS q {c} GROUP BY {s}""",
    "a window": """
        SELECT {k}, {J}v{V}{a}{F} AS {m}
        FROM (SELECT {k}, {a}, SUM({a} * {b}) OVER (PARTITION BY {s} {c} ORDER BY {k}) AS v FROM {t}) AS {n}""",
    "an insertion": """
        INSERT INTO {u} SELECT {k}, {s}, {G}v{V}{a}{E}, {b}
        FROM (SELECT *, {a} * {b} AS v FROM {t}) AS {n} {c}""",
    "an insertion in place": "INSERT INTO {u} ({k}, {a}) SELECT {k}, {G}{a} * {b}{V}{a}{E} {c} FROM {t}",
    "a table": "CREATE TABLE {m} AS SELECT {k} AS {n}, {G}{a} * {a}{V}{a}{E} {c} AS d, {p} AS e FROM {t}",
    "a table through relations": """
        CREATE TABLE {m} AS SELECT {k} AS {n}, {G}v{V}{a}{E} AS d {c}
        FROM (SELECT {k}, {a}, {a} * {a} AS v FROM {t}) AS q""",
    "a view": """
        CREATE VIEW {m} AS SELECT {k} AS {n}, {G}v{V}{a}{E} AS d {c}
        FROM (SELECT *, {a} * {a} AS v FROM {t}) AS q""",
}


_CALL = {"G": "grad(", "J": "jvp(", "V": ", ", "E": ")", "F": ", 1.0)"}
_NO_CALL = {"G": "(", "J": "(", "V": " + 0 * ", "E": ")", "F": ")"}


def statements(draw: random.Random, template: str, parts: Mapping[str, str]) -> tuple[str, str]:
    """A statement with names of tables and columns and others that are drawn; and the same without calls."""
    m, n = names(draw, 2, parts.values())
    given = {key: quoted(name) for key, name in parts.items()}
    drawn = {"m": quoted(m), "n": quoted(n), "p": string(name(draw)), "q": string(name(draw)), "c": comment(draw)}
    derived, plain = (template.format(**given, **drawn, **words) for words in (_CALL, _NO_CALL))
    return derived, plain
