//! Which side of a join is held in statements with recursive queries.

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::joins::CrossJoinExec;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

use crate::session::session;

const FIT: &str = "WITH RECURSIVE fit AS (SELECT 0 AS step, 0.5 AS w UNION ALL {}) SELECT step, w FROM fit";
const TABLE: &str = "CREATE TABLE d (x DOUBLE, y DOUBLE) AS VALUES (1.0, 3.0), (2.0, 5.0)";

/// For each join without keys in the plan of a statement, whether it holds what reads the table.
async fn holds_table(ctx: &SessionContext, term: &str) -> Result<Vec<bool>> {
    fn find(plan: &Arc<dyn ExecutionPlan>, found: &mut Vec<bool>) {
        if let Some(join) = plan.downcast_ref::<CrossJoinExec>() {
            found.push(displayable(join.left().as_ref()).indent(false).to_string().contains("DataSourceExec"));
        }
        plan.children().into_iter().for_each(|child| find(child, found));
    }
    let plan = ctx.sql(&FIT.replace("{}", term)).await?.create_physical_plan().await?;
    let mut found = vec![];
    find(&plan, &mut found);
    Ok(found)
}

#[tokio::test]
async fn one_row_is_held_wherever_it_is_known_to_be_one() -> Result<()> {
    let ctx = session([TABLE]).await?;
    for (term, held) in [
        (
            "SELECT step + 1, w - grad(AVG(power(w * x - y, 2)), w) FROM d CROSS JOIN fit WHERE step < 3 GROUP BY step, w",
            false,
        ),
        ("(SELECT step + 1, grad(w * w * x, w) FROM d CROSS JOIN fit WHERE step < 3 LIMIT 1)", false),
        // Each iteration may leave more rows than one.
        ("SELECT step + 1, grad(w * w * x, w) FROM d CROSS JOIN fit WHERE step < 3", true),
        ("SELECT step + 1, grad(SUM(w * w * x), w) FROM d CROSS JOIN fit WHERE step < 3 GROUP BY step, w, x", true),
        ("(SELECT step + 1, grad(w * w * x, w) FROM d CROSS JOIN fit WHERE step < 3 ORDER BY x LIMIT 2)", true),
        // What has no derivative stays as it is.
        ("SELECT step + 1, w - AVG(w * x - y) FROM d CROSS JOIN fit WHERE step < 3 GROUP BY step, w", true),
    ] {
        assert_eq!(holds_table(&ctx, term).await?, [held], "{term}");
    }
    Ok(())
}
