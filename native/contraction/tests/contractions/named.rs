//! Sums whose result is known, and what `EXPLAIN` shows of them.

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::common::{Result, assert_contains};
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use xql_contraction::Contractions;

use super::draw::Draw;
use super::session::{WAYS, contract, count, metric, plan_sql, session, show, sums, totals};

const PAIRS: &str = "SELECT a.g, b.h, SUM(a.v * b.v) AS total FROM a JOIN b ON a.k = b.k GROUP BY a.g, b.h";

/// Creates a table of rows.
async fn create(ctx: &SessionContext, table: &str, rows: &str) -> Result<()> {
    ctx.sql(&format!("CREATE TABLE {table} AS VALUES {rows}")).await?.collect().await?;
    Ok(())
}

/// Creates two tables of a key, a group and a value each.
async fn tables(a: &str, b: &str) -> Result<SessionContext> {
    with_keys("INT", a, b).await
}

/// Creates two such tables with keys of a type.
async fn with_keys(key: &str, a: &str, b: &str) -> Result<SessionContext> {
    let ctx = session(2);
    create(&ctx, &format!("a (k {key}, g VARCHAR, v DOUBLE)"), a).await?;
    create(&ctx, &format!("b (k {key}, h VARCHAR, v DOUBLE)"), b).await?;
    Ok(ctx)
}

/// Creates three tables: rows of `w` sample the product of `x` and `g`.
async fn three(x: &str, g: &str, w: &str) -> Result<SessionContext> {
    let ctx = session(2);
    create(&ctx, "x (p INT, s INT, v DOUBLE)", x).await?;
    create(&ctx, "g (s INT, q INT, v DOUBLE)", g).await?;
    create(&ctx, "w (p INT, q INT, row INT, v DOUBLE)", w).await?;
    Ok(ctx)
}

/// Returns a sum over `g` and pairs of rows of `x` and `w`, grouped by the rows of `w`.
fn sampled(sum: &str, join: &str) -> String {
    let pairs = "(SELECT x.s, w.q, w.row, x.v AS xv, w.v AS wv FROM x JOIN w ON x.p = w.p) AS j";
    let join = join.replace("pairs", pairs);
    format!("SELECT j.row, {sum} AS total FROM {join} ON g.s = j.s AND g.q = j.q GROUP BY j.row")
}

/// Returns the sums of a statement after checking that each mode contracts it and that all agree.
async fn all(ctx: &SessionContext, sql: &str) -> Result<Vec<(String, Option<f64>)>> {
    for way in WAYS {
        let plan = contract(&plan_sql(ctx, sql).await?, way)?;
        assert_eq!(count(&plan), 1, "{}", show(&plan));
    }
    each(ctx, sql).await
}

/// Returns the sums of a statement after checking that all modes agree.
async fn each(ctx: &SessionContext, sql: &str) -> Result<Vec<(String, Option<f64>)>> {
    let mut found = vec![];
    for way in WAYS {
        found.push(sums(contract(&plan_sql(ctx, sql).await?, way)?, ctx.task_ctx()).await?);
    }
    let text = |sums: &BTreeMap<_, _>| format!("{sums:?}");
    found.iter().for_each(|sums| assert_eq!(text(sums), text(&found[0])));
    Ok(found.swap_remove(0).into_iter().collect())
}

/// Returns expected sums by key.
fn expected<const N: usize>(sums: [(&str, Option<f64>); N]) -> Vec<(String, Option<f64>)> {
    sums.map(|(key, sum)| (key.to_owned(), sum)).into()
}

#[tokio::test]
async fn a_group_exists_without_a_sum() -> Result<()> {
    let ctx =
        tables("(1, 'x', NULL), (1, 'y', 2.0), (9, 'z', 1.0)", "(1, 'p', 3.0), (1, 'q', NULL), (8, 'r', 1.0)").await?;
    let found = all(&ctx, PAIRS).await?;
    let expected = [("x|p", None), ("x|q", None), ("y|p", Some(6.0)), ("y|q", None)];
    assert_eq!(found, expected.map(|(key, sum)| (key.to_owned(), sum)));
    Ok(())
}

/// Rows of one element are not added before they are multiplied with an infinity.
#[tokio::test]
async fn an_infinity_multiplies_each_row() -> Result<()> {
    let ctx = tables("(1, 'x', 'inf'), (2, 'x', 1.0)", "(1, 'p', 3.0), (1, 'p', -1.0), (2, 'p', 1.0)").await?;
    let found = all(&ctx, PAIRS).await?;
    assert!(matches!(found.as_slice(), [(key, Some(sum))] if key == "x|p" && sum.is_nan()), "{found:?}");
    Ok(())
}

#[tokio::test]
async fn an_infinity_multiplies_no_missing_row() -> Result<()> {
    let ctx =
        tables("(1, 'x', 'Infinity'), (2, 'x', 2.0)", "(1, 'p', 1.0), (2, 'p', 1.0), (2, 'q', 5.0), (1, 'r', 0.0)")
            .await?;
    let found = all(&ctx, PAIRS).await?;
    let shown: Vec<_> = found.iter().map(|(key, sum)| format!("{key} {}", sum.unwrap_or(-1.0))).collect();
    assert_eq!(shown, ["x|p inf", "x|q 10", "x|r NaN"]);
    Ok(())
}

/// A value that is not finite may be in either factor, beside missing rows.
#[tokio::test]
async fn an_infinity_of_either_input_multiplies_no_missing_row() -> Result<()> {
    let (infinite, finite) = ("(1, 'p', 'inf'), (2, 'p', 3.0)", "(1, 'p', 1.0), (2, 'q', 2.0)");
    for [a, b] in [[infinite, finite], [finite, infinite]] {
        let found = all(&tables(a, b).await?, PAIRS).await?;
        let found: Vec<_> = found.into_iter().map(|(_, sum)| sum).collect();
        assert_eq!(found, [Some(f64::INFINITY), Some(6.0)]);
    }
    Ok(())
}

/// Products are not added before they are multiplied with an infinite sampling factor.
#[tokio::test]
async fn an_infinite_factor_multiplies_each_product_that_it_samples() -> Result<()> {
    let ctx = three(
        "(0, 0, 2.0), (0, 1, -1.0), (1, 0, 1.0), (1, 1, 1.0)",
        "(0, 0, 1.0), (1, 0, 1.0)",
        "(0, 0, 1, 'inf'), (1, 0, 2, 'inf'), (1, 0, 3, 3.0)",
    )
    .await?;
    let found = all(&ctx, &sampled("SUM(g.v * j.xv * j.wv)", "g JOIN pairs")).await?;
    let shown: Vec<_> = found.iter().map(|(key, sum)| format!("{key} {}", sum.unwrap_or(-1.0))).collect();
    assert_eq!(shown, ["1 NaN", "2 inf", "3 6"]);
    Ok(())
}

#[tokio::test]
async fn keys_that_differ_by_powers_of_two_are_distinct() -> Result<()> {
    let ctx =
        with_keys("BIGINT", "(1, 'x', 1.0), (4294967297, 'x', 10.0)", "(1, 'p', 2.0), (4294967297, 'q', 3.0)").await?;
    assert_eq!(all(&ctx, PAIRS).await?, expected([("x|p", Some(2.0)), ("x|q", Some(30.0))]));
    let sql = PAIRS.replace("a.g, b.h", "a.k, b.h");
    assert_eq!(all(&ctx, &sql).await?, expected([("1|p", Some(2.0)), ("4294967297|q", Some(30.0))]));
    Ok(())
}

/// DataFusion's versions disagree on which of these keys are equal, so DataFusion's own join decides.
#[tokio::test]
async fn keys_of_disputed_equality_fall_back() -> Result<()> {
    for keys in [["'NaN'", "-'NaN'::DOUBLE"], ["0.0", "-0.0"]] {
        let [a, b] = [["'x'", "'y'"], ["'p'", "'q'"]].map(|groups| {
            format!("({}, {}, 2.0), ({}, {}, 3.0), (1.0, 'z', 5.0)", keys[0], groups[0], keys[1], groups[1])
        });
        let ctx = with_keys("DOUBLE", &a, &b).await?;
        let expected = sums(plan_sql(&ctx, PAIRS).await?, ctx.task_ctx()).await?;
        assert_eq!(expected["z|z"], Some(25.0));
        for way in WAYS {
            let plan = contract(&plan_sql(&ctx, PAIRS).await?, way)?;
            assert_eq!(sums(Arc::clone(&plan), ctx.task_ctx()).await?, expected, "{way}");
            assert_eq!(metric(&plan, "fallback"), Some(1), "{way}: {a}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn keys_that_are_null_are_groups_and_join_nothing() -> Result<()> {
    let ctx = tables("(NULL, 'x', 1.0), (1, NULL, 2.0)", "(NULL, 'p', 3.0), (1, NULL, 4.0)").await?;
    assert_eq!(all(&ctx, PAIRS).await?, [("NULL|NULL".to_owned(), Some(8.0))]);
    let null_safe = PAIRS.replace("a.k = b.k", "a.k IS NOT DISTINCT FROM b.k");
    let expected = [("NULL|NULL".to_owned(), Some(8.0)), ("x|p".to_owned(), Some(3.0))];
    assert_eq!(all(&ctx, &null_safe).await?, expected);
    Ok(())
}

#[tokio::test]
async fn no_rows_have_no_sums() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0)", "(2, 'p', 3.0)").await?;
    assert_eq!(all(&ctx, PAIRS).await?, []);
    let ctx = tables("(1, 'x', 1.0)", "(1, 'p', 3.0)").await?;
    let sql = PAIRS.replace("FROM a JOIN b", "FROM (SELECT * FROM a WHERE v > 5) AS a JOIN b");
    assert_eq!(all(&ctx, &sql).await?, []);
    Ok(())
}

/// Other aggregations and joins stay as DataFusion plans them.
#[tokio::test]
async fn other_sums_are_not_contracted() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0)", "(1, 'p', 3.0)").await?;
    for sql in [
        PAIRS.replace("a.v * b.v", "a.v / (a.v + b.v)"),
        PAIRS.replace("SUM(a.v * b.v)", "MAX(a.v * b.v)"),
        PAIRS.replace("SUM(a.v * b.v)", "COUNT(*)"),
        PAIRS.replace("SUM(a.v * b.v)", "SUM(a.v * b.v), MAX(a.v)"),
        PAIRS.replace("SUM(a.v * b.v)", "SUM(DISTINCT a.v * b.v)"),
        PAIRS.replace("SUM(a.v * b.v)", "AVG(DISTINCT a.v * b.v)"),
        PAIRS.replace("SUM(a.v * b.v)", "SUM(a.k * b.k)"),
        PAIRS.replace("a.v * b.v", "CASE WHEN a.v < b.v THEN a.v * b.v END"),
        PAIRS.replace("a.v * b.v", "CASE WHEN a.v > 0 THEN a.v * b.v ELSE 1 END"),
        PAIRS.replace("a.v * b.v", "a.v * random() * b.v"),
        PAIRS.replace("a.g, b.h", "a.k + random()"),
        PAIRS.replace("a.k = b.k", "a.k = b.k AND a.v < b.v"),
        PAIRS.replace("a JOIN b", "a FULL JOIN b"),
        PAIRS.replace("a JOIN b", "a LEFT JOIN b").replace("a.k = b.k", "a.k = b.k AND a.v < b.v"),
        "SELECT SUM(a.v * b.v) AS total FROM a JOIN b ON a.k = b.k".to_owned(),
        "SELECT a.g || b.h AS gh, SUM(a.v * b.v) AS total FROM a JOIN b ON a.k = b.k GROUP BY a.g || b.h".to_owned(),
        "SELECT a.g, SUM(a.v) AS total FROM a GROUP BY a.g".to_owned(),
    ] {
        let plan = contract(&plan_sql(&ctx, &sql).await?, Contractions::On)?;
        assert_eq!(count(&plan), 0, "{sql}\n{}", show(&plan));
    }
    let plan = plan_sql(&ctx, PAIRS).await?;
    assert_eq!(show(&contract(&plan, Contractions::Off)?), show(&plan));
    Ok(())
}

/// A random value is draw_case for each row of a join, so it is no key of an input.
#[tokio::test]
async fn a_volatile_expression_is_no_key() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0)", "(1, 'p', 3.0)").await?;
    let sql = "SELECT a.g, SUM(a.v * j.v * j.u) AS total
               FROM a JOIN (SELECT b.k AS k, b.v, c.v AS u FROM b JOIN a c ON b.k = c.k) j ON a.k = j.k GROUP BY a.g";
    for (key, is_seen_through) in [("b.k", true), ("b.k + CAST(random() AS INT)", false)] {
        let plan =
            contract(&plan_sql(&ctx, &sql.replace("b.k AS k", &format!("{key} AS k"))).await?, Contractions::On)?;
        assert_eq!(count(&plan), 1, "{}", show(&plan));
        assert_eq!(show(&plan).contains(" of 2"), is_seen_through, "{}", show(&plan));
    }
    Ok(())
}

/// A sum of products is NULL where one of them is, and a group exists without a sum.
#[tokio::test]
async fn groups_have_sums_counts_and_averages() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (2, 'x', NULL), (2, 'y', NULL)", "(1, 'p', 3.0), (2, 'p', 4.0)").await?;
    let aggregates =
        "SUM(a.v * b.v + b.v) AS total0, COUNT(a.g) AS total1, COUNT(a.v) AS total2, AVG(b.v - a.v) AS total3";
    let sql = PAIRS.replace("SUM(a.v * b.v) AS total", aggregates);
    let expected = BTreeMap::from([
        ("x|p".to_owned(), vec![Some(6.0), Some(2.0), Some(1.0), Some(2.0)]),
        ("y|p".to_owned(), vec![None, Some(1.0), Some(0.0), None]),
    ]);
    for way in WAYS {
        let plan = contract(&plan_sql(&ctx, &sql).await?, way)?;
        assert_eq!(count(&plan), 1, "{}", show(&plan));
        assert_eq!(totals(plan, ctx.task_ctx()).await?, expected, "{way}");
    }
    Ok(())
}

#[tokio::test]
async fn explain_shows_terms_and_kernel() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (2, 'x', 2.0)", "(1, 'p', 3.0), (2, 'p', 4.0)").await?;
    let plan = contract(&plan_sql(&ctx, PAIRS).await?, Contractions::Dense)?;
    assert_contains!(
        show(&plan),
        "ContractionExec: by=[g@1 of 0, h@1 of 1], on=[k@0 of 0 = k@0 of 1], sum=[v@2 of 0 * v@2 of 1]"
    );
    sums(Arc::clone(&plan), ctx.task_ctx()).await?;
    for (name, value) in [("dense", 1), ("pairs", 2), ("density", 100)] {
        assert_eq!(metric(&plan, name), Some(value), "{name}");
    }
    let plan = contract(&plan_sql(&ctx, PAIRS).await?, Contractions::Fallback)?;
    sums(Arc::clone(&plan), ctx.task_ctx()).await?;
    assert_eq!((metric(&plan, "fallback"), metric(&plan, "dense")), (Some(1), None));
    Ok(())
}

#[tokio::test]
async fn a_factor_reads_what_its_input_has_computed() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (2, 'x', 0.5)", "(1, 'p', 3.0), (2, 'p', 4.0)").await?;
    let sql = "SELECT a.g, b.h, SUM(a.t * (1 - tanh(a.v) * tanh(a.v)) * b.v) AS total
        FROM (SELECT k, g, v, tanh(v) AS t FROM a) a JOIN b ON a.k = b.k GROUP BY a.g, b.h";
    let plan = contract(&plan_sql(&ctx, sql).await?, Contractions::On)?;
    assert_contains!(show(&plan), "sum=[t@3 * (1 - t@3 * t@3) of 0 * v@2 of 1]");
    let of = |v: f64, w: f64| v.tanh() * (1.0 - v.tanh() * v.tanh()) * w;
    let found = all(&ctx, sql).await?;
    let expected = of(1.0, 3.0) + of(0.5, 4.0);
    assert!(matches!(found.as_slice(), [(_, Some(sum))] if (sum - expected).abs() < 1e-14), "{found:?}");
    // The input computes it from another column of the same index and name.
    let sql = "SELECT a.g, b.h, SUM((a.t + tanh(a.v)) * b.v) AS total
        FROM (SELECT k, g, v / 2 AS v, tanh(v) AS t FROM a) a JOIN b ON a.k = b.k GROUP BY a.g, b.h";
    let found = all(&ctx, sql).await?;
    let of = |v: f64, w: f64| (v.tanh() + (v / 2.0).tanh()) * w;
    let expected = of(1.0, 3.0) + of(0.5, 4.0);
    assert!(matches!(found.as_slice(), [(_, Some(sum))] if (sum - expected).abs() < 1e-14), "{found:?}");
    Ok(())
}

/// A missing row has no computed column either.
#[tokio::test]
async fn a_missing_row_has_no_computed_columns() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (2, 'x', 0.5)", "(1, 'p', NULL), (1, 'p', 4.0)").await?;
    let sql = "SELECT a.g, b.h, SUM(a.v * COALESCE(b.v, 5.0) * COALESCE(b.c, 2.0)) AS total
        FROM a LEFT JOIN (SELECT k, h, v, COALESCE(v, 5.0) AS c FROM b) b ON a.k = b.k GROUP BY a.g, b.h";
    let found = all(&ctx, sql).await?;
    let expected = [("x|NULL", 0.5 * 5.0 * 2.0), ("x|p", 25.0 + 16.0)];
    assert_eq!(found, expected.map(|(key, sum)| (key.to_owned(), Some(sum))));
    Ok(())
}

/// An outer join keeps a row without a match, whether its key is NULL or no row has it.
#[tokio::test]
async fn an_outer_join_keeps_rows_that_sample_nothing() -> Result<()> {
    let many: String = (0..20).map(|row| format!(", ({row}, 9, 1.0)")).collect();
    for more in ["", &many] {
        let g = format!("(0, 0, 2.0){more}");
        let ctx = three("(0, 0, 3.0)", &g, "(0, 0, 1, 1.0), (0, NULL, 2, 1.0), (0, 5, 3, 1.0), (4, 0, 4, 1.0)").await?;
        for join in ["g RIGHT JOIN pairs", "pairs LEFT JOIN g"] {
            let found = all(&ctx, &sampled("SUM(g.v * j.xv)", join)).await?;
            assert_eq!(found, expected([("1", Some(6.0)), ("2", None), ("3", None)]), "{join}");
            // An expression may map the NULLs of a missing row to a value.
            let found = each(&ctx, &sampled("SUM(COALESCE(g.v, 5.0) * j.xv)", join)).await?;
            assert_eq!(found, expected([("1", Some(6.0)), ("2", Some(15.0)), ("3", Some(15.0))]), "{join}");
        }
    }
    Ok(())
}

/// A row whose matches do not satisfy the condition of an outer join stays, with NULLs.
#[tokio::test]
async fn the_condition_of_an_outer_join_is_none_of_its_groups() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (1, 'a', 2.0)", "(1, 'p', 3.0)").await?;
    let sql = PAIRS.replace("a JOIN b", "a LEFT JOIN b").replace("a.k = b.k", "a.k = b.k AND a.g < b.h");
    assert_eq!(each(&ctx, &sql).await?, expected([("a|p", Some(6.0)), ("x|NULL", None)]));
    Ok(())
}

/// Several distinct aggregates, which DataFusion does not plan as nested aggregations.
#[tokio::test]
async fn equal_values_are_added_once_where_they_are_to_be_distinct() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (1, 'x', 3.0), (2, 'x', 3.0)", "(1, 'p', 2.0), (2, 'p', 2.0)").await?;
    let both = "SUM(DISTINCT a.v * b.v) AS total0, AVG(a.v) AS total1";
    let of_pairs = PAIRS.replace("SUM(a.v * b.v) AS total", both);
    let by_number = "SELECT k, SUM(DISTINCT v) AS total0, SUM(DISTINCT -v) AS total1 FROM
        (SELECT k, v FROM a UNION ALL SELECT k, v FROM b UNION ALL SELECT k, v FROM b) GROUP BY k";
    for (sql, expected) in [
        (of_pairs.as_str(), vec![("x|p", [8.0, 7.0 / 3.0])]),
        (by_number, vec![("1", [6.0, -6.0]), ("2", [5.0, -5.0])]),
    ] {
        let expected = expected.into_iter().map(|(key, values)| (key.to_owned(), values.map(Some).to_vec()));
        let expected: BTreeMap<_, _> = expected.collect();
        for way in WAYS {
            let plan = contract(&plan_sql(&ctx, sql).await?, way)?;
            assert_eq!(totals(plan, ctx.task_ctx()).await?, expected, "{way}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_sum_by_numbers_is_over_the_rows_of_its_condition() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (1, 'y', 2.0), (2, 'x', 4.0)", "(1, 'p', 1.0)").await?;
    let found = each(&ctx, "SELECT k, SUM(v) FILTER (WHERE g = 'y') AS total FROM a GROUP BY k").await?;
    assert_eq!(found, expected([("1", Some(2.0)), ("2", None)]));
    Ok(())
}

/// Creates a table of shuffled rows in random partitions.
fn shuffled(ctx: &SessionContext, name: &str, rows: &mut [(i64, i64, f64)], draw: &mut Draw) -> Result<()> {
    for last in (1..rows.len()).rev() {
        rows.swap(last, draw.below(last + 1));
    }
    let column =
        |of: fn(&(i64, i64, f64)) -> i64| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<Int64Array>()) };
    let values: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>());
    let batch = RecordBatch::try_from_iter([("k", column(|row| row.0)), ("g", column(|row| row.1)), ("v", values)])?;
    let half = rows.len() / 2;
    let partitions = vec![vec![batch.slice(0, half)], vec![batch.slice(half, rows.len() - half)]];
    ctx.deregister_table(name)?;
    ctx.register_table(name, Arc::new(MemTable::try_new(batch.schema(), partitions)?))?;
    Ok(())
}

#[tokio::test]
async fn sums_are_the_same_to_the_last_bit_in_whatever_order_rows_come() -> Result<()> {
    let mut draw = Draw::from_env();
    let mut row = |keys, groups| (draw.below(keys) as i64, draw.below(groups) as i64, draw.unit() - 0.5);
    let mut a: Vec<_> = (0..2000).map(|_| row(30, 20)).collect();
    let mut b: Vec<_> = (0..1000).map(|_| row(30, 15)).collect();
    let sql = "SELECT a.g, b.g AS h, SUM(a.v * b.v) AS total FROM a JOIN b ON a.k = b.k GROUP BY a.g, b.g";
    for way in [Contractions::Dense, Contractions::Sparse] {
        let mut found = vec![];
        for _ in 0..3 {
            let ctx = session(2);
            shuffled(&ctx, "a", &mut a, &mut draw)?;
            shuffled(&ctx, "b", &mut b, &mut draw)?;
            let plan = contract(&plan_sql(&ctx, sql).await?, way)?;
            assert_eq!(count(&plan), 1);
            let sums = sums(plan, ctx.task_ctx()).await?;
            assert_eq!(sums.len(), 300);
            found.push(sums.into_iter().map(|(key, sum)| (key, sum.map(f64::to_bits))).collect::<Vec<_>>());
        }
        assert!(found[0] == found[1] && found[1] == found[2], "{way}");
    }
    Ok(())
}

/// Executes a plan with limited memory.
async fn with_memory(ctx: &SessionContext, bytes: usize) -> Result<(usize, Option<usize>, Arc<dyn MemoryPool>)> {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
    let context = TaskContext::default().with_runtime(runtime).with_session_config(SessionConfig::new());
    let sql = "SELECT a.g, b.g AS h, SUM(a.v * b.v) AS total FROM a JOIN b ON a.k = b.k GROUP BY a.g, b.g";
    let plan = contract(&plan_sql(ctx, sql).await?, Contractions::On)?;
    let sums = sums(Arc::clone(&plan), Arc::new(context)).await?;
    Ok((sums.len(), metric(&plan, "fallback"), pool))
}

/// Without memory for matrices the fallback plan takes over, however far reading or computing has come, and no row is lost.
#[tokio::test]
async fn the_fallback_takes_over_when_memory_runs_out() -> Result<()> {
    let ctx = session(2);
    let mut draw = Draw::from_env();
    let mut row = |keys, groups| (draw.below(keys) as i64, draw.below(groups) as i64, draw.unit());
    let mut a: Vec<_> = (0..20_000).map(|_| row(50, 20)).collect();
    let mut b: Vec<_> = (0..500).map(|_| row(50, 15)).collect();
    shuffled(&ctx, "a", &mut a, &mut draw)?;
    shuffled(&ctx, "b", &mut b, &mut draw)?;
    let mut seen = vec![];
    for bytes in [400_000, 700_000, 1_200_000, 1_900_000, 2_300_000, 100_000_000] {
        let (rows, fallback, pool) = with_memory(&ctx, bytes).await?;
        assert_eq!(rows, 300, "{bytes}");
        assert_eq!(pool.reserved(), 0, "{bytes}");
        seen.push(fallback.is_some());
    }
    assert!(seen[0] && !seen[5], "{seen:?}");
    let error = with_memory(&ctx, 1000).await.map(|_| ()).expect_err("nor has DataFusion memory").to_string();
    assert_contains!(error, "Resources exhausted");
    Ok(())
}

#[tokio::test]
async fn a_reset_plan_is_computed_again() -> Result<()> {
    let ctx = tables("(1, 'x', 1.0), (2, 'x', 2.0)", "(1, 'p', 3.0), (2, 'p', 4.0)").await?;
    for way in WAYS {
        let plan = contract(&plan_sql(&ctx, PAIRS).await?, way)?;
        for _ in 0..2 {
            let found = sums(reset_plan_states(Arc::clone(&plan))?, ctx.task_ctx()).await?;
            assert_eq!(found, BTreeMap::from([("x|p".to_owned(), Some(11.0))]));
        }
    }
    Ok(())
}

/// Creates a table in which each number comes twice in a row.
fn create_numbered(ctx: &SessionContext, rows: i64) -> Result<()> {
    let number: ArrayRef = Arc::new((0..rows).map(|row| row / 2).collect::<Int64Array>());
    let u: ArrayRef = Arc::new((0..rows).map(|row| (row % 3 > 0).then_some(row as f64)).collect::<Float64Array>());
    let v: ArrayRef = Arc::new((0..rows).map(|row| -(row as f64)).collect::<Float64Array>());
    let batch = RecordBatch::try_from_iter_with_nullable([("n", number, true), ("u", u, true), ("v", v, true)])?;
    let parts = (0..4).map(|part| vec![batch.slice(part * rows as usize / 4, rows as usize / 4)]).collect();
    ctx.register_table("a", Arc::new(MemTable::try_new(batch.schema(), parts)?))?;
    Ok(())
}

#[tokio::test]
async fn several_columns_are_summed_by_a_number() -> Result<()> {
    let ctx = session(3);
    create_numbered(&ctx, 4000)?;
    // The sums of these doubles are exact, so they can be compared.
    let found = all(&ctx, "SELECT n, SUM(u) AS u, SUM(v) AS v FROM a GROUP BY n").await?;
    assert_eq!(found.len(), 2000);
    let expected = |n: i64| {
        let rows = [2 * n, 2 * n + 1];
        let u = rows.iter().filter(|row| **row % 3 > 0).map(|row| *row as f64).sum::<f64>();
        (format!("{n}|{u:?}"), Some(-(rows[0] + rows[1]) as f64))
    };
    let mut expected: Vec<_> = (0..2000).map(expected).collect();
    expected.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert_eq!(found, expected);
    Ok(())
}

/// Consecutive keys, some without a value. The value under a NULL does not count.
#[tokio::test]
async fn consecutive_keys_without_a_value_add_nothing() -> Result<()> {
    let ctx = session(1);
    let batch = |known: [bool; 3]| {
        let values = Float64Array::new(vec![1.0, 2.0, 4.0].into(), Some(known.to_vec().into()));
        let columns: [(_, ArrayRef, _); 2] =
            [("n", Arc::new(Int64Array::from_iter_values(0..3)), true), ("v", Arc::new(values), true)];
        RecordBatch::try_from_iter_with_nullable(columns)
    };
    let batches = vec![batch([false, true, false])?, batch([false, false, true])?];
    ctx.register_table("a", Arc::new(MemTable::try_new(batches[0].schema(), vec![batches])?))?;
    let found = all(&ctx, "SELECT n, SUM(v) AS total FROM a GROUP BY n").await?;
    assert_eq!(found, expected([("0", None), ("1", Some(2.0)), ("2", Some(4.0))]));
    Ok(())
}

#[tokio::test]
async fn an_integer_key_aggregate_falls_back_with_the_sums_so_far() -> Result<()> {
    let sql = "SELECT n, SUM(v) AS v FROM a GROUP BY n";
    let mut ways = vec![];
    for bytes in [60_000, 250_000, 1_000_000] {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
        let config = SessionConfig::new().with_target_partitions(1).with_batch_size(64);
        let ctx = SessionContext::new_with_config_rt(config, runtime);
        create_numbered(&ctx, 40_000)?;
        let plan = contract(&plan_sql(&ctx, sql).await?, Contractions::On)?;
        // DataFusion's aggregation itself needs more than the smallest limit.
        let found = sums(Arc::clone(&plan), ctx.task_ctx()).await;
        ways.push(metric(&plan, "fallback").unwrap_or_default());
        match found {
            Ok(found) => assert_eq!(found["19999"], Some(-(39_998.0 + 39_999.0))),
            Err(error) => assert!(error.to_string().contains("Resources exhausted"), "{error}"),
        }
        drop(plan);
        // Tasks that an error has ended return their memory when they are polled for the last time.
        for _ in 0..1000 {
            if pool.reserved() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert_eq!(pool.reserved(), 0);
    }
    assert_eq!(ways, [1, 1, 0]);
    Ok(())
}
