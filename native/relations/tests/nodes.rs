//! The table in the documentation of the crate, node by node: what it says passes, passes, and what it says is refused is refused.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchemaRef, Result, Spans};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{
    Distinct, Expr, Extension, LogicalPlan, LogicalPlanBuilder, Partitioning, UserDefinedLogicalNodeCore,
};
use datafusion::prelude::SessionContext;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What a node is called in the table. A node that DataFusion adds does not compile here until the table has it.
fn kind(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Projection(_) => "Projection",
        LogicalPlan::Filter(_) => "Filter",
        LogicalPlan::Window(_) => "Window",
        LogicalPlan::Aggregate(_) => "Aggregate",
        LogicalPlan::Sort(_) => "Sort",
        LogicalPlan::Join(_) => "Join",
        LogicalPlan::Repartition(_) => "Repartition",
        LogicalPlan::Union(_) => "Union",
        LogicalPlan::TableScan(_) => "TableScan",
        LogicalPlan::EmptyRelation(_) => "EmptyRelation",
        LogicalPlan::Subquery(_) => "Subquery",
        LogicalPlan::SubqueryAlias(_) => "SubqueryAlias",
        LogicalPlan::Limit(_) => "Limit",
        LogicalPlan::Statement(_) => "Statement",
        LogicalPlan::Values(_) => "Values",
        LogicalPlan::Explain(_) => "Explain",
        LogicalPlan::Analyze(_) => "Analyze",
        LogicalPlan::Extension(_) => "Extension",
        LogicalPlan::Distinct(Distinct::All(_)) => "Distinct::All",
        LogicalPlan::Distinct(Distinct::On(_)) => "Distinct::On",
        LogicalPlan::Dml(_) => "Dml",
        LogicalPlan::Ddl(_) => "Ddl",
        LogicalPlan::Copy(_) => "Copy",
        LogicalPlan::DescribeTable(_) => "DescribeTable",
        LogicalPlan::Unnest(_) => "Unnest",
        LogicalPlan::RecursiveQuery(_) => "RecursiveQuery",
    }
}

/// The nodes that stand above queries, so that no value passes through them.
const ABOVE: [&str; 7] = ["Explain", "Analyze", "Statement", "Dml", "Ddl", "Copy", "DescribeTable"];

/// For each node a relation with the columns `w`, of the relation `t`, and `q`, which is computed from it below the node or by it.
const RELATIONS: [(&str, &str); 18] = [
    ("Projection", "SELECT w, w * w AS q FROM t"),
    ("Filter", "SELECT * FROM (SELECT w, w * w AS q FROM t) WHERE w > 0"),
    ("Sort", "SELECT w, w * w AS q FROM t ORDER BY w LIMIT 2"),
    ("Limit", "SELECT w, w * w AS q FROM t LIMIT 1"),
    ("Repartition", "SELECT * FROM repartitioned"),
    ("Subquery", "SELECT * FROM subquery"),
    ("SubqueryAlias", "SELECT * FROM (SELECT w, w * w AS q FROM t) AS a"),
    ("Join", "SELECT w, w * x AS q FROM t CROSS JOIN d"),
    ("Union", "SELECT w, w * w AS q FROM t UNION ALL SELECT w, 2 * w FROM t"),
    ("Distinct::All", "SELECT DISTINCT w, w * w AS q FROM t"),
    ("Distinct::On", "SELECT DISTINCT ON (w) w, w * w AS q FROM t"),
    ("Aggregate", "SELECT w, sum(w * x) AS q FROM t CROSS JOIN d GROUP BY w"),
    ("Window", "SELECT w, sum(w * w) OVER (PARTITION BY w) AS q FROM t"),
    ("Unnest", "SELECT w, 2 * w AS q, unnest(make_array(1, 2)) AS e FROM t"),
    (
        "RecursiveQuery",
        "WITH RECURSIVE r AS (SELECT 0 AS s, w, w AS q FROM t UNION ALL SELECT s + 1, w, q * w FROM r WHERE s < 3)
         SELECT w, q FROM r",
    ),
    ("TableScan", "SELECT w, w * w AS q FROM t"),
    ("Values", "SELECT w, w * w AS q FROM v"),
    ("EmptyRelation", "SELECT w, w * w AS q FROM e"),
];

/// Does nothing, as far as anybody can tell.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Foreign(LogicalPlan);

impl PartialOrd for Foreign {
    fn partial_cmp(&self, _other: &Self) -> Option<Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for Foreign {
    fn name(&self) -> &str {
        "Foreign"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.0]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.0.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Foreign")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self(inputs.remove(0)))
    }
}

async fn session() -> Result<SessionContext> {
    let ctx = SessionContext::new();
    xql_relations::register(&ctx);
    for sql in [
        "CREATE TABLE t (w DOUBLE)",
        "CREATE TABLE d (x DOUBLE)",
        "CREATE VIEW v AS SELECT w FROM (VALUES (CAST(1 AS DOUBLE)), (2)) AS a(w)",
        "CREATE VIEW e AS SELECT CAST(1 AS DOUBLE) AS w",
    ] {
        ctx.sql(sql).await?.collect().await?;
    }
    let below = || async { ctx.sql("SELECT w, w * w AS q FROM t").await.map(DataFrame::into_unoptimized_plan) };
    let repartitioned =
        LogicalPlanBuilder::from(below().await?).repartition(Partitioning::RoundRobinBatch(2))?.build()?;
    let subquery = Arc::new(below().await?);
    let subquery = LogicalPlan::Subquery(Subquery { subquery, outer_ref_columns: vec![], spans: Spans::new() });
    let foreign = LogicalPlan::Extension(Extension { node: Arc::new(Foreign(below().await?)) });
    for (name, plan) in [("repartitioned", repartitioned), ("subquery", subquery), ("foreign", foreign)] {
        ctx.register_table(name, DataFrame::new(ctx.state(), plan).into_view())?;
    }
    Ok(ctx)
}

/// The derivative of a statement, or why there is none.
async fn derivative(ctx: &SessionContext, sql: &str) -> Result<LogicalPlan> {
    let state = ctx.state();
    let plan = state.create_logical_plan(sql).await?;
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| ())
}

/// A statement whose value passes through a relation in forward mode, and one in reverse mode.
fn statements(node: &str, relation: &str) -> [String; 2] {
    let variable = match node {
        "Values" => "v",
        "EmptyRelation" => "e",
        _ => "t",
    };
    [
        format!("SELECT jvp(q, w, 1) AS g FROM ({relation}) AS m"),
        format!("SELECT grad((SELECT SUM(q) FROM ({relation}) AS m), w) AS g FROM {variable}"),
    ]
}

/// The lines of the table: the nodes, and whether they pass in forward mode and in reverse mode.
fn table() -> Vec<(Vec<&'static str>, [bool; 2])> {
    let lines = include_str!("../src/lib.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
    let read = lines.map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let nodes = cells[0].split(',').map(|node| node.trim().trim_matches('`')).collect();
        (nodes, [cells[1] != "refused", cells[2] != "refused"])
    });
    read.collect()
}

#[test]
fn every_node_is_in_the_table_once() {
    let listed: Vec<_> = table().into_iter().flat_map(|(nodes, _)| nodes).collect();
    let all: BTreeSet<_> = RELATIONS.iter().map(|(node, _)| *node).chain(ABOVE).chain(["Extension"]).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), all);
    assert_eq!(listed.len(), all.len());
}

#[tokio::test]
async fn nodes_pass_or_are_refused_as_the_table_says() -> Result<()> {
    let ctx = session().await?;
    for (nodes, passes) in table() {
        for node in nodes.into_iter().filter(|node| !ABOVE.contains(node)) {
            let relation = RELATIONS.iter().find(|(known, _)| *known == node).map(|(_, relation)| *relation);
            let statements = statements(node, relation.unwrap_or("SELECT * FROM foreign"));
            for (sql, passes) in statements.iter().zip(passes) {
                let mut found = false;
                ctx.state().create_logical_plan(sql).await?.apply_with_subqueries(|plan| {
                    found |= kind(plan) == node;
                    Ok(TreeNodeRecursion::Continue)
                })?;
                assert!(found, "{sql} has no {node}");
                let derivative = derivative(&ctx, sql).await;
                assert_eq!(derivative.is_ok(), passes, "{node}: {sql}\n{derivative:?}");
            }
        }
    }
    Ok(())
}

/// What a window reads of such a node may be computed from the variable.
#[tokio::test]
async fn windows_over_nodes_of_other_libraries_are_refused() -> Result<()> {
    let ctx = session().await?;
    let sql = "SELECT grad(s, w) AS g FROM (SELECT w, sum(q) OVER (PARTITION BY w) AS s FROM foreign) AS m";
    let error = derivative(&ctx, sql).await.expect_err("anything may be computed there").to_string();
    assert!(error.contains("derivatives by w cannot pass through Foreign"), "{error}");
    Ok(())
}
