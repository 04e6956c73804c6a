//! What to write in place of an aggregate or window function that has no formula.

/// The rows that a quantile is computed from, with the fraction `p`: where it lies between two, as far as it is from each.
const QUANTILE: &str = "Compute a quantile, with p = 0.5 for the median, from the rows beside it: number them in a CTE, \
                        ROW_NUMBER() OVER (ORDER BY x) - 1 - p * (COUNT(x) OVER () - 1) AS d, and take SUM(x * (1 - abs(d))) FILTER \
                        (WHERE abs(d) < 1). To fit one, minimize the pinball loss AVG(greatest(p * e, (p - 1) * e)) of the errors e";

const COLLECTED: &str = "Aggregate the values themselves, SUM(x), in place of what is collected";

/// For an aggregate of distinct values.
pub const DISTINCT_BEFORE: &str =
    "Take the distinct values in a subquery, FROM (SELECT DISTINCT ...), and aggregate these";

/// What to write in place of a function of this name.
pub fn way_without(function: &str) -> &'static str {
    match function {
        "median"
        | "approx_median"
        | "percentile_cont"
        | "approx_percentile_cont"
        | "approx_percentile_cont_with_weight" => QUANTILE,
        "array_agg" | "string_agg" => COLLECTED,
        _ => "Write it with SUM, AVG, MIN, MAX and the others that have one",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::formulas;

    #[test]
    fn quantiles_are_datafusions_own_names() {
        let quantiles = [
            "median",
            "approx_median",
            "percentile_cont",
            "approx_percentile_cont",
            "approx_percentile_cont_with_weight",
        ];
        for name in quantiles {
            assert_eq!(way_without(name), QUANTILE);
            assert!(formulas::aggregate(name).is_ok(), "{name}");
        }
    }
}
