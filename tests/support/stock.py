"""What differs on the stock wheel of DataFusion 55, by the tests that see it."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from xql_ffi import _session

# Whether sessions differentiate by DataFusion's own extension points, not by the engine.
ON_STOCK = _session.is_supported()


def _xarray_context() -> Any:
    import xarray_sql

    return xarray_sql.XarrayContext()


# The sessions of xarray-sql, which needs DataFusion 54.
XARRAY: list[Callable[[], Any]] = [_xarray_context] if find_spec("xarray_sql") else []

_OUTER = "datafusion-proto 55 writes no reference to an outer query; what DataFusion has taken apart is a join by then"
_LATERAL = "DataFusion takes a LATERAL of a scalar subquery apart before a planner sees the statement"
_PROVIDER = "a table that takes the place of another looks like one that its catalog has made anew"
_SQRT = "sqrt of a negative number ends the query in DataFusion 55"
_FLOAT16 = "DataFusion 55 has no arithmetic of half and single precision together"
_EXPLAIN = "datafusion-proto 55 writes no EXPLAIN of statements that make tables or files"
_STRUCT = "DataFusion 55 takes the field of a struct that is made in place before anything is differentiated"
_UNREGISTERED = "a session of the stock wheel differentiates once it is registered"
_WORDS = "a function of another library refuses its arguments in other words"
_ENGINE = "there is no engine to be missing"
_PANIC = "array_repeat of DataFusion 55 refuses what it panicked of"
_HANDLES = "each mention of a function of another library is a function of its own"
_SELECT = "select_exprs of datafusion 55 returns a frame of its native module"
_PREPARED = "the types of a prepared statement are those that the statement itself has"
_SPACES = "datafusion-proto 55 reads no name of a table that begins with a space"
_PLAIN = "a statement without derivatives is planned without the library"
_ZERO = "-0 and 0 are equal to DataFusion 55"

# Parts of the names of tests, with $ for their end, and why they fail.
DIFFERENCES = {
    **dict.fromkeys(
        (
            f"by_row/test_contractions.py::test_plain_sums_are_computed_so_where_the_session_says_so[{name}]"
            for name in (
                "a product",
                "an average and a count beside it",
                "rows without a partner",
                "rows that fulfil a condition",
                "a product of a product",
                "a relation that is read twice",
                "a subquery",
                "names in quotes",
                "a training by hand",
                "three relations, in whatever order",
            )
        ),
        _PLAIN,
    ),
    "by_row/test_interactions.py::test_refused[SELECT SUM(q.val * q.val) FROM w AS q WHERE q.k > w.k": _OUTER,
    "by_row/test_interactions.py::test_refused[SELECT SUM(q.val * (SELECT SUM(o.val)": _OUTER,
    "by_row/test_interactions.py::test_refused[value4-LATERAL where": _OUTER,
    "test_a_table_that_is_replaced_under_a_view[shared-old]": _PROVIDER,
    "test_a_table_that_is_replaced_under_a_view[shared-t]": _PROVIDER,
    "test_a_table_that_is_replaced_under_a_view[written out-old]": _PROVIDER,
    "test_a_table_that_is_replaced_under_a_view[written out-t]": _PROVIDER,
    "by_row/test_which_relation.py::test_a_table_replaced_under_a_view": _PROVIDER,
    "calculus/test_rule_table.py::test_refused[get_field(struct(x)": _STRUCT,
    "calculus/test_rule_table.py::test_refused[named_struct": _STRUCT,
    "calculus/test_rule_table.py::test_refused[struct(x)": _STRUCT,
    "calculus/test_rules.py::test_edge[sqrt(x) at -1.0]": _SQRT,
    "calculus/test_rules.py::test_other_float_columns[Float16-ln(": _FLOAT16,
    "calculus/test_rules.py::test_other_float_columns[Float16-CASE": _FLOAT16,
    "calculus/test_rules.py::test_other_float_columns[Float16-log(2": _FLOAT16,
    "calculus/test_size.py::test_deep": _UNREGISTERED,
    "calculus/test_size.py::test_high_order": _UNREGISTERED,
    "calculus/test_size.py::test_long_sum$": _UNREGISTERED,
    "calculus/test_size.py::test_shared_parts": _UNREGISTERED,
    "calculus/test_structure.py::test_refused[named_struct": _STRUCT,
    "calculus/test_edges.py::test_edge[greatest(y, 0.0)--0.0-0.0]": _ZERO,
    "errors/test_expression.py::test_unsupported[struct]": _STRUCT,
    "errors/test_panic.py::test_it_says_what_has_happened": _PANIC,
    "errors/test_sessions.py::test_without_registration_the_message_says_what_to_do": _UNREGISTERED,
    "errors/test_without_engine.py::test_functions_of_expressions_say_it_at_once": _ENGINE,
    "errors/test_without_engine.py::test_functions_that_run_queries_say_it_at_once": _ENGINE,
    "errors/test_without_engine.py::test_messages_say_which_kind_they_are_of": _ENGINE,
    "errors/test_without_engine.py::test_missing": _ENGINE,
    "errors/test_without_engine.py::test_other_version": _ENGINE,
    "errors/test_without_engine.py::test_registering_warns_at_once": _ENGINE,
    "errors/test_without_engine.py::test_switched_off": _ENGINE,
    "errors/test_without_engine.py::test_the_rest_of_the_session_works": _ENGINE,
    "load/test_names.py::test_names_strings_and_comments[an insertion]": _SPACES,
    "plans/test_dataframe_api.py::test_aggregates_in_sessions_that_never_registered_them": _UNREGISTERED,
    "plans/test_dataframe_api.py::test_capsules_work_in_sessions_that_never_registered_them": _UNREGISTERED,
    "plans/test_dataframe_api.py::test_dataframe[select_exprs]": _SELECT,
    "plans/test_dml_ddl.py::test_dml_ddl[copy_a_query_to": _EXPLAIN,
    "plans/test_dml_ddl.py::test_dml_ddl[select_into]": _EXPLAIN,
    "plans/test_prepare.py::test_prepare[union_of_types]": _PREPARED,
    "plans/test_subqueries.py::test_subqueries[variable_of_the_outer_query_in": _OUTER,
    "python/test_progress.py::test_without_the_engine": _ENGINE,
    "relations/test_identity.py::test_another_reference[the_other_reference_in_the_query_around]": _OUTER,
    "relations/test_identity.py::test_another_reference[the_other_reference_of_the_query_around]": _OUTER,
    "relations/test_identity.py::test_another_reference[the_variable_inside_a_correlated_subquery]": _OUTER,
    "relations/test_identity.py::test_what_cannot_be_followed[lateral_that_varies]": _LATERAL,
    "relations/test_identity.py::test_what_cannot_be_followed[subquery_that_varies": _OUTER,
    "relations/test_sessions.py::test_expressions_see_through_relations_though_nothing": _UNREGISTERED,
    "relations/test_sessions.py::test_rules_are_added_once": _UNREGISTERED,
    "rules/test_derivatives.py::TestFunctions::test_need_not_be_registered": _UNREGISTERED,
    "rules/test_derivatives.py::TestFunctions::test_that_do_not_fit[arity]": _WORDS,
    "rules/test_derivatives.py::TestFunctions::test_that_do_not_fit[text]": _WORDS,
    "rules/test_derivatives.py::TestFunctions::test_that_do_not_fit[volatile]": _WORDS,
    "rules/test_derivatives.py::TestFunctions::test_take_and_give_another_type": _WORDS,
    "rules/test_derivatives.py::test_dataframe_api": _UNREGISTERED,
    "rules/test_derivatives.py::test_the_function_itself_is_evaluated_once": _HANDLES,
    "rules/test_lifetime.py::test_the_capsules_outlive_the_operator": _UNREGISTERED,
    "rules/test_lifetime.py::test_the_interpreter_ends[capsules_alone]": _UNREGISTERED,
}


def mark(items: list[pytest.Item]) -> None:
    """Marks the tests that fail on the stock wheel as such: one that passes is an error."""
    for item in items:
        for name, why in DIFFERENCES.items():
            if name in f"{item.nodeid}$":
                item.add_marker(pytest.mark.xfail(reason=why, strict=True))
