//! Workarounds for aggregate and window functions without a formula.

const EXACT_MEDIAN: &str = "Write median(x), which is exact and has one";

const EXACT_QUANTILE: &str = "Write percentile_cont(p) WITHIN GROUP (ORDER BY x), which is exact and has one";

const WEIGHTED_QUANTILE: &str = "Take the least value up to which enough of the weight lies: MIN(x) FILTER (WHERE s >= p * total), with \
                                 SUM(weight) OVER (ORDER BY x) AS s and SUM(weight) OVER () AS total from a CTE";

const MODE: &str = "It is one value or another, and jumps between them. Write median(x) or AVG(x)";

const COLLECTED: &str = "Aggregate the values themselves, SUM(x), in place of what is collected";

/// For an aggregate of distinct values.
pub const DISTINCT_BEFORE: &str =
    "Take the distinct values in a subquery, FROM (SELECT DISTINCT ...), and aggregate these";

/// Returns advice for a function of this name.
pub fn way_without(function: &str) -> &'static str {
    match function {
        "approx_median" => EXACT_MEDIAN,
        "approx_percentile_cont" => EXACT_QUANTILE,
        "approx_percentile_cont_with_weight" => WEIGHTED_QUANTILE,
        "mode" => MODE,
        "array_agg" | "string_agg" => COLLECTED,
        _ => "Write it with SUM, AVG, MIN, MAX and the others that have one",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate_rules::formulas;
    use datafusion_common::Result;
    use datafusion_expr::WindowFunctionDefinition;

    #[test]
    fn what_is_advised_has_a_formula() -> Result<()> {
        for (name, advised) in [("approx_median", "median"), ("approx_percentile_cont", "percentile_cont")] {
            assert!(formulas::aggregate(name).is_ok(), "{name}");
            assert!(way_without(name).contains(advised));
            let advised = WindowFunctionDefinition::AggregateUDF(formulas::aggregate(advised)?);
            let arity = if name == "approx_median" { 1 } else { 2 };
            assert!(formulas::tangent_formula(&advised, arity)?.is_some());
        }
        Ok(())
    }
}
