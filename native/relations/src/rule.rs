//! The analyzer rule.

use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchema, DataFusionError, Result, SchemaError, plan_datafusion_err, plan_err};
use datafusion_expr::{DmlStatement, Expr, LogicalPlan, Projection, WriteOp, cast};
use datafusion_optimizer::{Analyzer, AnalyzerRule, OptimizerConfig, OptimizerRule};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::restore_source_names;
use xql_autodiff::vocabulary::refusals::Refused;
use xql_autodiff::{Threshold, recognize};
use xql_contraction::Contractions;
use xql_guard::guard;

use crate::layering::Size;
use crate::options::{contractions, fixed_points, shares_ctes, shares_relations};
use crate::passes::{PassContext, prepared, run_passes};
use crate::shared_relation::{DrawingRelations, find_columns_read};
use crate::subplan::{Sharing, Subplans};
use crate::vjp::with_joins_in_relation;
use crate::vocabulary::names::OwnNames;
use crate::vocabulary::operators::{Operators, Recognize};

/// The analyzer rule that lets derivatives see through CTEs, subqueries, joins, aggregates, windows and recursion.
///
/// It emits calls of `jvp` and plain relational operators only, and leaves a plan without calls as it is. It stands after type
/// coercion, where `SessionContext::add_analyzer_rule` puts it.
///
/// DataFusion optimizes a statement that is prepared (`PREPARE`) without analyzing it, so that expressions would be simplified
/// before the rule has seen them. Therefore it is a rule of the optimizer as well, to be put before all others. In a plan that has
/// been analyzed it finds no calls: those that the rule leaves to `simplify` it does not recognize again.
#[derive(Debug)]
pub struct DifferentiateRelations {
    recognize: Recognize,
    size: Size,
    orders_joins: bool,
}

/// Measured: below that, a stack is planned no faster.
const WORTH_A_STACK: Size = Size { functions: 20, threshold: Threshold { times: 2, more: 100, repeated: 16 } };

impl DifferentiateRelations {
    /// The name of the rule in a session.
    pub const NAME: &'static str = "differentiate_relations";

    /// Creates the rule for the functions of `xql_autodiff`.
    pub fn new() -> Self {
        Self::recognizing(recognize)
    }

    /// Returns the rule for functions that are recognized otherwise, such as those imported from another library.
    pub fn recognizing(recognize: Recognize) -> Self {
        Self { recognize, size: WORTH_A_STACK, orders_joins: true }
    }

    /// Returns the rule for plans that are written as text: whoever reads it orders the sides of joins.
    pub fn leaving_joins(self) -> Self {
        Self { orders_joins: false, ..self }
    }

    fn differentiate(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<Transformed<LogicalPlan>> {
        guard(Self::NAME, || self.differentiate_unguarded(plan, config))
    }

    fn differentiate_unguarded(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<Transformed<LogicalPlan>> {
        let subplans = Subplans::read_by(&plan)?;
        let operators = subplans.operators(&plan, self.recognize)?;
        let is_plain = operators.is_empty() && contractions(config) != Contractions::Everywhere;
        let sharing = match shares_relations(config) {
            true if is_plain && !shares_ctes(config) => Sharing::Materialized,
            true => Sharing::Several,
            false => Sharing::Nothing,
        };
        let prepare = |plan| match is_plain {
            true => prepared(plan),
            false => with_joins_in_relation(prepared(plan)?, self.recognize),
        };
        let read = subplans.resolve(plan, sharing, &prepare)?;
        if is_plain {
            // A relation that is being planned has been looked through with its reader.
            if read.transformed {
                find_columns_read(&read.data)?;
            }
            return Ok(read);
        }
        let own = OwnNames::from_plan(&read.data)?;
        read.transform_data(|plan| self.run_checked(plan, operators, config).map_err(|error| refused(error, &own)))
    }

    fn run_checked(
        &self,
        plan: LogicalPlan,
        operators: Operators,
        config: &ConfigOptions,
    ) -> Result<Transformed<LogicalPlan>> {
        let before = changed_rows(&plan)?;
        let drawing = DrawingRelations::read_by(&plan)?;
        let contractions = contractions(config);
        let Self { recognize, size, orders_joins } = *self;
        let shares_relations = shares_relations(config);
        let fixed_points = fixed_points(config);
        let setting =
            PassContext { recognize, operators, size, shares_relations, orders_joins, contractions, fixed_points };
        let differentiated = run_passes(plan, &setting)?;
        drawing.check(&differentiated.data)?;
        find_columns_read(&differentiated.data)?;
        if changed_rows(&differentiated.data)? != before {
            return plan_err!(
                "DELETE and UPDATE take derivatives that read the row alone. Write the rows anew, with CREATE TABLE ... AS SELECT"
            );
        }
        Ok(differentiated)
    }
}

/// Returns the nodes that say which rows a DELETE or UPDATE changes. DataFusion reads the conditions from filters that stand over
/// the table, and changes all rows if there is anything else, such as a join with the derivatives of other rows.
fn changed_rows(plan: &LogicalPlan) -> Result<Vec<Discriminant<LogicalPlan>>> {
    let mut nodes = vec![];
    plan.apply(|node| {
        if let LogicalPlan::Dml(DmlStatement { op: WriteOp::Delete | WriteOp::Update, input, .. }) = node {
            input.apply(|node| {
                nodes.push(discriminant(node));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(nodes)
}

/// Returns an error as that of a derivative, in words that the user knows.
fn refused(error: DataFusionError, own: &OwnNames) -> DataFusionError {
    // What is above an aggregate reads its keys and its values.
    if let DataFusionError::SchemaError(missing, _) = &error
        && let SchemaError::FieldNotFound { field, .. } = missing.as_ref()
    {
        // Nor has the user named what a derivative has added.
        if own.are_without(&field.name) {
            return Refused::UnsupportedRelation.mark(plan_datafusion_err!(
                "the derivative reads {} where it is not known, which is a fault of xql-ffi. Please report the statement",
                restore_source_names(&field.to_string())
            ));
        }
        return Refused::Variable.mark(plan_datafusion_err!(
            "the variable of a derivative of an aggregate must be one of its keys; {} is not. Group by it, \
             df.aggregate([x], [grad(avg(f), x)]), or take the derivative inside: avg(grad(f, x)) instead of grad(avg(f), x)",
            restore_source_names(&field.to_string())
        ));
    }
    Refused::UnsupportedRelation.mark(match error {
        DataFusionError::Plan(message) => DataFusionError::Plan(restore_source_names(&message)),
        other => other,
    })
}

impl Default for DifferentiateRelations {
    fn default() -> Self {
        Self::new()
    }
}

impl AnalyzerRule for DifferentiateRelations {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(self.differentiate(plan, config)?.data)
    }
}

impl OptimizerRule for DifferentiateRelations {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let subplans = Subplans::read_by(&plan)?;
        if subplans.operators(&plan, self.recognize)?.is_empty() && !subplans.has_materialized() {
            return subplans.resolve(plan, Sharing::Nothing, &Ok);
        }
        // A plan with calls, or with subplans that are computed once, has not been analyzed: no types have been coerced.
        let schema = Arc::clone(plan.schema());
        let mut plan = plan;
        for rule in Analyzer::new().rules {
            plan = rule.analyze(plan, &config.options())?;
        }
        let plan = self.differentiate(plan, &config.options())?.data;
        // Coerced expressions may be of other types than they were taken to be of, which an optimizer rule must not change.
        Ok(Transformed::yes(typed_as(plan, &schema)?))
    }
}

/// Returns a plan with the types, names and qualifiers of a schema.
fn typed_as(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let types = |schema: &DFSchema| schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
    if types(plan.schema()) == types(schema) {
        return Ok(plan);
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let typed = columns.zip(schema.iter()).map(|(column, (table, field))| {
        cast(column, field.data_type().clone()).alias_qualified(table.cloned(), field.name())
    });
    Ok(LogicalPlan::Projection(Projection::try_new(typed.collect(), Arc::new(plan))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(feature = "datafusion-55"))]
    use crate::workarounds::nullability::NullableRecursiveColumns;
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use datafusion_optimizer::Optimizer;
    use std::sync::Arc;

    const ALWAYS: Size = Size { functions: 0, threshold: Threshold { times: 0, more: 0, repeated: 0 } };
    const NEVER: Size = Size { functions: usize::MAX, ..WORTH_A_STACK };

    async fn session(size: Size) -> Result<SessionContext> {
        let rule = || Arc::new(DifferentiateRelations { recognize, size, orders_joins: true });
        let mut optimizers: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![rule()];
        optimizers.extend(Optimizer::new().rules);
        #[cfg(not(feature = "datafusion-55"))]
        optimizers.push(Arc::new(NullableRecursiveColumns));
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(1))
            .with_optimizer_rules(optimizers)
            .build();
        let ctx = SessionContext::new_with_state(state);
        for function in xql_autodiff::functions() {
            ctx.register_udf(function);
        }
        ctx.add_analyzer_rule(rule());
        for sql in [
            "CREATE TABLE t (k INT NOT NULL, x DOUBLE, y DOUBLE NOT NULL, s VARCHAR, r REAL NOT NULL) AS VALUES
               (0, 0.5, 1.5, 'a', 0.25), (1, 2.0, -0.5, '3', 1.5), (2, NULL, 3.0, NULL, 2.5), (3, -1.0, 0.125, '4', -2.0)",
            "CREATE TABLE p (a DOUBLE NOT NULL, b DOUBLE NOT NULL) AS VALUES (0.75, -1.25)",
            "CREATE TABLE made (v DOUBLE)",
        ] {
            ctx.sql(sql).await?.collect().await?;
        }
        Ok(ctx)
    }

    /// Checks that what a statement gives as a stack is to the last bit what it gives written out. If it can be one, its plan shows it.
    async fn same(sql: &str, is_stack: bool) -> Result<()> {
        let sessions = [session(ALWAYS).await?, session(NEVER).await?];
        for (number, statement) in sql.split(';').enumerate() {
            let mut shown = vec![];
            for (ctx, can_be) in sessions.iter().zip([is_stack, false]) {
                let frame = ctx.sql(statement).await?;
                let plan = frame.clone().into_optimized_plan()?.display_indent().to_string();
                if number == 0 {
                    assert_eq!(plan.contains("∂value"), can_be, "{statement}\n{plan}");
                }
                shown.push(pretty_format_batches(&frame.collect().await?)?.to_string());
            }
            assert_eq!(shown[0], shown[1], "{statement}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_panic_is_an_error() -> Result<()> {
        let ctx = session(NEVER).await?;
        ctx.add_analyzer_rule(Arc::new(DifferentiateRelations::recognizing(|_| panic!("deliberate"))));
        let error = ctx.sql("SELECT abs(x) FROM t").await?.into_optimized_plan().expect_err("it panics").to_string();
        assert!(error.contains("differentiate_relations panicked at ") && error.ends_with(": deliberate"), "{error}");
        Ok(())
    }

    #[tokio::test]
    async fn a_stack_gives_what_the_derivatives_written_out_give() -> Result<()> {
        for sql in [
            "SELECT grad(sin(exp(x * y)), x), grad(sin(exp(x * y)), y), sin(exp(x * y)) + 1 FROM t",
            "SELECT jvp(exp(x * y) * exp(x * y), x, y, y, x), vjp(tanh(x * y), x, exp(x)) FROM t",
            "SELECT grad(exp(r * r) * exp(r * r), r) AS of_floats FROM t",
            "SELECT k, sum(grad(exp(x * y) * exp(x * y), x)) OVER (ORDER BY k) AS s FROM t",
            "SELECT k FROM t ORDER BY grad(exp(x * y) * exp(x * y), x)",
            "SELECT k % 2, sum(grad(exp(x * y) * exp(x * y), y)), max(x) FILTER (WHERE y > 0) FROM t GROUP BY k % 2",
            "SELECT grad(exp(x * y) * exp(x * y), x) AS d, count(*) FROM t GROUP BY grad(exp(x * y) * exp(x * y), x) ORDER BY d",
            "WITH m AS (SELECT a, b, y, tanh(a * x + b) AS h FROM t CROSS JOIN p)
             SELECT grad(avg(power(h * h - y, 2)), a), grad(avg(power(h * h - y, 2)), b) FROM m GROUP BY a, b",
            "SELECT grad(CASE WHEN x > 0 THEN exp(x * y) * exp(x * y) ELSE coalesce(x, y) * sin(x * y) END, x) FROM t",
            "SELECT grad(exp(x * y) * exp(x * y), x) FROM t WHERE k > 0 LIMIT 2",
            "WITH RECURSIVE fit AS (
                SELECT 0 AS step, CAST(0.5 AS DOUBLE) AS w
                UNION ALL
                SELECT step + 1, w - 0.01 * grad(exp(w * w) * exp(w * w), w) FROM fit WHERE step < 5)
             SELECT step, w, grad(sin(exp(w)), w) FROM fit ORDER BY step",
            "INSERT INTO made SELECT grad(exp(x * y) * exp(x * y), x) FROM t; SELECT * FROM made",
            "PREPARE d AS SELECT grad(exp(x * y) * exp(x * y), x) * $1 FROM t; EXECUTE d(2.0)",
        ] {
            same(sql, !sql.starts_with("PREPARE")).await?;
        }
        Ok(())
    }

    /// In branches that are not taken nothing is evaluated that can fail.
    #[tokio::test]
    async fn what_can_fail_stays_in_its_branch() -> Result<()> {
        for (value, is_stack) in [
            ("CASE WHEN k = 0 THEN x ELSE exp(x * (6 / k)) * exp(x * (6 / k)) END", false),
            ("CASE WHEN s = 'a' THEN x ELSE exp(x * CAST(s AS DOUBLE)) * exp(x * CAST(s AS DOUBLE)) END", false),
            (
                "CASE WHEN x < 0 THEN x ELSE exp(power(x, 0.5)) * exp(power(x, 0.5)) * exp(exp(x)) * exp(exp(x)) END",
                true,
            ),
            ("exp(coalesce(x, 6 / k)) * exp(coalesce(x, 6 / k))", true),
        ] {
            same(&format!("SELECT k, {value}, grad({value}, x) FROM t WHERE k <> 0 OR x > 0"), is_stack).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn what_is_evaluated_where_it_stands_is_no_part_of_a_stack() -> Result<()> {
        for sql in [
            "SELECT grad(grad(exp(x * y), x), y), grad(exp(x * y) * exp(x * y), x) FROM t",
            "SELECT grad(exp(x * y) * exp(x * y), x) + (SELECT max(a) FROM p) FROM t",
            "SELECT k FROM t WHERE grad(exp(x * y) * exp(x * y), x) > 0",
            "SELECT grad(exp(x * y) * exp(x * y), x), random() < 2 FROM t",
        ] {
            same(sql, false).await?;
        }
        Ok(())
    }
}
