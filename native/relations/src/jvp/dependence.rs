//! Dependence analysis: finds the columns of a plan that vary with one of them, if that moves in all rows together.

use datafusion_common::{DFSchema, Result};
use datafusion_expr::{Expr, LogicalPlan, RecursiveQuery, TableScan};
use std::collections::BTreeSet;
use xql_autodiff::vocabulary::types::can_vary;

use super::direction::{Direction, Variable};
use super::propagate::{is_by_row, is_constant_beside};
use super::recursive_query::check_passed_on;
use crate::aggregate_rules::{self, arguments};
use crate::plan::over_input::computed_over_input;
use crate::shared_relation::SharedRelation;
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::Names;
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::work_table::{is_work_table, source_column};

/// Returns whether expressions over a plan vary with one of its columns.
pub fn varies(
    (direction, names): (&Direction, &Names),
    plan: &LogicalPlan,
    variable: usize,
    exprs: &[&Expr],
) -> Result<bool> {
    let needs = direction.needs(plan.schema(), Variable::Column(variable), exprs.iter().copied())?;
    let varying = Dependence { direction, names, iterated: vec![] }.varying(plan, variable, &needs)?;
    for expr in exprs {
        if varies_with(direction, expr, plan.schema(), &varying)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether an expression over a schema varies with one of these columns. One that may not is refused.
fn varies_with(direction: &Direction, expr: &Expr, schema: &DFSchema, varying: &BTreeSet<usize>) -> Result<bool> {
    let mut tangents = Tangents::default();
    for index in varying {
        tangents.set(*index, Tangent::One);
    }
    Ok(direction.linearize(expr, schema, &tangents)? != Linearized::Known(Tangent::Zero))
}

/// A variable that is followed through a plan.
struct Dependence<'d> {
    direction: &'d Direction,
    /// The names of what has been added.
    names: &'d Names,
    /// The recursive queries into whose recursive term it is followed, the innermost last.
    iterated: Vec<Iterated>,
}

/// A recursive query.
struct Iterated {
    name: String,
    /// The column that is the variable, which every iteration passes on.
    variable: usize,
    /// The columns of its work table that vary.
    varying: BTreeSet<usize>,
    /// Those that the recursive term reads.
    requested: BTreeSet<usize>,
}

impl Dependence<'_> {
    /// Returns the wanted columns that vary with the variable. A column whose tangent would be refused counts as
    /// varying.
    #[recursive::recursive]
    fn varying(&mut self, plan: &LogicalPlan, variable: usize, wanted: &BTreeSet<usize>) -> Result<BTreeSet<usize>> {
        let mut varying: BTreeSet<usize> = wanted.iter().copied().filter(|index| *index == variable).collect();
        let may_vary = |index: &usize| *index != variable && can_vary(plan.schema().field(*index).data_type());
        let wanted: BTreeSet<usize> = wanted.iter().copied().filter(may_vary).collect();
        if wanted.is_empty() {
            return Ok(varying);
        }
        if let LogicalPlan::TableScan(scan) = plan {
            varying.extend(self.scanned(scan, variable, wanted)?);
            return Ok(varying);
        }
        let Origin::Below(sources) = origin(plan, variable)? else {
            match plan {
                LogicalPlan::RecursiveQuery(query) => check_passed_on(query, variable, &self.direction.variable)?,
                _ if !is_constant_beside(plan) => varying.extend(wanted),
                _ => {}
            }
            return Ok(varying);
        };
        if let LogicalPlan::RecursiveQuery(query) = plan {
            varying.extend(self.iterated(query, variable, wanted)?);
            return Ok(varying);
        }
        for (number, input) in plan.inputs().into_iter().enumerate() {
            let source = sources.iter().find(|(source, _)| *source == number).map(|(_, column)| *column);
            varying.extend(self.by_way_of((plan, number), input, source, &wanted)?);
        }
        Ok(varying)
    }

    /// Returns the wanted columns of a node that vary through one of its inputs. `source` is the variable in that
    /// input, if the input has it.
    fn by_way_of(
        &mut self,
        (plan, number): (&LogicalPlan, usize),
        input: &LogicalPlan,
        source: Option<usize>,
        wanted: &BTreeSet<usize>,
    ) -> Result<BTreeSet<usize>> {
        let exprs = computed_over_input(plan, number)?;
        let exprs = || wanted.iter().filter_map(|index| Some((*index, exprs.get(*index)?.as_ref()?)));
        let seen = source.map_or(Variable::Outer, Variable::Column);
        let needs = self.direction.needs(input.schema(), seen, exprs().flat_map(|(_, expr)| arguments(expr)))?;
        let below = match source {
            Some(column) => self.varying(input, column, &needs)?,
            None if is_by_row(input, self.names) => BTreeSet::new(),
            None if input.all_out_ref_exprs().is_empty() => BTreeSet::new(),
            None => needs,
        };
        let mut varying = BTreeSet::new();
        for (index, expr) in exprs() {
            let varies_below = |expr: &Expr| varies_with(self.direction, expr, input.schema(), &below);
            let varies = match unaliased(expr) {
                function @ (Expr::AggregateFunction(_) | Expr::WindowFunction(_)) => {
                    aggregate_rules::varies(function, varies_below)?
                }
                expr => varies_below(expr)?,
            };
            varying.extend(varies.then_some(index));
        }
        Ok(varying)
    }

    /// Returns those of the wanted columns of a scan that vary.
    fn scanned(&mut self, scan: &TableScan, variable: usize, wanted: BTreeSet<usize>) -> Result<BTreeSet<usize>> {
        if let Some(relation) = SharedRelation::scanned(scan) {
            for iterated in &self.iterated {
                if SharedRelation::reads_iteration(relation.plan(), &iterated.name)? {
                    return Ok(wanted);
                }
            }
            return Ok(BTreeSet::new());
        }
        let found = self.iterated.iter_mut().rev().find(|iterated| is_work_table(scan, &iterated.name));
        let Some(iterated) = found.filter(|iterated| source_column(scan, variable) == iterated.variable) else {
            return Ok(BTreeSet::new());
        };
        iterated.requested.extend(wanted.iter().map(|index| source_column(scan, *index)));
        Ok(wanted.into_iter().filter(|index| iterated.varying.contains(&source_column(scan, *index))).collect())
    }

    /// Returns those of the wanted columns of a recursive query that vary, in any iteration.
    fn iterated(
        &mut self,
        query: &RecursiveQuery,
        variable: usize,
        wanted: BTreeSet<usize>,
    ) -> Result<BTreeSet<usize>> {
        let mut requested = wanted.clone();
        let mut varying = BTreeSet::new();
        loop {
            let first = self.varying(&query.static_term, variable, &requested)?;
            let name = query.name.clone();
            self.iterated.push(Iterated { name, variable, varying: varying.clone(), requested: requested.clone() });
            let later = self.varying(&query.recursive_term, variable, &requested);
            let needed = self.iterated.pop().map_or_else(BTreeSet::new, |iterated| iterated.requested);
            let vary: BTreeSet<usize> = first.union(&later?).copied().collect();
            if needed == requested && vary == varying {
                return Ok(wanted.intersection(&varying).copied().collect());
            }
            (requested, varying) = (needed, vary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;
    use datafusion_catalog::cte_worktable::CteWorkTable;
    use datafusion_catalog::default_table_source::provider_as_source;
    use datafusion_expr::{LogicalPlanBuilder, col, lit};
    use datafusion_functions_aggregate::expr_fn::{count, regr_avgx, sum};
    use std::sync::Arc;

    fn direction() -> Direction {
        Direction {
            jvp: Arc::new(xql_autodiff::jvp()),
            variable: "w".to_owned(),
            variable_type: DataType::Float64,
            origins: vec![],
            seed: None,
            cell: None,
        }
    }

    /// `SELECT w, x, w * x AS q FROM (VALUES (1.0, 2.0)) AS t(w, x)`
    fn model() -> Result<LogicalPlanBuilder> {
        let values = LogicalPlanBuilder::values(vec![vec![lit(1.0), lit(2.0)]])?;
        let t = values.project([col("column1").alias("w"), col("column2").alias("x")])?;
        t.project([col("w"), col("x"), (col("w") * col("x")).alias("q")])
    }

    /// Returns which of the columns vary with the first one.
    fn varying(plan: &LogicalPlan) -> Result<Vec<String>> {
        let mut found = vec![];
        for column in plan.schema().columns() {
            let expr = Expr::Column(column.clone());
            if varies((&direction(), &Names::default()), plan, 0, &[&expr])? {
                found.push(column.name);
            }
        }
        Ok(found)
    }

    #[test]
    fn what_is_computed_from_the_variable_varies() -> Result<()> {
        assert_eq!(varying(&model()?.build()?)?, ["w", "q"]);
        assert_eq!(varying(&model()?.filter(col("q").gt(lit(1.0)))?.distinct()?.build()?)?, ["w", "q"]);
        Ok(())
    }

    #[test]
    fn an_aggregate_varies_if_its_formula_does() -> Result<()> {
        let functions = [
            sum(col("q")).alias("s"),
            sum(col("x")).alias("of_x"),
            count(col("q")).alias("n"),
            regr_avgx(col("q"), col("x")).alias("avgx"),
        ];
        let plan = model()?.aggregate([col("w")], functions)?.build()?;
        assert_eq!(varying(&plan)?, ["w", "s"]);
        Ok(())
    }

    #[test]
    fn a_column_of_a_recursive_query_varies_if_it_does_in_some_iteration() -> Result<()> {
        // SELECT w, 0.0 AS a, 0.0 AS b, 0.0 AS c ... UNION ALL SELECT w, b, w, c FROM r
        let zero = |name: &str| lit(0.0).alias(name);
        let start = model()?.project([col("w"), zero("a"), zero("b"), zero("c")])?;
        let table = CteWorkTable::new("r", Arc::clone(start.schema().inner()));
        let scan = LogicalPlanBuilder::scan("r", provider_as_source(Arc::new(table)), None)?;
        let step = scan.project([col("w"), col("b").alias("a"), col("w").alias("b"), col("c")])?.build()?;
        let plan = start.to_recursive_query("r".to_owned(), step, false)?.build()?;
        assert_eq!(varying(&plan)?, ["w", "a", "b"]);
        Ok(())
    }
}
