//! The queries that a statement reads in several places, without their calls in all of them alike.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use crate::vocabulary::identity::is_same;
use crate::vocabulary::nodes::any_node;

/// CTEs and views, each as it is written and as it is without calls. What is added there is named anew wherever it is added: copies without
/// calls would be one query no longer, and what is computed from one of them constant where another one moves.
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
    /// Returns a query without calls, if a copy of it is there already.
    pub fn without_calls(&self, query: &LogicalPlan) -> Option<&LogicalPlan> {
        self.0.iter().find(|known| is_same(&known.written, query)).map(|known| &known.without_calls)
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Forgets all but the first ones: queries of a recursive term may read its rows, which other recursive queries of its name have not.
    pub fn keep(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// Notes what a query is without calls, unless it reads columns of outer queries, which are others in other places.
    pub fn add(&mut self, written: LogicalPlan, without_calls: LogicalPlan) -> Result<()> {
        let reads_outer = |node: &LogicalPlan| Ok(node.expressions().iter().any(|expr| expr.contains_outer()));
        if !any_node(&written, reads_outer)? {
            self.0.push(QueryCopy { written, without_calls });
        }
        Ok(())
    }
}
