"""Which tests are daily, and which only `--all` runs, with the reason.

`dev.py test` and pytest run the daily tests: few enough for every change, and such that they catch nearly all of the
deliberate faults that all tests catch (`mutants/run.py` counts both). With `--all`, or where a test is named, all of
them run. A test that nothing here names is daily.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Sizes(NamedTuple):
    """How many are generated: daily and with `--all`, and both on the stock wheel of DataFusion 55."""

    daily: float
    all: float
    daily_on_stock: float
    all_on_stock: float


# By option of pytest.
SIZES = {
    "conformance": Sizes(170, 1000, 50, 300),
    "plans": Sizes(60, 300, 10, 100),
    "hostile": Sizes(20, 80, 20, 80),
    "sqllogictest": Sizes(1, 5, 1, 5),
    "load": Sizes(0.3, 1.0, 0.3, 1.0),
    "size": Sizes(1, 1, 1, 1),
}


@dataclass(frozen=True)
class Part:
    """Tests of which not all are daily: one of so many is, or none if that is 0."""

    # A regular expression: what the id of a test without the folder `tests` begins with.
    tests: str
    one_of: int
    why: str

    def has(self, test: str) -> bool:
        """Whether a test is among these."""
        return re.match(self.tests, test) is not None

    def takes(self, test: str) -> bool:
        """Whether a test of these is daily. It does not depend on which others there are."""
        return self.one_of > 0 and zlib.crc32(test.encode()) % self.one_of == 0


_NONE = 0
_AT_RANDOM = "statements at random: those that each run generates have most kinds, and all kinds take minutes"
_HOSTS = "of other databases, DuckDB is daily"
_SAMPLE = "many alike, of which each takes long"
_LONG = "it takes long, and what it judges is judged in small elsewhere"
_OF_DATAFUSION = "what DataFusion does by itself changes only with its version"
_PAGES = "long programs of pages, which change seldom"

# Of several that have a test, the first decides.
PARTS: Sequence[Part] = (
    Part(r"(by_row/test_random_gradients|relations/test_random_plans)\.py::test_every_kind", _NONE, _AT_RANDOM),
    Part(r"hosts/test_\w+\.py::.*duckdb", 1, "the host that is daily"),
    Part(r"hosts/", _NONE, _HOSTS),
    Part(r"text/test_(hosts|beside)\.py::.*(sqlite|polars)", 8, _HOSTS),
    Part(r"text/test_sqllogictest\.py", _NONE, _OF_DATAFUSION),
    Part(r"unharmed/test_api\.py::test_same_result", 8, _OF_DATAFUSION),
    Part(r"unharmed/test_doctests\.py", _NONE, _OF_DATAFUSION),
    Part(r"engine/test_datafusion\.py::test_it_does_what_the_stock_module_does", 4, _OF_DATAFUSION),
    Part(r"python/test_documentation\.py::test_the_page_is_typed", _NONE, _PAGES),
    Part(r"load/test_(size|sqllogictest|memory_pool|processes)\.py", _NONE, _LONG),
    Part(r"by_row/test_contractions\.py::test_gradients_are_those_of_joins", 6, _SAMPLE),
    Part(r"by_row/test_interactions_named\.py::test_against_differences", 6, _SAMPLE),
    Part(r"by_row/test_interactions_named\.py::test_a_constant_that_two_stages_read", 6, _SAMPLE),
    Part(r"by_row/test_interactions_named\.py::test_relations_of_one_text", 4, _SAMPLE),
    Part(r"by_row/test_interactions_named\.py::test_dropout\b", 3, _SAMPLE),
    Part(r"relations/test_windows_own_cell\.py::test_(whole_partitions|frames_that_move|second_order)", 3, _SAMPLE),
    Part(r"rules/test_lifetime\.py::test_capsules_give_back", _NONE, _LONG),
    Part(r"rules/test_lifetime\.py::test_memory_is_given_back", 3, _LONG),
    Part(r"by_row/test_checkpoints\.py::test_a_field_with_neighbours", _NONE, _LONG),
    Part(
        r"depth/test_named_models\.py::.*_all_tables\[(attention|convolution|hidden|neural|"
        r"normalised|ratings|vectors).*-several partitions\]",
        1,
        "those that JAX compiles soonest",
    ),
    Part(
        r"depth/test_named_models\.py::.*_one_table_\w+\[graph network, a recursion\]",
        1,
        "a recursion as a constant",
    ),
    Part(r"depth/test_named_models\.py", _NONE, _LONG),
    Part(r"examples/test_(assimilation|digits|gallery)\.py", _NONE, _PAGES),
    Part(r"python/test_documented_blocks\.py::test_the_notebook\b", _NONE, _PAGES),
    Part(r"python/test_objective\.py::test_(memory_is_flat|sampling_a_posterior)", _NONE, _LONG),
    Part(r"python/test_prepared\.py::test_a_network_of_many_tables", _NONE, _LONG),
    Part(r"python/test_prepared\.py::test_statements_give_what_they_give_one_by_one", 4, _SAMPLE),
    Part(r"python/test_solutions\.py::test_cells_beside_parameters", 1, "the host that the next ones have as well"),
    Part(r"python/test_solutions\.py::test_a_point_that_is_no_minimum", 3, _SAMPLE),
    Part(r"python/test_solutions\.py::(test_random_losses|.*(duckdb|by conjugate))", _NONE, _SAMPLE),
    Part(r"python/test_statistics\.py::test_as_statsmodels_has_it", 10, _SAMPLE),
    Part(r"python/test_verify_grad\.py::test_a_deep_expression", _NONE, _LONG),
    Part(r"python/test_watched_objectives\.py::test_under_scipy", 3, _SAMPLE),
)
_CALCULUS = "the calculus does not depend on the session"
_SAMPLED = "what a plan becomes is the same by row and by session: a sample shows that the session has it"
# What decides on the stock wheel of DataFusion 55 before these.
PARTS_ON_STOCK: Sequence[Part] = (
    Part(r"(calculus|rules)/", _NONE, _CALCULUS),
    Part(r"conformance/test_conformance\.py", 1, "a twentieth of the random statements"),
    Part(r"conformance/", _NONE, "it judges the judges"),
    Part(r"examples/", _NONE, _PAGES),
    Part(r"by_row/test_(models|random_gradients)\.py", 1, "a twentieth of the random statements"),
    Part(r"by_row/test_checkpoints\.py::test_random_recursive_plans", _NONE, _AT_RANDOM),
    Part(r"by_row/test_contractions\.py::test_gradients_are_those_of_joins", 24, _SAMPLED),
    Part(r"by_row/test_interactions_named\.py::test_against_differences", 24, _SAMPLED),
    Part(r"by_row/test_(relations_read_twice|which_relation)\.py", 1, "what is one relation depends on the session"),
    Part(r"by_row/", 4, _SAMPLED),
    Part(r"relations/", 4, _SAMPLED),
    Part(r"load/test_cancelled\.py", 1, "a session that ends in the middle"),
    Part(r"load/", _NONE, _LONG),
)


def size(option: str, *, everything: bool, on_stock: bool) -> float:
    """How many of an option are generated if it is not given."""
    return SIZES[option][everything + 2 * on_stock]


def is_daily(name: str, *, on_stock: bool) -> bool:
    """Whether a test of this id runs without `--all`."""
    test = name.removeprefix("tests/")
    parts = (part for part in (*(PARTS_ON_STOCK if on_stock else ()), *PARTS) if part.has(test))
    part = next(parts, None)
    return part is None or part.takes(test)
