"""Shows the examples in docstrings as code in the reference: an extension of griffe, which reads the docstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts every example, from its first ``>>>`` to the next empty line, into a block of code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Looks at one function, class or module."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
