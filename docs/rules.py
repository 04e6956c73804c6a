"""Writes the page of all rules: ``python docs/rules.py > docs/rules.md``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import xql_ffi

INTRODUCTION = """\
# Rules

The derivative of every scalar function, operator and expression of DataFusion 54 that takes or returns a float, and of
the [special functions](missing-functions.md#special-functions) that a session has by `register(ctx, functions=True)`.
Aggregates and window functions are not here: their derivatives are formulas over many rows, and
[Relations](relations.md#what-derivatives-pass-through) lists them. `docs/rules.py` writes this page from the lines that
the calculus itself uses; `xql_ffi.rule_table()` gives them as a table.

- Partial derivatives are SQL over the inputs and `Ω`, the value of the function, which the query computes anyway.
- They hold in the domain. Elsewhere the derivative is what IEEE 754 makes of the formula, as is the function.
- A kink is a point where the function has no derivative, or one from one side only. `k` is any whole number.
- The derivative is NULL exactly where the function is.
- `constant(y)` holds where the query gives the input as a number; it is decided while the query is planned.
- An alias (`pow`, `ifnull`, `rand`, `list_max`, ...) is treated as the function it stands for.
- A function whose arguments do not depend on the variable is a constant, be it in this table or not.
- A function that only takes floats after they have been made strings or whole numbers, as `concat` does, is not here:
  the conversion is.
"""


def page() -> str:
    """The page in Markdown."""
    parts = [INTRODUCTION]
    lines = xql_ffi.rule_table().to_pylist()
    for family, members in groupby(lines, key=lambda line: str(line["family"])):
        parts.append(f"## {family[0].upper()}{family[1:]}\n")
        by_group: dict[str, list[dict[str, Any]]] = {}
        for line in members:
            by_group.setdefault(line["group"], []).append(line)
        if "differentiable" in by_group:
            parts.append(differentiable(by_group["differentiable"]))
        if "piecewise constant" in by_group:
            parts.append(piecewise_constant(by_group["piecewise constant"]))
        if "refused" in by_group:
            parts.append(refused(by_group["refused"]))
    return "\n".join(parts)


def differentiable(lines: list[dict[str, Any]]) -> str:
    """A table of partial derivatives, domains and kinks."""
    rows = [
        (
            code(line["signature"]),
            partials(line["inputs"], line["partials"]),
            "" if line["domain"] == "TRUE" else code(line["domain"]),
            "<br>".join(
                f"{code(kink['at'])}: {partials(line['inputs'], kink['partials'], ', ')} ({kink['why']})"
                for kink in line["kinks"]
            ),
        )
        for line in lines
    ]
    return table(("function", "derivative", "domain", "at kinks"), rows)


def piecewise_constant(lines: list[dict[str, Any]]) -> str:
    """A table of jumps."""
    rows = [
        (
            code(line["signature"]),
            "" if line["domain"] == "TRUE" else code(line["domain"]),
            "<br>".join(code(kink["at"]) for kink in line["kinks"]),
        )
        for line in lines
    ]
    return "Derivative 0, also at the jumps:\n\n" + table(("function", "domain", "jumps"), rows)


def refused(lines: list[dict[str, Any]]) -> str:
    """A table of reasons."""
    by_reason: dict[str, list[str]] = {}
    for line in lines:
        by_reason.setdefault(line["reason"], []).append(code(line["signature"]))
    rows = [(", ".join(signatures), reason) for reason, signatures in by_reason.items()]
    return "Refused, with the reason in the error:\n\n" + table(("function", "reason"), rows)


def partials(inputs: list[str], values: list[str], separator: str = "<br>") -> str:
    """The partial derivatives, each with its input unless there is only one."""
    if len(values) != len(inputs) or len(inputs) == 1:
        return separator.join(map(code, values))
    return separator.join(f"∂/∂{name} {code(value)}" for name, value in zip(inputs, values, strict=True))


def code(sql: str) -> str:
    """SQL in a cell of a table."""
    text = " ".join(sql.split()).replace("Infinity", "∞").replace("|", "\\|")
    return f"`{text}`"


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown, without the columns that are empty."""
    used = [number for number in range(len(heads)) if any(row[number] for row in rows)]
    body = [heads, tuple("---" for _ in heads), *rows]
    return "".join("| " + " | ".join(row[number] for number in used) + " |\n" for row in body)


if __name__ == "__main__":
    print(page(), end="")
