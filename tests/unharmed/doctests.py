"""Runs the examples in the documentation of the installed `datafusion` and prints how each ends, as JSON."""

import contextlib
import doctest
import importlib
import io
import json
import os
import pkgutil
import tempfile
from types import ModuleType


def _modules() -> list[ModuleType]:
    import datafusion

    found = [datafusion]
    for info in pkgutil.walk_packages(datafusion.__path__, "datafusion."):
        if "_internal" not in info.name:
            found.append(importlib.import_module(info.name))
    return found


class _Recorder(doctest.DocTestRunner):
    """Keeps the outcome of every example."""

    def __init__(self) -> None:
        super().__init__(verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        self.outcomes: dict[str, str] = {}

    def report_success(self, out: object, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self._keep(test, example, "passed")

    def report_failure(self, out: object, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self._keep(test, example, "failed")

    def report_unexpected_exception(
        self, out: object, test: doctest.DocTest, example: doctest.Example, exc_info: tuple[object, ...]
    ) -> None:
        self._keep(test, example, f"raised {getattr(exc_info[0], '__name__', exc_info[0])}")

    def _keep(self, test: doctest.DocTest, example: doctest.Example, outcome: str) -> None:
        self.outcomes[f"{test.name}:{example.lineno}"] = outcome


def main() -> dict[str, str]:
    import datafusion as dfn
    import numpy as np
    import pyarrow as pa
    from datafusion import col, lit
    from datafusion import functions as functions_

    from support.every_session import register_every_session

    register_every_session()
    names = {"dfn": dfn, "np": np, "pa": pa, "col": col, "lit": lit, "column": col, "literal": lit, "F": functions_}
    finder, recorder = doctest.DocTestFinder(), _Recorder()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        for module in _modules():
            for test in finder.find(module):
                test.globs.update(names)
                recorder.run(test)
        os.chdir("/")
    return recorder.outcomes


if __name__ == "__main__":
    print(json.dumps(main(), sort_keys=True))
