"""Queries after their CTEs."""

from collections.abc import Mapping


def with_ctes(query: str, ctes: Mapping[str, str], *, recursive: bool = False) -> str:
    """A query after the CTEs that it refers to."""
    if not ctes:
        return query
    listed = ", ".join(f"{name} AS ({text})" for name, text in ctes.items())
    return f"WITH {'RECURSIVE ' if recursive else ''}{listed} {query}"
