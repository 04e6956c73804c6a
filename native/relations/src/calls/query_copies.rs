//! The rewritten queries of a statement, which make all copies of a query alike.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use crate::vocabulary::identity::is_same;
use crate::vocabulary::nodes::any_node;

/// CTEs and views, each as written and as rewritten. Columns get new names wherever they are added. So copies that were
/// rewritten one by one would be different queries, and a column from one copy would count as constant while the other
/// moves.
///
/// ```sql
/// WITH p AS (SELECT grad((SELECT SUM(x * x) FROM t), x) AS w FROM t)
/// SELECT grad(v, w) FROM (SELECT w, (SELECT SUM(w * w) FROM p) AS v FROM p)   -- v reads w
/// ```
#[derive(Debug, Default, Clone)]
pub struct QueryCopies(Vec<QueryCopy>);

#[derive(Debug, Clone)]
struct QueryCopy {
    written: LogicalPlan,
    without_calls: LogicalPlan,
}

impl QueryCopies {
    /// Returns the rewritten query, if a copy of it has been rewritten.
    pub fn without_calls(&self, query: &LogicalPlan) -> Option<&LogicalPlan> {
        self.0.iter().find(|known| is_same(&known.written, query)).map(|known| &known.without_calls)
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Forgets all but the first `count` queries. Queries of a recursive term may read its work table, which another
    /// recursive query of the same name does not have.
    pub fn keep(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// Records a rewritten query, unless it reads outer columns, which differ between places.
    pub fn add(&mut self, written: LogicalPlan, without_calls: LogicalPlan) -> Result<()> {
        let reads_outer = |node: &LogicalPlan| Ok(node.expressions().iter().any(|expr| expr.contains_outer()));
        if !any_node(&written, reads_outer)? {
            self.0.push(QueryCopy { written, without_calls });
        }
        Ok(())
    }
}
