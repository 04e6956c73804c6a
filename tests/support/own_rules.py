"""The rules of the analyzer and the optimizer that every session of the engine has."""

OWN_RULES = ("differentiate_relations", "nullable_recursive_columns", "observe_recursion", "eliminate_stop_gradient")
