//! Plans that are sent to other processes: through `datafusion-proto`, logical and physical, to a session that has neither the
//! operators nor the rules.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_proto::bytes::{
    logical_plan_from_bytes, logical_plan_to_bytes, physical_plan_from_bytes, physical_plan_to_bytes,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};
use xql_relations::{SharedRelation, SharedScanExec};

use crate::session::{floats, registered};

/// What is sent of a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sends {
    Both,
    /// The logical plan alone: DataFusion 54 sends no physical plan of a recursive query, with derivatives or without.
    Logical,
    /// The physical plan alone: DataFusion 54 sends an empty relation without its columns, with derivatives or without.
    Physical,
}

/// Every kind of node that a derivative goes through.
const LOCAL: &[(&str, Sends)] = &[
    ("SELECT id, grad(sin(x) * y, x) AS d, vjp(tanh(x * y), y, 2.0) AS v FROM d ORDER BY id", Sends::Both),
    ("SELECT id, jvp(exp(x * y), x, 1.0, y, x) AS d FROM d WHERE grad(x * x, x) > 0 ORDER BY id", Sends::Both),
    ("SELECT id, grad(x * stop_gradient(x), x) AS d, grad(coalesce(z, x) * x, x) AS c FROM d ORDER BY id", Sends::Both),
    ("SELECT id, grad(CASE WHEN x > 0 THEN x * x ELSE abs(y) END, x) AS d FROM d ORDER BY id", Sends::Both),
    // A stack of projections.
    (
        "SELECT id, grad(sin(exp(x * y)), x), grad(sin(exp(x * y)), y), grad(exp(exp(x * y) * x), x) AS d FROM d ORDER BY id",
        Sends::Both,
    ),
    // CTEs, joins, aggregates.
    (
        "WITH m AS (SELECT y, w, w * x + b AS pred FROM d CROSS JOIN p)
         SELECT AVG(grad(power(pred - y, 2), w)) AS d FROM m",
        Sends::Both,
    ),
    ("SELECT w, grad(AVG(power(w * x - y, 2)), w) AS d FROM d CROSS JOIN p GROUP BY w ORDER BY w", Sends::Both),
    (
        "SELECT w, grad(MAX(w * x), w) AS a, grad(stddev(w * x), w) AS s, grad(regr_slope(y, w * x), w) AS d
         FROM d CROSS JOIN p GROUP BY w ORDER BY w",
        Sends::Both,
    ),
    ("SELECT g, w, grad(SUM(w * x), w) AS d FROM d CROSS JOIN p GROUP BY ROLLUP (g, w) ORDER BY g, w", Sends::Both),
    ("SELECT g, w, grad(SUM(w * x), w) AS d FROM d CROSS JOIN p GROUP BY GROUPING SETS ((g, w), (w)) ORDER BY g, w", Sends::Both),
    (
        "WITH m AS (SELECT d.id, w, w * x AS q FROM d LEFT JOIN p ON d.x < p.w) SELECT id, w, grad(q * q, w) AS d FROM m ORDER BY id, w",
        Sends::Both,
    ),
    (
        "WITH m AS (SELECT d.id, x * x AS q, p.w, x FROM d FULL JOIN p ON d.id = p.k) SELECT id, grad(q * w, x) AS d FROM m ORDER BY id",
        Sends::Both,
    ),
    ("SELECT q, grad(q * q, x) AS d FROM (SELECT x, 2 * x AS q FROM d WHERE id IN (SELECT k FROM p)) ORDER BY q", Sends::Both),
    (
        "WITH u AS (SELECT x, x * x AS q FROM d UNION ALL SELECT x, 3 * x FROM d) SELECT q, grad(q * q, x) AS d FROM u ORDER BY q, d",
        Sends::Both,
    ),
    ("WITH u AS (SELECT DISTINCT x, x * x AS q FROM d) SELECT q, grad(q * q, x) AS d FROM u ORDER BY q", Sends::Both),
    (
        "WITH u AS (SELECT x, x * x AS q FROM d ORDER BY y LIMIT 3) SELECT q, grad(q * q, x) AS d FROM u ORDER BY q",
        Sends::Both,
    ),
    // Windows.
    ("SELECT id, grad(AVG(x * x) OVER (PARTITION BY g), x) AS d FROM d ORDER BY id", Sends::Both),
    ("SELECT id, jvp(lag(x * x) OVER (ORDER BY id), x, 1.0) AS d FROM d ORDER BY id", Sends::Both),
    ("SELECT id, w, grad(SUM(w * x) OVER (ORDER BY id), w) AS d FROM d CROSS JOIN p ORDER BY id, w", Sends::Both),
    (
        "WITH m AS (SELECT id, x, x - MAX(x) OVER () AS z FROM d),
              s AS (SELECT id, x, exp(z) / SUM(exp(z)) OVER () AS p FROM m) SELECT id, grad(p, x) AS d FROM s ORDER BY id",
        Sends::Both,
    ),
    // Recursion.
    (
        "WITH RECURSIVE newton AS (
            SELECT 0 AS step, w AS a, CAST(1 AS DOUBLE) AS x FROM p
            UNION ALL
            SELECT step + 1, a, x - (x * x * x + x - a) / grad(x * x * x + x - a, x) FROM newton WHERE step < 8)
         SELECT a, x, grad(x, a) AS d FROM newton WHERE step = 8 ORDER BY a",
        Sends::Logical,
    ),
    (
        "WITH RECURSIVE m AS (
            SELECT 0 AS step, 0.5 AS a UNION ALL
            SELECT step + 1, a - 0.1 * AVG(grad(power(a * x - y, 2), a)) FROM m CROSS JOIN d WHERE step < 5 GROUP BY step, a)
         SELECT step, a AS d FROM m ORDER BY step",
        Sends::Logical,
    ),
];

/// Gradients by row, whose relations are shared unless the session says otherwise.
const BY_ROW: &[(&str, Sends)] = &[
    ("SELECT id, grad((SELECT SUM(x * x) FROM d), x) AS d FROM d ORDER BY id", Sends::Both),
    ("SELECT id, grad((SELECT MAX(x) FROM d) * 3 + x, x) AS d FROM d ORDER BY id", Sends::Both),
    ("SELECT id, grad(power((SELECT AVG(x) FROM d) - x, 2), x) AS d FROM d ORDER BY id", Sends::Both),
    ("SELECT id, jvp((SELECT SUM(x * x) FROM d), x, y) AS d FROM d ORDER BY id", Sends::Both),
    (
        "WITH h AS (SELECT d.g, p.k, tanh(SUM(d.x * p.w)) AS v FROM d JOIN p ON d.id > p.k GROUP BY d.g, p.k),
              loss AS (SELECT AVG(power(v - 0.5, 2)) AS l FROM h)
         SELECT k, w - 0.1 * grad((SELECT l FROM loss), w) AS d FROM p ORDER BY k",
        Sends::Both,
    ),
    (
        "WITH q AS (SELECT d.id, d.x * p.w AS v FROM d LEFT JOIN p ON d.id = p.k)
         SELECT k, grad((SELECT SUM(v * v) FROM q), w) AS d FROM p ORDER BY k",
        Sends::Both,
    ),
    (
        "SELECT id, grad((SELECT SUM(s * s) FROM (SELECT SUM(x * x) AS s FROM d GROUP BY ROLLUP (g))), x) AS d FROM d ORDER BY id",
        Sends::Physical,
    ),
    (
        "SELECT id, grad((SELECT SUM(s * x) FROM (SELECT x, SUM(x) OVER (ORDER BY id ROWS 1 PRECEDING) AS s FROM d)), x) AS d
         FROM d ORDER BY id",
        Sends::Both,
    ),
    (
        "SELECT id, grad((SELECT SUM(e / t) FROM (SELECT id, exp(x) AS e, SUM(exp(x)) OVER (PARTITION BY g) AS t FROM d) WHERE id < 3), x)
         AS d FROM d ORDER BY id",
        Sends::Both,
    ),
    (
        "SELECT id, grad((SELECT SUM(x * x) FROM (SELECT x FROM d ORDER BY g LIMIT 3)), x) AS d FROM d ORDER BY id",
        Sends::Both,
    ),
    (
        "SELECT id, grad((SELECT SUM(v * v) FROM (SELECT x AS v FROM d UNION ALL SELECT 2 * x FROM d)), x) AS d FROM d ORDER BY id",
        Sends::Both,
    ),
    (
        "SELECT id, grad((SELECT SUM(n * n) FROM (SELECT grad((SELECT SUM(x * x * x) FROM d), x) AS n FROM d) s), x) AS d
         FROM d ORDER BY id",
        Sends::Both,
    ),
];

/// Sessions that read the same files.
struct Files(PathBuf);

impl Files {
    async fn written() -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("xql-sent-{}-{number}", process::id()));
        fs::create_dir_all(&folder)?;
        let files = Self(folder);
        let ctx = SessionContext::new();
        for (name, rows) in [
            (
                "d",
                "SELECT * FROM (VALUES (0, 'a', 0.5, 1.5, 0.25), (1, 'a', 2.0, -0.5, NULL), (2, 'b', -1.0, 3.0, 2.5),
                 (3, 'b', 0.75, 0.125, -2.0), (4, 'b', 1.25, 0.5, 1.0)) AS t(id, g, x, y, z)",
            ),
            ("p", "SELECT * FROM (VALUES (0, 0.75, -1.25), (2, 1.5, 0.5), (9, -0.5, 0.0)) AS t(k, w, b)"),
        ] {
            let path = files.path(name);
            ctx.sql(rows).await?.write_parquet(&path, DataFrameWriteOptions::new(), None).await?;
        }
        Ok(files)
    }

    fn path(&self, table: &str) -> String {
        self.0.join(format!("{table}.parquet")).display().to_string()
    }

    /// A session without derivatives.
    async fn session(&self) -> Result<SessionContext> {
        let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
        for table in ["d", "p"] {
            ctx.register_parquet(table, self.path(table), ParquetReadOptions::default()).await?;
        }
        Ok(ctx)
    }

    /// A session with derivatives, whose plans have nodes of DataFusion alone.
    async fn sender(&self) -> Result<SessionContext> {
        registered(self.session().await?, ["SET xql.share_relations = false"]).await
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// All functions of a plan are those of a session without derivatives, and no node is ours.
fn assert_stock(plan: &LogicalPlan, stock: &SessionContext, sql: &str) -> Result<()> {
    let state = stock.state();
    plan.apply_with_subqueries(|node| {
        assert!(!matches!(node, LogicalPlan::Extension(_)), "{sql}\n{}", plan.display_indent());
        assert!(SharedRelation::scanned_by(node).is_none(), "{sql}\n{}", plan.display_indent());
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::ScalarFunction(call) = part {
                    let known = state.scalar_functions().get(call.func.name());
                    assert!(known.is_some_and(|known| known == &call.func), "{part} in {}", plan.display_indent());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

fn has_node_of_ours(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(node.is::<SharedScanExec>()))
}

/// The rows as columns of floats, texts left out.
fn values(batches: &[RecordBatch]) -> Result<Vec<Vec<Option<f64>>>> {
    let Some(first) = batches.first() else { return Ok(vec![]) };
    let all = concat_batches(&first.schema(), batches)?;
    let numbers = all.columns().iter().filter(|column| column.data_type().is_numeric());
    numbers.map(|column| floats(column)).collect()
}

/// Sums may be taken in another order.
fn assert_equal(a: &[RecordBatch], b: &[RecordBatch], sql: &str) -> Result<()> {
    let (a, b) = (values(a)?, values(b)?);
    let close = |a: &Option<f64>, b: &Option<f64>| match (a, b) {
        (Some(a), Some(b)) => a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs()) || (a.is_nan() && b.is_nan()),
        (None, None) => true,
        _ => false,
    };
    let same = a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b)));
    assert!(same && !a.is_empty() && !a[0].is_empty(), "{sql}\n{a:?}\n{b:?}");
    Ok(())
}

async fn assert_sent(statements: &[(&str, Sends)]) -> Result<()> {
    let files = Files::written().await?;
    let here = files.session().await?;
    xql_relations::register(&here);
    let sender = files.sender().await?;
    let receiver = files.session().await?;
    for (sql, sends) in statements {
        let sent = assert_one_sent(sql, *sends, [&here, &sender, &receiver]).await;
        sent.map_err(|error| error.context(*sql))?;
    }
    Ok(())
}

async fn assert_one_sent(sql: &str, sends: Sends, [here, sender, receiver]: [&SessionContext; 3]) -> Result<()> {
    let expected = here.sql(sql).await?.collect().await?;
    let plan = sender.sql(sql).await?.into_optimized_plan()?;
    assert_stock(&plan, receiver, sql)?;
    let sent = logical_plan_to_bytes(&plan)?;
    let received = logical_plan_from_bytes(&sent, &receiver.task_ctx());
    assert_eq!(received.is_ok(), sends != Sends::Physical, "{sql}: {:?}", received.err());
    if let Ok(received) = received {
        let found = receiver.execute_logical_plan(received).await?.collect().await?;
        assert_equal(&found, &expected, sql)?;
    }
    let plan = sender.sql(sql).await?.create_physical_plan().await?;
    assert!(!has_node_of_ours(&plan)?, "{sql}");
    let sent = physical_plan_to_bytes(plan);
    assert_eq!(sent.is_ok(), sends != Sends::Logical, "{sql}: {:?}", sent.err());
    if let Ok(sent) = sent {
        let received = physical_plan_from_bytes(&sent, &receiver.task_ctx())?;
        assert_equal(&collect(received, receiver.task_ctx()).await?, &expected, sql)?;
    }
    Ok(())
}

#[tokio::test]
async fn derivatives_of_every_kind_are_sent() -> Result<()> {
    assert_sent(LOCAL).await
}

#[tokio::test]
async fn gradients_by_row_are_sent_without_shared_relations() -> Result<()> {
    assert_sent(BY_ROW).await
}

/// What DataFusion 54 does not send without derivatives either.
#[tokio::test]
async fn what_is_not_sent_is_not_sent_without_derivatives() -> Result<()> {
    let files = Files::written().await?;
    let stock = files.session().await?;
    let of_nothing = "SELECT g, SUM(x) FROM d WHERE false GROUP BY g UNION ALL SELECT 'a', SUM(x) FROM d WHERE false";
    let plan = stock.sql(of_nothing).await?.into_optimized_plan()?;
    assert!(logical_plan_from_bytes(&logical_plan_to_bytes(&plan)?, &stock.task_ctx()).is_err());
    let recursive = "WITH RECURSIVE r AS (SELECT 0 AS s UNION ALL SELECT s + 1 FROM r WHERE s < 3) SELECT s FROM r";
    assert!(physical_plan_to_bytes(stock.sql(recursive).await?.create_physical_plan().await?).is_err());
    Ok(())
}

/// Only where a session says so are relations computed anew; what cannot be computed anew is refused there.
#[tokio::test]
async fn shared_relations_are_a_choice_of_the_session() -> Result<()> {
    let files = Files::written().await?;
    let ctx = files.session().await?;
    xql_relations::register(&ctx);
    let sql = BY_ROW[0].0;
    assert!(has_node_of_ours(&ctx.sql(sql).await?.create_physical_plan().await?)?);
    let drawn = "SELECT id, grad((SELECT SUM(v * v) FROM (SELECT x + random() AS v FROM d)), x) AS d FROM d";
    ctx.sql(drawn).await?.collect().await?;
    let iterated = "WITH RECURSIVE s AS (
            SELECT 0 AS step, k, w FROM p UNION ALL
            SELECT step + 1, k, w - 0.1 * grad((SELECT SUM(w * w) FROM s), w) FROM s WHERE step < 3)
         SELECT * FROM s";
    ctx.sql(iterated).await?.collect().await?;
    ctx.sql("SET xql.share_relations = false").await?.collect().await?;
    // Registering again, as a function that is imported does, leaves the choice as it is.
    xql_relations::register(&ctx);
    assert!(!has_node_of_ours(&ctx.sql(sql).await?.create_physical_plan().await?)?);
    for set in ["SET xql.share_relations = 3", "SET xql.share = false"] {
        assert!(ctx.sql(set).await.is_err(), "{set}");
    }
    for (sql, reason) in [(drawn, "makes another one each time"), (iterated, "xql.share_relations is false")] {
        let refused = async { ctx.sql(sql).await?.collect().await }.await;
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(reason)), "{sql}: {refused:?}");
    }
    Ok(())
}
