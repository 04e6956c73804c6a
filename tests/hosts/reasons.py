"""What errors say, without what they say it of."""

from __future__ import annotations

import re


def reason(error: Exception) -> str:
    """The first sentence of an error, without names and numbers, by which like errors are counted together."""
    text = " ".join(str(error).split())
    text = re.sub(r"^(\w+(Error|Exception): |[\w ]*[Ee]rror: |[A-Z]\w+\(\")+", "", text)
    # What is refused, before the reason.
    text = re.sub(r"^\w+\(.*\): ", "", text)
    text = re.sub(_PREFIXES, "", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "...", text)
    while (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    text = re.sub(r"\b[a-z]+\w*\.\w+(, [a-z]+\w*\.\w+)*", "...", text)
    return re.split(r"(?<=[.;]) (?![a-z])|(?<=;) |(?<=:) ", text)[0][:120].rstrip(":;")


_PREFIXES = r"^(this cannot be written as SQL|the statement cannot be read as SQL) of \w+: |^Error during planning: "
